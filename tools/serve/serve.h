// `aerie serve`: a model behind OpenAI's API (docs/serving.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/recording/recording_service.h"
#include "engine/service.h"
#include "server/server.h"
#include "tools/serve/key_source.h"

namespace CLI {
class App;
}

namespace aerie {

// Where there are several models.
struct ModelSetOptions {
  std::string list;       // a JSON file with what is served under which name
  std::string folder;     // of GGUF files and models' folders, each under its name
  int max_loaded = 0;     // 0: as many as memory has room for
  double memory_mib = 0;  // of all that are loaded; 0: what is free
};

struct ServeOptions {
  // More than one, each as for a server of its own, of which but the model, its service and API
  // nothing counts. The one that is served else is that of `engine`.
  std::vector<ServeOptions> models;
  ModelSetOptions set;
  EngineOptions engine;
  ServiceOptions service;
  RecordingOptions recording;
  std::string record_folder;     // empty: nothing is recorded
  int record_mib = 256;          // of all records in it
  std::string learn_folder;      // empty: nothing is kept to learn from
  int learn_mib = 2048;          // of all that is kept in it
  server::ServerOptions server;  // but for GateOptions::log
  KeySource keys;                // server.gate.keys are what it held at first
  double drain_seconds = 30.0;
  bool log_requests = true;
  std::string audit_log;       // a file; empty: none
  SuggestedSampling sampling;  // of requests that say nothing, before what the makers recommend
  bool use_suggested = true;   // requests that say nothing are sampled as the makers recommend
  bool hash_key = false;       // print the hash of a key, and nothing else
};

// Adds the flags to `app`; the returned function turns what was parsed into options and says what
// contradicts itself. It must not outlive `app`.
std::function<Expected<ServeOptions>()> add_serve_options(CLI::App& app);

// Likewise; the returned function runs it, with the exit status. It must not outlive
// `app`.
std::function<Expected<int>()> add_serve_flags(CLI::App& app);

// Until a signal ends it. The exit status.
Expected<int> serve(ServeOptions options);

}  // namespace aerie
