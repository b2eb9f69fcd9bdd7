// The emulated device behind emulated_runtime.h: streams of operations that nothing runs before
// somebody waits.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/simt/emulated_memory.h"
#include "kernels/simt/emulated_runtime.h"
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

struct Graph {
  std::vector<Operation> operations;
};

struct GraphExec {
  std::vector<Operation> operations;
};

class Stream {
 public:
  void push(Operation operation) {
    queue.push_back(std::move(operation));
    ++added;
  }
  size_t ended() const { return added - queue.size(); }

  std::deque<Operation> queue;
  size_t added = 0;                 // operations so far; those in the queue are the last of them
  std::unique_ptr<Graph> captured;  // while a capture goes on
};

struct Event {
  using Clock = std::chrono::steady_clock;
  Stream* stream = nullptr;  // nullptr: not recorded yet
  size_t position = 0;       // the stream's operations that it stands for
  std::shared_ptr<Clock::time_point> time;
};

// Guarded by `mutex`, which also lets one thread at a time run kernels.
struct Device {
  std::mutex mutex;
  EmulatedMemory memory;
  std::set<Stream*> streams;
  Stream legacy;  // the one that is called nullptr
  std::map<void*, size_t> host_memory;
  size_t shared_bytes = kMostSharedBytes;  // that a block may have
  Counts counts;
  long until_lost = -1;  // operations; -1: never
  bool lost = false;
};

// There is one, and it outlives what is destroyed at the program's end.
Device& the_device();

// nullptr if there is no such stream.
Stream* find_stream(Device& device, Stream* handle);
bool is_capturing(const Device& device);

// Puts the operation into the stream, or into what the stream captures.
cudaError_t add_operation(Device& device, Stream* handle, Operation operation);

// Runs the stream's operations up to the `position`th, the first being 1.
cudaError_t run_stream(Device& device, Stream& stream, size_t position);
cudaError_t run_all_streams(Device& device);

// As the calling thread's last error, if it is one.
cudaError_t noted(cudaError_t error);
cudaError_t last_error(bool forget);

// A call of the runtime: one at a time, none after the device was lost.
template <typename F>
cudaError_t call_device(const F& body) {
  Device& device = the_device();
  const std::lock_guard lock(device.mutex);
  return noted(device.lost ? cudaErrorLaunchFailure : body(device));
}

}  // namespace simt
