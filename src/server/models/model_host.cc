#include "server/models/model_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"

namespace aerie::server {
namespace {

// After a model could not be opened, until it is tried again.
constexpr double kRetrySeconds = 5.0;

Status ending() {
  return {StatusCode::kCancelled, "the server is ending: nothing new is taken"};
}

}  // namespace

struct ModelHost::Impl : std::enable_shared_from_this<ModelHost::Impl> {
  using Lock = std::unique_lock<std::mutex>;

  struct Waiter {
    std::shared_ptr<const std::atomic<bool>> gone;
    ModelHost::Then then;
    uint64_t number = 0;  // in the order in which they came

    bool has_gone() const { return gone != nullptr && *gone; }
  };

  struct Entry {
    Entry(ServedModel served, Service* of_another)
        : model(std::move(served)),
          record(model.names.front(), model.holdback, model.holdback_gates),
          service(of_another) {}

    ServedModel model;
    ModelRecord record;
    ModelHost::Presence presence = ModelHost::Presence::kUnloaded;
    std::unique_ptr<Service> owned;
    Service* service;               // null: not in memory
    std::unique_ptr<ApiState> api;  // likewise
    int leases = 0;
    bool unload_asked = false;
    SteadyTime used = steady_now();
    SteadyTime stays_until = steady_now();
    std::deque<Waiter> waiters;
    Status failure;
    SteadyTime failed;
    ServiceStats before;        // of services that have gone
    int64_t leaving_bytes = 0;  // of one that is being ended

    bool is_loaded() const { return presence == ModelHost::Presence::kLoaded; }
    // Whether it has ended by itself and is to be opened anew.
    bool is_dead() const { return is_loaded() && !model.stays && !service->failure().ok(); }
  };

  explicit Impl(ModelHostOptions host_options) : options(std::move(host_options)) {}

  Lease lease(Entry& entry, bool counts = true);
  void run();
  void forget_gone(Entry& entry);
  Entry* next_wanted();
  Entry* next_unwanted();
  struct Attempt {
    Expected<OpenedService> opened = internal_error("not opened");
    std::unique_ptr<ApiState> api;  // goes before its service
    double seconds = 0.0;
  };
  Attempt open(Entry& entry, int64_t bytes);
  void load(Entry& entry, Lock& lock);
  bool make_room(const Entry& entry, Lock& lock);
  void close(Entry& entry, Lock& lock);
  void settle(Entry& entry, Lock& lock);
  void refuse_all(const Status& status, Lock& lock);
  int loaded_count() const;
  int64_t taken() const;
  Rollout::Log log_of(const Entry& entry) const {
    return [this, &entry](const std::string& line) {
      say(fmt::format("{}: {}", entry.model.names.front(), line));
    };
  }
  void say(const std::string& line) const {
    if (options.log) options.log(line);
  }

  const ModelHostOptions options;
  ServerState server;
  std::vector<std::unique_ptr<Entry>> entries;

  mutable std::mutex mutex;
  std::condition_variable changed;
  uint64_t arrivals = 0;
  int waiting = 0;
  bool stopping = false;
  std::thread thread;
};

// With the lock.
ModelHost::Lease ModelHost::Impl::lease(Entry& entry, bool counts) {
  ++entry.leases;
  if (counts) entry.used = steady_now();
  return {entry.api.get(), [self = shared_from_this(), &entry, counts](ApiState*) {
            {
              const std::lock_guard lock(self->mutex);
              --entry.leases;
              if (counts) entry.used = steady_now();
            }
            self->changed.notify_all();
          }};
}

int ModelHost::Impl::loaded_count() const {
  return static_cast<int>(
      std::ranges::count_if(entries, [](const auto& entry) { return entry->service != nullptr; }));
}

int64_t ModelHost::Impl::taken() const {
  int64_t bytes = 0;
  for (const auto& entry : entries) {
    bytes += entry->service != nullptr ? entry->service->memory_bytes() : entry->leaving_bytes;
  }
  return bytes;
}

void ModelHost::Impl::forget_gone(Entry& entry) {
  const auto gone = std::erase_if(entry.waiters, [](const Waiter& one) { return one.has_gone(); });
  waiting -= static_cast<int>(gone);
}

// That somebody who is still there has waited for the longest.
ModelHost::Impl::Entry* ModelHost::Impl::next_wanted() {
  Entry* wanted = nullptr;
  for (const auto& entry : entries) {
    forget_gone(*entry);
    if (entry->waiters.empty()) continue;
    if (wanted == nullptr || entry->waiters.front().number < wanted->waiters.front().number) {
      wanted = entry.get();
    }
  }
  return wanted;
}

ModelHost::Impl::Entry* ModelHost::Impl::next_unwanted() {
  for (const auto& entry : entries) {
    if (entry->unload_asked && entry->is_loaded()) return entry.get();
  }
  return nullptr;
}

void ModelHost::Impl::run() {
  Lock lock(mutex);
  while (!stopping) {
    if (Entry* unwanted = next_unwanted()) {
      close(*unwanted, lock);
    } else if (Entry* wanted = next_wanted()) {
      load(*wanted, lock);
    } else {
      changed.wait(lock);
    }
  }
}

// Without the lock.
ModelHost::Impl::Attempt ModelHost::Impl::open(Entry& entry, int64_t bytes) {
  Attempt out;
  const SteadyTime start = steady_now();
  try {
    out.opened = entry.model.open(bytes);
    if (out.opened.ok()) {
      out.api = std::make_unique<ApiState>(*out.opened->service, out.opened->api, entry.model.names,
                                           server, entry.record, log_of(entry));
    }
  } catch (const std::bad_alloc&) {
    out.opened = resource_exhausted("there is not enough memory");
  } catch (const std::exception& error) {
    out.opened = internal_error("{}", error.what());
  }
  out.seconds = seconds_since(start);
  if (out.opened.ok()) {
    say(fmt::format("{}: loaded in {:.1f} s, with a context of {} tokens, in {:.0f} MiB",
                    entry.model.names.front(), out.seconds, out.opened->service->context(),
                    static_cast<double>(out.opened->service->memory_bytes()) / (1 << 20)));
  }
  return out;
}

void ModelHost::Impl::load(Entry& entry, Lock& lock) {
  if (entry.is_dead()) close(entry, lock);
  if (entry.is_loaded()) return settle(entry, lock);
  entry.presence = Presence::kLoading;
  const int most = options.max_loaded > 0 ? options.max_loaded : INT32_MAX;
  bool has_place = true;
  while (!stopping && loaded_count() >= most && has_place) has_place = make_room(entry, lock);
  if (!has_place) {
    entry.failure = resource_exhausted("{} models are in memory, and have to stay", most);
  }
  for (bool again = has_place; again && !stopping;) {
    // They may have gone while room was made for them.
    forget_gone(entry);
    if (entry.waiters.empty()) {
      entry.presence = Presence::kUnloaded;
      return;
    }
    const int64_t bytes =
        options.max_bytes > 0 ? std::max<int64_t>(1, options.max_bytes - taken()) : 0;
    lock.unlock();
    Attempt attempt = open(entry, bytes);
    Expected<OpenedService>& opened = attempt.opened;
    lock.lock();
    again = false;
    if (opened.ok()) {
      entry.owned = std::move(opened->service);
      entry.service = entry.owned.get();
      entry.api = std::move(attempt.api);
      entry.presence = Presence::kLoaded;
      entry.failure = {};
      entry.stays_until = steady_now() + std::chrono::duration_cast<SteadyTime::duration>(
                                             std::chrono::duration<double>(attempt.seconds));
      if (server.draining) entry.service->drain();
    } else if (opened.status().code() == StatusCode::kResourceExhausted) {
      entry.failure = opened.status();
      again = make_room(entry, lock);
    } else {
      entry.failure = opened.status();
    }
  }
  if (!entry.is_loaded()) {
    entry.presence = Presence::kUnloaded;
    entry.failed = steady_now();
    if (entry.failure.ok()) entry.failure = ending();
    say(fmt::format("{}: cannot be loaded: {}", entry.model.names.front(),
                    entry.failure.message()));
  }
  settle(entry, lock);
}

// Those who wait get it, or hear why not. The lock is released meanwhile.
void ModelHost::Impl::settle(Entry& entry, Lock& lock) {
  forget_gone(entry);
  std::deque<Waiter> waiters;
  waiters.swap(entry.waiters);
  waiting -= static_cast<int>(waiters.size());
  std::vector<Lease> leases;
  if (entry.is_loaded()) {
    for (size_t i = 0; i < waiters.size(); ++i) leases.push_back(lease(entry));
  }
  const Status failure = entry.failure;
  lock.unlock();
  changed.notify_all();
  for (size_t i = 0; i < waiters.size(); ++i) {
    try {
      if (leases.empty()) {
        waiters[i].then(failure);
      } else {
        waiters[i].then(std::move(leases[i]));
      }
    } catch (const std::exception& error) {
      say(fmt::format("a request was given up: {}", error.what()));
    }
    waiters[i] = {};
  }
  leases.clear();
  lock.lock();
}

// Ends one model for this one. False: there is none that may go.
bool ModelHost::Impl::make_room(const Entry& entry, Lock& lock) {
  for (;;) {
    Entry* oldest = nullptr;
    for (const auto& other : entries) {
      if (other.get() == &entry || !other->is_loaded() || other->model.stays ||
          other->api->rollout.is_in_use()) {
        continue;
      }
      const auto rank = [](const Entry& one) { return std::pair(one.leases > 0, one.used); };
      if (oldest == nullptr || rank(*other) < rank(*oldest)) oldest = other.get();
    }
    if (oldest == nullptr || stopping) return false;
    if (oldest->stays_until > steady_now()) {
      const SteadyTime until = oldest->stays_until;
      changed.wait_until(lock, until);
      continue;
    }
    close(*oldest, lock);
    return true;
  }
}

// Once nobody uses it. The lock is released meanwhile.
void ModelHost::Impl::close(Entry& entry, Lock& lock) {
  entry.presence = Presence::kUnloading;
  changed.wait(lock, [&] { return entry.leases == 0 || stopping; });
  if (stopping) return;
  std::unique_ptr<Service> owned = std::move(entry.owned);
  std::unique_ptr<ApiState> api = std::move(entry.api);
  // From here on nobody else calls it.
  entry.service = nullptr;
  entry.leaving_bytes = owned->memory_bytes();
  add_counters(owned->stats(), entry.before);
  lock.unlock();
  owned.reset();
  api.reset();
  say(fmt::format("{}: unloaded", entry.model.names.front()));
  lock.lock();
  entry.leaving_bytes = 0;
  entry.unload_asked = false;
  entry.presence = Presence::kUnloaded;
  changed.notify_all();
}

// The lock is released meanwhile.
void ModelHost::Impl::refuse_all(const Status& status, Lock& lock) {
  std::vector<Waiter> waiters;
  for (const auto& entry : entries) {
    for (Waiter& waiter : entry->waiters) waiters.push_back(std::move(waiter));
    entry->waiters.clear();
  }
  waiting -= static_cast<int>(waiters.size());
  lock.unlock();
  for (const Waiter& waiter : waiters) {
    if (!waiter.has_gone()) waiter.then(status);
  }
  lock.lock();
}

ModelHost::ModelHost(std::vector<ServedModel> models, ModelHostOptions options)
    : impl_(std::make_shared<Impl>(std::move(options))) {
  for (ServedModel& model : models) {
    impl_->entries.push_back(std::make_unique<Impl::Entry>(std::move(model), nullptr));
  }
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

ModelHost::ModelHost(Service& service, ApiOptions api)
    : impl_(std::make_shared<Impl>(ModelHostOptions{})) {
  ServedModel model;
  model.names = api.model_names;
  if (model.names.empty()) model.names = {service.model_name()};
  model.holdback = api.holdback;
  model.holdback_gates = api.holdback_gates;
  model.stays = true;
  auto entry = std::make_unique<Impl::Entry>(std::move(model), &service);
  entry->api = std::make_unique<ApiState>(service, std::move(api), entry->model.names,
                                          impl_->server, entry->record, nullptr);
  entry->presence = Presence::kLoaded;
  impl_->entries.push_back(std::move(entry));
}

ModelHost::~ModelHost() {
  {
    Impl::Lock lock(impl_->mutex);
    impl_->stopping = true;
    impl_->refuse_all(ending(), lock);
  }
  impl_->changed.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
  // What their requests hold goes with them.
  for (const auto& entry : impl_->entries) entry->owned.reset();
}

size_t ModelHost::count() const {
  return impl_->entries.size();
}

const std::vector<std::string>& ModelHost::names(size_t model) const {
  return impl_->entries[model]->model.names;
}

std::optional<size_t> ModelHost::find(std::string_view name) const {
  for (size_t i = 0; i < count(); ++i) {
    if (std::ranges::find(names(i), name) != names(i).end()) return i;
  }
  return std::nullopt;
}

ModelHost::Lease ModelHost::loaded(size_t model, bool counts) {
  const std::lock_guard lock(impl_->mutex);
  Impl::Entry& entry = *impl_->entries[model];
  const bool is_there = entry.is_loaded() && !entry.unload_asked && !entry.is_dead();
  return is_there ? impl_->lease(entry, counts) : nullptr;
}

void ModelHost::use(size_t model, std::shared_ptr<const std::atomic<bool>> gone, Then then) {
  if (Lease lease = loaded(model)) return then(std::move(lease));
  Impl& host = *impl_;
  Status refused;
  {
    const std::lock_guard lock(host.mutex);
    Impl::Entry& entry = *host.entries[model];
    if (host.stopping || host.server.draining) {
      refused = ending();
    } else if (!entry.failure.ok() && seconds_since(entry.failed) < kRetrySeconds) {
      refused = entry.failure;
    } else if (host.waiting >= host.options.max_waiting) {
      refused =
          resource_exhausted("{} requests wait for models already: try again later", host.waiting);
    } else {
      entry.waiters.push_back({std::move(gone), std::move(then), ++host.arrivals});
      ++host.waiting;
    }
  }
  if (!refused.ok()) return then(refused);
  host.changed.notify_all();
}

Status ModelHost::load(size_t model) {
  struct Outcome {
    std::mutex mutex;
    std::condition_variable known;
    std::optional<Status> status;
  };
  const auto outcome = std::make_shared<Outcome>();
  use(model, nullptr, [outcome](const Expected<Lease>& lease) {
    {
      const std::lock_guard lock(outcome->mutex);
      outcome->status = lease.ok() ? Status() : lease.status();
    }
    outcome->known.notify_one();
  });
  std::unique_lock lock(outcome->mutex);
  outcome->known.wait(lock, [&] { return outcome->status.has_value(); });
  return *outcome->status;
}

Status ModelHost::unload(size_t model) {
  {
    const std::lock_guard lock(impl_->mutex);
    Impl::Entry& entry = *impl_->entries[model];
    if (entry.model.stays) {
      return not_supported("{}: the server was started with it, to stay",
                           entry.model.names.front());
    }
    if (!entry.is_loaded()) return not_found("{}: it is not loaded", entry.model.names.front());
    entry.unload_asked = true;
  }
  impl_->changed.notify_all();
  return {};
}

ModelHost::Presence ModelHost::presence(size_t model) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->entries[model]->presence;
}

std::string ModelHost::failure(size_t model) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->entries[model]->failure.message();
}

std::string ModelHost::metrics_text() const {
  std::vector<Metrics::Figures> all;
  const std::lock_guard lock(impl_->mutex);
  for (const auto& entry : impl_->entries) {
    const bool is_there = entry->service != nullptr;
    ServiceStats stats = is_there ? entry->service->stats() : ServiceStats();
    add_counters(entry->before, stats);
    all.push_back({&entry->record.metrics, std::move(stats), entry->record.holdback.figures(),
                   is_there ? entry->api->rollout.state() : Rollout::State(), is_there});
  }
  return Metrics::text(all);
}

ServerState& ModelHost::server() {
  return impl_->server;
}

void ModelHost::drain() {
  Impl::Lock lock(impl_->mutex);
  impl_->server.draining = true;
  for (const auto& entry : impl_->entries) {
    if (entry->service != nullptr) entry->service->drain();
  }
  impl_->refuse_all(ending(), lock);
}

Status ModelHost::service_failure() const {
  const std::lock_guard lock(impl_->mutex);
  const Impl::Entry& entry = *impl_->entries.front();
  const bool is_only = impl_->entries.size() == 1 && entry.service != nullptr;
  return is_only ? entry.service->failure() : Status();
}

std::string_view presence_name(ModelHost::Presence presence) {
  switch (presence) {
    case ModelHost::Presence::kUnloaded:
      return "unloaded";
    case ModelHost::Presence::kLoading:
      return "loading";
    case ModelHost::Presence::kLoaded:
      return "loaded";
    case ModelHost::Presence::kUnloading:
      break;
  }
  return "unloading";
}

}  // namespace aerie::server
