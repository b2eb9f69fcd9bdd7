// Processes that train together, each on its share of every step's batches.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "base/status.h"

namespace aerie::train {

struct GroupOptions {
  int world = 1;
  int rank = 0;
  // Where they find one another: "file:///path", a file that all of them reach and that is not
  // there yet, or "tcp://host:port", on which rank 0 listens.
  std::string rendezvous = {};
  bool cuda = false;  // tensors lie on GPUs
};

// Every process calls the same methods in the same order. Not thread-safe.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;

  // Both work in place and wait for all others; kInternal if one of them is gone.
  // The sum over all processes, the same bits in each.
  virtual Status sum(at::Tensor& values) = 0;
  // The values of process 0.
  virtual Status broadcast(at::Tensor& values) = 0;
};

// Waits for the others; alone, does not. kInvalidArgument for options that cannot be, kUnsupported
// if this build cannot have several processes.
Expected<std::unique_ptr<Group>> join_group(const GroupOptions& options);

// What join_group() makes of several processes, in the build's one of group_c10d.cc and
// group_stub.cc.
Expected<std::unique_ptr<Group>> join_processes(const GroupOptions& options);

}  // namespace aerie::train
