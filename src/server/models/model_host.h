// The models of a server: which are in memory, and who waits for one that is not.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/service.h"
#include "server/metrics.h"
#include "server/models/api_state.h"
#include "server/openai/api_options.h"

namespace aerie::server {

struct OpenedService {
  std::unique_ptr<Service> service;
  ApiOptions api;
};

// A model that is opened when it is asked for.
struct ServedModel {
  std::vector<std::string> names;  // what requests may call it, the first is shown; at least one
  // In at most so many bytes; 0: what is free. On the host's thread.
  std::function<Expected<OpenedService>(int64_t bytes)> open;
  double holdback = 0.0;  // ApiOptions'
  bool holdback_gates = false;
  bool stays = false;  // once it is in memory, it makes room for no other
};

struct ModelHostOptions {
  int max_loaded = 0;     // models in memory; 0: as many as there is memory for
  int64_t max_bytes = 0;  // of all of them; 0: what is free
  int max_waiting = 1024;
  std::function<void(const std::string& line)> log;  // may be null; from the host's thread
};

// One is loaded at a time, in the order in which they were first asked for. Where there is no room,
// the one that was used longest ago goes, once it has answered what it took; what is asked of it
// from then on waits until it is loaded again. It stays at least as long as it took to load, so
// that two models that take turns do not spend all their time on that. One whose settings are being
// changed (server/rollout/rollout.h) stays, too. Thread-safe.
class ModelHost {
 public:
  // While it is held the model stays in memory. From any thread.
  using Lease = std::shared_ptr<ApiState>;
  using Then = std::function<void(Expected<Lease>)>;

  // Requires at least one model; no name twice.
  ModelHost(std::vector<ServedModel> models, ModelHostOptions options);
  // Of one that is there already and must outlive the host.
  ModelHost(Service& service, ApiOptions api);
  // Refuses those who wait and ends the services, which cancel what is left.
  ~ModelHost();
  ModelHost(const ModelHost&) = delete;
  ModelHost& operator=(const ModelHost&) = delete;

  // The first is what requests get that name none.
  size_t count() const;
  const std::vector<std::string>& names(size_t model) const;
  std::optional<size_t> find(std::string_view name) const;

  // Null if it is not in memory. `counts`: as a use of it, by which it is decided who goes.
  Lease loaded(size_t model, bool counts = true);
  // Calls `then` now, if it is in memory, or once it is, on the host's thread; with
  // kResourceExhausted if there is no room or too many wait, kCancelled when the server ends, or
  // what was wrong with its files. A model that is waited for only by those whose `gone` is true is
  // not loaded for them, and their `then` is dropped, not called.
  void use(size_t model, std::shared_ptr<const std::atomic<bool>> gone, Then then);
  // The same, waiting for it. Not on the host's thread.
  Status load(size_t model);
  // Once it has answered what it took. kNotFound if it is not in memory, kUnsupported for the
  // service of another.
  Status unload(size_t model);

  enum class Presence : uint8_t { kUnloaded, kLoading, kLoaded, kUnloading };
  Presence presence(size_t model) const;
  std::string failure(size_t model) const;  // why it was not loaded the last time; empty: it was
  // The page of /metrics.
  std::string metrics_text() const;

  ServerState& server();
  // Loaded models take nothing new, and who waits is refused.
  void drain();
  // Of the only model of a server, if it has ended by itself. Of several, such a one is opened
  // anew.
  Status service_failure() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // leases keep it, too
};

std::string_view presence_name(ModelHost::Presence presence);  // "loaded", as llama.cpp has it

}  // namespace aerie::server
