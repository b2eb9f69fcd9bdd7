#include "kernels/simt/emulated_runtime.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "kernels/simt/emulated_device.h"

using simt::add_operation;
using simt::call_device;
using simt::Device;
using simt::find_stream;
using simt::is_capturing;
using simt::run_all_streams;
using simt::run_stream;
using simt::the_device;

namespace {

bool right_places(const simt::Device& d, const void* to, const void* from, size_t bytes,
                  cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyDefault
                             ? d.memory.owns(to)
                             : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDefault
                               ? d.memory.owns(from)
                               : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (to_device ? d.memory.holds(to, bytes) : !d.memory.owns(to)) &&
         (from_device ? d.memory.holds(from, bytes) : !d.memory.owns(from));
}

bool exists(Device& d, simt::Stream* stream) {
  return stream == &d.legacy || d.streams.count(stream) != 0;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return simt::noted(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return simt::noted(cudaErrorInvalidDevice);
  return call_device([&](Device& d) {
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "emulated sm_90");
    properties->totalGlobalMem = d.memory.bytes();
    properties->sharedMemPerBlockOptin = d.shared_bytes;
    properties->sharedMemPerMultiprocessor = d.shared_bytes + 1024;  // each block takes 1 KiB more
    properties->multiProcessorCount = 4;
    properties->l2CacheSize = 1 << 20;
    properties->major = 9;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    default:
      return simt::noted(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return call_device([](Device& d) {
    ++d.counts.waits;
    return run_all_streams(d);
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return call_device([&](Device& d) {
    if (is_capturing(d)) return cudaErrorStreamCaptureUnsupported;
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    *memory = d.memory.allocate(bytes);
    return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  Device& d = the_device();
  const std::lock_guard lock(d.mutex);
  if (is_capturing(d)) return simt::noted(cudaErrorStreamCaptureUnsupported);
  // A lost device fails, but has its memory back when it is there again.
  const cudaError_t error = d.lost ? cudaErrorLaunchFailure : run_all_streams(d);
  const bool freed = d.memory.free(memory);
  return simt::noted(error == cudaSuccess && !freed ? cudaErrorInvalidValue : error);
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return call_device([&](Device& d) {
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (*memory == nullptr) return cudaErrorMemoryAllocation;
    std::memset(*memory, 0xff, bytes);
    d.host_memory[*memory] = bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  // Also of a lost device, as the memory is the host's.
  Device& d = the_device();
  const std::lock_guard lock(d.mutex);
  if (d.host_memory.erase(memory) == 0) return simt::noted(cudaErrorInvalidValue);
  const cudaError_t error = d.lost ? cudaErrorLaunchFailure : run_all_streams(d);
  std::free(memory);
  return simt::noted(error);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call_device([&](Device& d) {
    *total = d.memory.bytes();
    *free = d.memory.used() < *total ? *total - d.memory.used() : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call_device([&](Device& d) {
    if (bytes == 0) return cudaSuccess;
    if (!right_places(d, to, from, bytes, kind)) return cudaErrorInvalidValue;
    simt::Operation operation;
    operation.work = [=] { std::memcpy(to, from, bytes); };
    if (!d.memory.owns(to)) {
      operation.host = to;
      operation.host_bytes = bytes;
    }
    return add_operation(d, stream, std::move(operation));
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call_device([&](Device& d) {
    if (bytes == 0) return cudaSuccess;
    if (!d.memory.holds(to, bytes)) return cudaErrorInvalidValue;
    simt::Operation operation;
    operation.work = [=] { std::memset(to, value, bytes); };
    return add_operation(d, stream, std::move(operation));
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call_device([&](Device& d) {
    *stream = new simt::Stream;
    d.streams.insert(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Device& d = the_device();
  const std::lock_guard lock(d.mutex);
  if (d.streams.count(stream) == 0) return simt::noted(cudaErrorInvalidResourceHandle);
  const cudaError_t error = d.lost ? cudaErrorLaunchFailure : run_stream(d, *stream, stream->added);
  d.streams.erase(stream);
  delete stream;
  return simt::noted(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call_device([&](Device& d) {
    simt::Stream* found = find_stream(d, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    ++d.counts.waits;
    return run_stream(d, *found, found->added);
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return call_device([&](Device& d) {
    simt::Stream* found = find_stream(d, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found == &d.legacy || found->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    found->captured = std::make_unique<simt::Graph>();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call_device([&](Device& d) {
    *graph = nullptr;
    simt::Stream* found = find_stream(d, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->captured == nullptr) return cudaErrorIllegalState;
    *graph = found->captured.release();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return call_device([&](Device&) {
    if (graph == nullptr) return cudaErrorInvalidValue;
    *exec = new simt::GraphExec{graph->operations};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call_device([&](Device& d) {
    if (exec == nullptr) return cudaErrorInvalidValue;
    ++d.counts.graph_launches;
    for (const simt::Operation& operation : exec->operations) {
      if (const cudaError_t error = add_operation(d, stream, operation); error != cudaSuccess)
        return error;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return call_device([&](Device&) {
    *event = new simt::Event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call_device([&](Device& d) {
    simt::Stream* found = find_stream(d, stream);
    if (found == nullptr || event == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    event->time = std::make_shared<simt::Event::Clock::time_point>();
    simt::Operation operation;
    operation.work = [time = event->time] { *time = simt::Event::Clock::now(); };
    found->push(std::move(operation));
    event->stream = found;
    event->position = found->added;
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call_device([&](Device& d) {
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    // Not recorded, or of a stream that was destroyed and so has ended.
    const bool ended = event->stream == nullptr || !exists(d, event->stream);
    const bool is_last = ended || event->position == event->stream->added;
    ++(is_last ? d.counts.waits : d.counts.short_waits);
    return ended ? cudaSuccess : run_stream(d, *event->stream, event->position);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call_device([&](Device& d) {
    for (const simt::Event* event : {begin, end}) {
      if (event == nullptr || event->stream == nullptr) return cudaErrorInvalidResourceHandle;
      if (exists(d, event->stream) && event->stream->ended() < event->position) {
        return cudaErrorNotReady;
      }
    }
    *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return simt::last_error(true);
}

cudaError_t cudaPeekAtLastError() {
  return simt::last_error(false);
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalState:
      return "cudaErrorIllegalState";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorIllegalState:
      return "the operation cannot be performed in the present state";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
  }
  return "unrecognized error code";
}
