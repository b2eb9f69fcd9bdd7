// What launches of products are made of: what their kernels get, and what the GPU has.
#pragma once

#include "kernels/device/epilogue.h"
#include "kernels/device/groups/group_weights.h"
#include "kernels/simt/simt_runtime.h"

namespace aerie::device {

inline ProductArgs args_of(const Product& p) {
  ProductArgs a = {};
  a.steps = p.w[0].steps;
  a.paired = p.output == Output::kGated;
  for (int i = 0; i < p.matrices; ++i) {
    a.parts[i] = part_of_matrix(p.w[i]);
    a.panels += p.w[i].panels;
    a.n += p.w[i].n;
  }
  if (a.paired) a.n = p.w[0].n;
  a.rows = p.rows;
  a.most_rows = p.most_rows;
  a.x = p.x;
  a.x_stride = p.x_stride;
  a.ordered = p.ordered;
  a.norm = p.norm;
  a.output = p.output;
  a.y = p.y;
  a.y_stride = p.y_stride;
  a.factor = p.factor;
  a.soft_cap = p.soft_cap;
  a.next = p.next;
  a.out = p.out;
  a.out_stride = p.out_stride;
  a.glu = p.glu;
  return a;
}

// Of the current device.
struct Processors {
  int count = 1;
  int shared_bytes = 0;      // that a block may have
  int all_shared_bytes = 0;  // of a processor
  bool groups = false;       // whether simt::kHasGroups holds there
};
inline Processors processors() {
  Processors has;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return has;
  cudaDeviceGetAttribute(&has.count, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&has.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&has.all_shared_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                         device);
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  has.groups = major == 9 && minor == 0 && has.shared_bytes >= kGroupMemory;
  return has;
}

}  // namespace aerie::device
