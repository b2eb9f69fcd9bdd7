// What groups of processes by c10d have in common; for group_*.cc alone.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <charconv>
#include <chrono>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "train/run/groups/group.h"

namespace aerie::train {

// An evaluation by process 0 lets the others wait.
inline constexpr std::chrono::hours kPatience{6};

// What `call` returns, or what c10d throws as a status.
template <typename Call>
auto guarded(const std::string& where, const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const c10::Error& error) {
    return Status(StatusCode::kInternal, where + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, where + ": " + error.what());
  }
}

// Where processes leave word for each other until they are connected. kInvalidArgument if the
// rendezvous is none.
inline Expected<c10::intrusive_ptr<c10d::Store>> open_store(const GroupOptions& options) {
  const std::string_view text = options.rendezvous;
  const auto wrong = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "--rendezvous " + options.rendezvous + ": " + what);
  };
  constexpr std::string_view kFile = "file://", kTcp = "tcp://";
  if (text.starts_with(kFile)) {
    const std::string path(text.substr(kFile.size()));
    return c10::intrusive_ptr<c10d::Store>(
        c10::make_intrusive<c10d::FileStore>(path, options.world));
  }
  if (!text.starts_with(kTcp)) return wrong("file:///PATH or tcp://HOST:PORT is wanted");
  const std::string_view address = text.substr(kTcp.size());
  const size_t colon = address.rfind(':');
  const std::string_view digits = colon == address.npos ? "" : address.substr(colon + 1);
  uint16_t port = 0;
  const auto [stopped, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (code != std::errc() || stopped != digits.data() + digits.size() || port == 0) {
    return wrong("a port from 1 to 65535 is wanted: tcp://HOST:PORT");
  }
  c10d::TCPStoreOptions own;
  own.port = port;
  own.isServer = options.rank == 0;
  own.numWorkers = options.world;
  return c10::intrusive_ptr<c10d::Store>(
      c10::make_intrusive<c10d::TCPStore>(std::string(address.substr(0, colon)), own));
}

// `Processes` is one of c10d's groups, which takes tensors of one device.
template <typename Processes>
class C10dGroup final : public Group {
 public:
  C10dGroup(c10::intrusive_ptr<Processes> processes, at::Device device)
      : processes_(std::move(processes)), device_(device) {}

  int rank() const override { return processes_->getRank(); }
  int world() const override { return processes_->getSize(); }
  Status sum(at::Tensor& values) override {
    return on_device(
        values, [this](std::vector<at::Tensor>& there) { return processes_->allreduce(there); });
  }
  Status broadcast(at::Tensor& values) override {
    return on_device(
        values, [this](std::vector<at::Tensor>& there) { return processes_->broadcast(there); });
  }

 private:
  template <typename Begin>
  Status on_device(at::Tensor& values, const Begin& begin) {
    return guarded("the processes lost one another", [&]() -> Status {
      const at::NoGradGuard no_grad;
      std::vector<at::Tensor> there = {values.to(device_).contiguous()};
      begin(there)->wait();
      if (!there.front().is_same(values)) values.copy_(there.front());
      return {};
    });
  }

  c10::intrusive_ptr<Processes> processes_;
  at::Device device_;
};

}  // namespace aerie::train
