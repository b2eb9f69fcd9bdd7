#include "tools/serve/serve.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/standard_streams.h"
#include "base/turns.h"
#include "engine/opened_model.h"
#include "engine/rank_setup.h"
#include "server/access/audit_log.h"
#include "server/access/line_log.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace aerie {
namespace {

using Clock = std::chrono::steady_clock;

// Signals to end that have come.
std::atomic<int> signals{0};

// Signals to read again what files say.
std::atomic<bool> hang_up{false};

// The first two are counted, then they have their usual effect: nothing can keep the program.
void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int number) {
    if (signals.fetch_add(1) >= 1) signal(number, SIG_DFL);
  };
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

// Where there is nothing to look for anew, a terminal that closes ends the server as it ends other
// programs; without a terminal it is a service that somebody wants reloaded.
void catch_hang_up(const ServeOptions& options) {
  const bool has_files = !options.keys.files.empty() || !options.audit_log.empty();
  if (!has_files && isatty(STDIN_FILENO) == 1) return;
  struct sigaction action = {};
  action.sa_handler = [](int) { hang_up.store(true); };
  sigemptyset(&action.sa_mask);
  sigaction(SIGHUP, &action, nullptr);
}

// Not by the C library: the end of a program waits for its locks.
void to_standard_error(const std::string& line) {
  (void)write_all(STDERR_FILENO, line);
}

// Every connection is one.
void raise_file_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// What a request of a stranger took in large blocks goes back to the system with it. By default the
// library keeps blocks of up to 32 MiB, once one was freed, in each thread's own heap.
void return_large_blocks() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 2 << 20);
#endif
}

// The keys of before stay where the new ones cannot be used.
void take_keys(KeySource& source, server::Server& server, server::LineLog& log) {
  auto keys = source.read();
  if (!keys.ok()) {
    return log.message(
        fmt::format("error: the keys stay as they were: {}", keys.status().message()));
  }
  log.message(fmt::format("{} keys were read again", keys->size()));
  server.set_keys(std::move(*keys));
}

// What a signal tells to look for anew.
struct Files {
  KeySource& keys;
  server::AuditLog* audit = nullptr;  // null: there is none
};

// Until a signal to end, or a failure of the only service.
void watch(const Files& files, server::Server& server, server::LineLog& log) {
  while (signals.load() == 0 && server.models().service_failure().ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const bool asked = hang_up.exchange(false);
    if (asked && files.audit != nullptr) files.audit->reopen();
    if (!files.keys.files.empty() && (asked || files.keys.has_changed(steady_now()))) {
      take_keys(files.keys, server, log);
    }
  }
}

// The audit log, if one is wanted; requests go to it, and to the log, if that is wanted.
Expected<std::unique_ptr<server::AuditLog>> open_logs(ServeOptions& options,
                                                      const std::shared_ptr<server::LineLog>& log) {
  std::unique_ptr<server::AuditLog> audit;
  if (!options.audit_log.empty()) {
    // A write of the audit log that hangs may fail when all this has ended.
    const auto warn = [to = std::weak_ptr(log)](const std::string& message) {
      if (const auto there = to.lock(); there != nullptr) there->message(message);
    };
    AERIE_ASSIGN_OR_RETURN(
        audit, in_context(server::AuditLog::open(options.audit_log, warn), "--audit-log"));
    options.server.more_metrics = [to = audit.get()] { return to->metrics(); };
  }
  if (audit == nullptr && !options.log_requests) return audit;
  options.server.gate.log = [&log = *log, shown = options.log_requests,
                             to = audit.get()](const Json& event) {
    if (shown) log.event(event);
    if (to != nullptr) to->add(event);
  };
  return audit;
}

// Whether all that was taken has been answered.
bool wait_for_requests(const server::Server& server, double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  while (server.busy() > 0) {
    if (signals.load() > 1 || Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

Expected<int> print_hash() {
  std::string key;
  std::getline(std::cin, key);
  if (!key.empty() && key.back() == '\r') key.pop_back();
  AERIE_RETURN_IF_ERROR(server::ApiKeys().add(key));
  print_output(fmt::format("sha256:{}\n", server::hash_key(key)));
  return 0;
}

// What `asked` says, in place of what was there.
void put_over(const SuggestedSampling& asked, SuggestedSampling& sampling) {
  const auto put = [](const auto& value, auto& out) {
    if (value) out = value;
  };
  put(asked.temperature, sampling.temperature);
  put(asked.top_k, sampling.top_k);
  put(asked.top_p, sampling.top_p);
  put(asked.min_p, sampling.min_p);
  put(asked.repetition_penalty, sampling.repetition_penalty);
}

// What --learn says. Before the model is loaded, so that a wrong path is no surprise later.
Status open_learning(const ServeOptions& options, server::LineLog& log, LearnOptions& out) {
  if (options.learn_folder.empty()) return {};
  AERIE_ASSIGN_OR_RETURN(
      LearnStore store,
      in_context(LearnStore::open(options.learn_folder, int64_t{options.learn_mib} << 20),
                 "--learn"));
  out.store = std::make_shared<LearnStore>(std::move(store));
  out.warn = [&log](const std::string& message) { log.message(message); };
  return {};
}

Expected<std::unique_ptr<Service>> open_recorded(const ServeOptions& options,
                                                 server::LineLog& log) {
  ServiceOptions service = options.service;
  AERIE_RETURN_IF_ERROR(open_learning(options, log, service.learn));
  if (options.record_folder.empty()) return open_service(options.engine, service);
  // Likewise.
  AERIE_ASSIGN_OR_RETURN(
      RecordFolder folder,
      in_context(RecordFolder::open(options.record_folder, int64_t{options.record_mib} << 20),
                 "--record"));
  RecordingOptions recording = options.recording;
  recording.seed = std::random_device()();
  recording.writer.warn = [&log](const std::string& message) { log.message(message); };
  return open_recording_service(options.engine, service, recording, std::move(folder));
}

Expected<server::OpenedService> open(const ServeOptions& options, server::LineLog& log) {
  server::OpenedService out;
  AERIE_ASSIGN_OR_RETURN(out.service, open_recorded(options, log));
  out.api = options.server.api;
  if (options.use_suggested) {
    AERIE_ASSIGN_OR_RETURN(out.api.sampling, out.service->suggested_sampling());
  }
  if (!out.api.sampling.empty()) {
    log.message(
        fmt::format("sampling as the model's makers recommend: {}", to_string(out.api.sampling)));
  }
  put_over(options.sampling, out.api.sampling);
  return out;
}

server::ServedModel served(const ServeOptions& options, server::LineLog& log) {
  server::ServedModel model;
  model.names = options.server.api.model_names;
  if (model.names.empty()) model.names = {model_name(options.engine.model)};
  model.holdback = options.server.api.holdback;
  model.holdback_gates = options.server.api.holdback_gates;
  model.open = [options, &log](int64_t bytes) {
    ServeOptions now = options;
    now.engine.memory_bytes = bytes;
    return open(now, log);
  };
  return model;
}

// How many models are thought of when one's cache is given its part of the memory.
int expected_at_once(const ServeOptions& options) {
  constexpr int kFew = 4;
  if (options.set.max_loaded > 0) return options.set.max_loaded;
  return std::min(static_cast<int>(options.models.size()), kFew);
}

std::string what_is_served(server::ModelHost& models) {
  if (models.count() > 1) {
    return fmt::format("{} models, of which {} is loaded", models.count(), models.names(0).front());
  }
  const server::ModelHost::Lease model = models.loaded(0);
  if (model == nullptr) return models.names(0).front();  // it has failed already
  const std::string device = model->service.device();
  return fmt::format("{}, a context of {} tokens{}", model->service.model_name(),
                     model->service.context(), device == "cpu" ? "" : ", computed by " + device);
}

// Tokens of a round's draft, as the largest trees of trained heads have them.
constexpr int kDraftRoom = 64;

std::unique_ptr<server::ModelHost> make_host(ServeOptions& options, server::LineLog& log) {
  std::vector<server::ServedModel> models;
  server::ModelHostOptions host;
  host.log = [&log](const std::string& line) { log.message(line); };
  // For settings that an admin tries.
  const int draft_room = options.server.gate.admin_keys.empty() ? 0 : kDraftRoom;
  options.engine.draft_room = draft_room;
  if (options.models.empty()) {
    models.push_back(served(options, log));
    models.front().stays = true;
  } else {
    host.max_loaded = options.set.max_loaded;
    host.max_bytes = static_cast<int64_t>(options.set.memory_mib * (1 << 20));
    const auto turns = std::make_shared<Turns>();
    for (ServeOptions& model : options.models) {
      model.engine.turns = turns;
      model.engine.draft_room = draft_room;
      model.engine.cache_share /= expected_at_once(options);
      models.push_back(served(model, log));
    }
  }
  return std::make_unique<server::ModelHost>(std::move(models), std::move(host));
}

}  // namespace

Expected<int> serve(ServeOptions options) {
  if (options.hash_key) return print_hash();
  AERIE_ASSIGN_OR_RETURN(
      const bool followed,
      join_ranks(options.engine.tensor_parallel, options.engine.model, options.engine.group));
  if (followed) return 0;
  raise_file_limit();
  return_large_blocks();
  catch_signals();
  catch_hang_up(options);
  const auto shared_log = std::make_shared<server::LineLog>(to_standard_error);
  server::LineLog& log = *shared_log;
  // Before the models, whose last requests are written down with them.
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<server::AuditLog> audit,
                         open_logs(options, shared_log));
  auto host = make_host(options, log);
  // What is wrong with it should be known now, and nobody wait for it later.
  AERIE_RETURN_IF_ERROR(host->load(0));
  AERIE_ASSIGN_OR_RETURN(auto server,
                         server::Server::start(std::move(host), std::move(options.server)));
  // The space after the address is for those who look for it in the line.
  log.message(
      fmt::format("listening on {} with {}", server->url(), what_is_served(server->models())));
  watch({options.keys, audit.get()}, *server, log);
  server->drain();
  log.message(
      fmt::format("ending: {} requests have {} s left", server->busy(), options.drain_seconds));
  const bool whole = wait_for_requests(*server, options.drain_seconds);
  const int left = server->busy();
  const Status failure = server->models().service_failure();
  server.reset();
  log.message(whole ? "ended" : fmt::format("ended, with {} requests unfinished", left));
  AERIE_RETURN_IF_ERROR(failure);
  return whole ? 0 : 1;
}

}  // namespace aerie
