#include "kernels/simt/emulated_runtime.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/simt/emulated_memory.h"
#include "kernels/simt/emulation.h"
#include "kernels/simt/launches.h"

namespace simt {

// One thing that a stream does: a launch, or else `work`.
struct Operation {
  std::shared_ptr<const Launch> launch;
  std::function<void()> work;
  // A copy to the host: what is garbage until then.
  void* host = nullptr;
  size_t host_bytes = 0;
};

class Stream {
 public:
  std::deque<Operation> queue;
  size_t added = 0;  // operations so far; those in the queue are the last of them
  std::unique_ptr<Graph> captured;
};

struct Event {
  Stream* stream = nullptr;
  size_t position = 0;
  std::chrono::steady_clock::time_point time;
};

struct Graph {
  std::vector<Operation> operations;
};

struct GraphExec {
  std::vector<Operation> operations;
};

namespace {

using Clock = std::chrono::steady_clock;

struct Device {
  std::mutex mutex;
  EmulatedMemory memory;
  std::set<Stream*> streams;
  Stream legacy;
  std::map<void*, size_t> host_memory;
  Counts counts;
  long until_lost = -1;  // operations; -1: never
  bool lost = false;
};

Device& device() {
  static Device& the_device = *new Device;  // outlives what is destroyed at exit
  return the_device;
}

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t returned(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// Every call of the runtime: one at a time, none after the device was lost.
template <typename F>
cudaError_t call(const F& body) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  return returned(d.lost ? cudaErrorLaunchFailure : body(d));
}

Stream* find(Device& d, Stream* stream) {
  if (stream == nullptr) return &d.legacy;
  return d.streams.count(stream) != 0 ? stream : nullptr;
}

bool capturing(const Device& d) {
  for (const Stream* stream : d.streams) {
    if (stream->captured != nullptr) return true;
  }
  return false;
}

cudaError_t add(Device& d, Stream* handle, Operation operation) {
  Stream* stream = find(d, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  ++(operation.launch != nullptr ? d.counts.launches : d.counts.copies);
  if (stream->captured != nullptr) {
    stream->captured->operations.push_back(std::move(operation));
    return cudaSuccess;
  }
  if (operation.host != nullptr) std::memset(operation.host, 0xff, operation.host_bytes);
  stream->queue.push_back(std::move(operation));
  ++stream->added;
  return cudaSuccess;
}

// Runs the stream's operations up to the `position`th. The ones behind a lost device never run.
cudaError_t run(Device& d, Stream& stream, size_t position) {
  if (stream.captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  d.memory.open();
  while (!stream.queue.empty() && stream.added - stream.queue.size() < position) {
    if (d.until_lost == 0) {
      d.lost = true;
      abandon_begun();
      break;
    }
    if (d.until_lost > 0) --d.until_lost;
    const Operation now = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (now.launch == nullptr) {
      now.work();
      continue;
    }
    const bool more = !stream.queue.empty() && stream.added - stream.queue.size() < position;
    const Launch* next = more ? stream.queue.front().launch.get() : nullptr;
    run_launch(*now.launch, next != nullptr && next->shape.dependent ? next : nullptr);
  }
  d.memory.close();
  return d.lost ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t run_all(Device& d) {
  for (Stream* stream : d.streams) {
    if (const cudaError_t error = run(d, *stream, stream->added); error != cudaSuccess) {
      return error;
    }
  }
  return run(d, d.legacy, d.legacy.added);
}

bool right_places(const Device& d, const void* to, const void* from, size_t bytes,
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

}  // namespace

cudaError_t enqueue(const Shape& shape, cudaStream_t stream, std::function<void()> thread) {
  return call([&](Device& d) {
    const size_t threads = size_t{shape.block.x} * shape.block.y * shape.block.z;
    const size_t blocks = size_t{shape.grid.x} * shape.grid.y * shape.grid.z;
    if (threads == 0 || threads > 1024 || blocks == 0 || shape.grid.x > 0x7fffffff ||
        shape.grid.y > 65535 || shape.grid.z > 65535 || shape.shared_bytes > 227 * 1024) {
      return cudaErrorInvalidConfiguration;
    }
    if (threads % 32 != 0) fail("the threads of a block are no multiple of 32");
    Operation operation;
    operation.launch = std::make_shared<const Launch>(Launch{shape, std::move(thread)});
    return add(d, stream, std::move(operation));
  });
}

Counts counts() {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  d.counts.switches = switches();
  return d.counts;
}

void set_device_memory(size_t bytes) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  d.memory.set_bytes(bytes);
}

void lose_device(long operations) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  d.until_lost = operations;
  d.lost = operations == 0;
}

void revive_device() {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  d.until_lost = -1;
  d.lost = false;
  last_error = cudaSuccess;
}

}  // namespace simt

using simt::add;
using simt::call;
using simt::device;
using simt::Device;
using simt::find;
using simt::run;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return simt::returned(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return simt::returned(cudaErrorInvalidDevice);
  return call([&](Device& d) {
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "emulated sm_90");
    properties->totalGlobalMem = d.memory.bytes();
    properties->sharedMemPerBlockOptin = 227 * 1024;
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
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    default:
      return simt::returned(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return call([](Device& d) {
    ++d.counts.waits;
    return run_all(d);
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
  return call([&](Device& d) {
    if (capturing(d)) return cudaErrorStreamCaptureUnsupported;
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    *memory = d.memory.allocate(bytes);
    return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  return call([&](Device& d) {
    if (capturing(d)) return cudaErrorStreamCaptureUnsupported;
    const cudaError_t error = run_all(d);
    if (error != cudaSuccess) return error;
    return d.memory.free(memory) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return call([&](Device& d) {
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
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (d.host_memory.erase(memory) == 0) return simt::returned(cudaErrorInvalidValue);
  const cudaError_t error = d.lost ? cudaErrorLaunchFailure : run_all(d);
  std::free(memory);
  return simt::returned(error);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&](Device& d) {
    *total = d.memory.bytes();
    *free = d.memory.used() < *total ? *total - d.memory.used() : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&](Device& d) {
    if (bytes == 0) return cudaSuccess;
    if (!right_places(d, to, from, bytes, kind)) return cudaErrorInvalidValue;
    simt::Operation operation;
    operation.work = [=] { std::memcpy(to, from, bytes); };
    if (!d.memory.owns(to)) {
      operation.host = to;
      operation.host_bytes = bytes;
    }
    return add(d, stream, std::move(operation));
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call([&](Device& d) {
    if (bytes == 0) return cudaSuccess;
    if (!d.memory.holds(to, bytes)) return cudaErrorInvalidValue;
    simt::Operation operation;
    operation.work = [=] { std::memset(to, value, bytes); };
    return add(d, stream, std::move(operation));
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call([&](Device& d) {
    *stream = new simt::Stream;
    d.streams.insert(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (d.streams.count(stream) == 0) return simt::returned(cudaErrorInvalidResourceHandle);
  const cudaError_t error = d.lost ? cudaErrorLaunchFailure : run(d, *stream, stream->added);
  d.streams.erase(stream);
  delete stream;
  return simt::returned(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&](Device& d) {
    simt::Stream* found = find(d, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    ++d.counts.waits;
    return run(d, *found, found->added);
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return call([&](Device& d) {
    simt::Stream* found = find(d, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found == &d.legacy || found->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    found->captured = std::make_unique<simt::Graph>();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call([&](Device& d) {
    *graph = nullptr;
    simt::Stream* found = find(d, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->captured == nullptr) return cudaErrorIllegalState;
    *graph = found->captured.release();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return call([&](Device&) {
    if (graph == nullptr) return cudaErrorInvalidValue;
    *exec = new simt::GraphExec{graph->operations};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call([&](Device& d) {
    if (exec == nullptr) return cudaErrorInvalidValue;
    ++d.counts.graph_launches;
    for (const simt::Operation& operation : exec->operations) {
      if (const cudaError_t error = add(d, stream, operation); error != cudaSuccess) return error;
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
  return call([&](Device&) {
    *event = new simt::Event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&](Device& d) {
    simt::Stream* found = find(d, stream);
    if (found == nullptr || event == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    simt::Operation operation;
    operation.work = [event] { event->time = simt::Clock::now(); };
    found->queue.push_back(std::move(operation));
    event->stream = found;
    event->position = ++found->added;
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Device& d) {
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    ++d.counts.waits;
    if (event->stream == nullptr) return cudaSuccess;
    return run(d, *event->stream, event->position);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call([&](Device&) {
    for (const simt::Event* event : {begin, end}) {
      if (event->stream == nullptr) return cudaErrorInvalidResourceHandle;
      if (event->stream->added - event->stream->queue.size() < event->position) {
        return cudaErrorNotReady;
      }
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = simt::last_error;
  simt::last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  return simt::last_error;
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
