#include "kernels/simt/emulated_device.h"

#include <cstring>
#include <utility>

namespace simt {
namespace {

thread_local cudaError_t last = cudaSuccess;

}  // namespace

Device& the_device() {
  static Device& device = *new Device;
  return device;
}

Stream* find_stream(Device& device, Stream* handle) {
  if (handle == nullptr) return &device.legacy;
  return device.streams.count(handle) != 0 ? handle : nullptr;
}

bool is_capturing(const Device& device) {
  for (const Stream* stream : device.streams) {
    if (stream->captured != nullptr) return true;
  }
  return false;
}

cudaError_t add_operation(Device& device, Stream* handle, Operation operation) {
  Stream* stream = find_stream(device, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->captured != nullptr) {
    stream->captured->operations.push_back(std::move(operation));
    return cudaSuccess;
  }
  ++(operation.launch != nullptr ? device.counts.launches : device.counts.copies);
  if (operation.host != nullptr) std::memset(operation.host, 0xff, operation.host_bytes);
  stream->push(std::move(operation));
  return cudaSuccess;
}

cudaError_t run_stream(Device& device, Stream& stream, size_t position) {
  if (stream.captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  device.memory.open();
  const auto more = [&] {
    return !stream.queue.empty() && stream.ended() < position && device.until_lost != 0;
  };
  while (more()) {
    if (device.until_lost > 0) --device.until_lost;
    const Operation now = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (now.launch == nullptr) {
      now.work();
      continue;
    }
    const Launch* next = more() ? stream.queue.front().launch.get() : nullptr;
    run_launch(*now.launch, next != nullptr && next->shape.dependent ? next : nullptr);
  }
  device.memory.close();
  device.lost = device.until_lost == 0;
  return device.lost ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t run_all_streams(Device& device) {
  for (Stream* stream : device.streams) {
    if (const cudaError_t error = run_stream(device, *stream, stream->added);
        error != cudaSuccess) {
      return error;
    }
  }
  return run_stream(device, device.legacy, device.legacy.added);
}

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

cudaError_t last_error(bool forget) {
  const cudaError_t error = last;
  if (forget) last = cudaSuccess;
  return error;
}

cudaError_t enqueue(const Shape& shape, cudaStream_t stream, std::function<void()> thread) {
  return call_device([&](Device& device) {
    const size_t threads = size_t{shape.block.x} * shape.block.y * shape.block.z;
    const size_t blocks = size_t{shape.grid.x} * shape.grid.y * shape.grid.z;
    if (threads == 0 || threads > 1024 || blocks == 0 || shape.grid.x > 0x7fffffff ||
        shape.grid.y > 65535 || shape.grid.z > 65535 || shape.shared_bytes > device.shared_bytes) {
      return cudaErrorInvalidConfiguration;
    }
    if (threads % 32 != 0) fail("the threads of a block are no multiple of 32");
    Operation operation;
    operation.launch = std::make_shared<const Launch>(Launch{shape, std::move(thread)});
    return add_operation(device, stream, std::move(operation));
  });
}

Counts counts() {
  Device& device = the_device();
  const std::lock_guard lock(device.mutex);
  device.counts.switches = switches();
  return device.counts;
}

void set_device_memory(size_t bytes) {
  Device& device = the_device();
  const std::lock_guard lock(device.mutex);
  device.memory.set_bytes(bytes);
}

void set_shared_memory(size_t bytes) {
  Device& device = the_device();
  const std::lock_guard lock(device.mutex);
  device.shared_bytes = bytes < kMostSharedBytes ? bytes : kMostSharedBytes;
}

void lose_device(long operations) {
  Device& device = the_device();
  const std::lock_guard lock(device.mutex);
  device.until_lost = operations;
  device.lost = operations == 0;
}

void revive_device() {
  Device& device = the_device();
  const std::lock_guard lock(device.mutex);
  device.until_lost = -1;
  device.lost = false;
  device.legacy.queue.clear();
  for (Stream* stream : device.streams) {
    stream->queue.clear();
    stream->captured.reset();
  }
  last = cudaSuccess;
}

}  // namespace simt
