// `aerie bench serve`: a server under load, at several numbers of clients and with several
// speculation settings.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/load/made/made_prompts.h"
#include "measure/load/serve_load.h"
#include "measure/load/serve_summary.h"
#include "measure/report_head.h"
#include "measure/statistics.h"
#include "report/prompt_set.h"

namespace aerie::measure {

// What requests say about speculation.
struct ServeSetting {
  std::string name;    // "off", "ngram", "ngram@5"; of what the server does by itself: "default"
  Json value;          // of the request's key `speculation`; null: it is not sent
  std::string method;  // without its depth
  int depth = 0;       // 0: as the server has it
};

// From "NAME" or "NAME@DEPTH". kInvalidArgument for an empty name and a depth outside 1 to 64.
Expected<ServeSetting> parse_serve_setting(const std::string& text);
// Every method at every depth, "off" before them. kInvalidArgument as above.
Expected<std::vector<ServeSetting>> sweep_settings(const std::vector<std::string>& methods,
                                                   const std::vector<int>& depths);

struct ServeOptions {
  ServeTarget target;
  std::vector<std::string> datasets;  // files, or names of sets on the hub
  PromptSelection selection;
  // Made in place of those read: of kSonnet, `datasets` is the file of lines.
  enum class Made { kNone, kRandom, kSonnet } made = Made::kNone;
  RandomPrompts random;
  SonnetPrompts sonnet;
  // Requests of a run, the prompts over again if they are fewer; 0: each once, or kMadePrompts.
  int num_prompts = 0;
  std::vector<int> concurrency = {1};
  double rate = std::numeric_limits<double>::infinity();
  std::vector<ServeSetting> settings = {{"default", nullptr, "default", 0}};
  int rounds = 1;      // of all settings, which take turns within each
  bool sweep = false;  // settings are methods at depths, to find the best of
  std::function<void(const std::string&)> note;  // says how far it is; may be null
};

struct ServeRun {
  int concurrency = 1;
  size_t setting = 0;
  ServeFigures figures;  // over all rounds
  // To the first setting, paired by round: output tokens/s, and the first one's time per output
  // token by this one's. Of the first setting itself, and where rounds failed: 0.
  PairedRatio throughput, pace;
  int compared = 0, differing = 0;  // texts, with those of the first setting
};

struct ServeReport {
  std::string url, model, date;
  bool chat = true;
  std::vector<std::string> datasets;
  int num_prompts = 0, max_tokens = 0, rounds = 1;
  double temperature = 0, rate = 0;
  uint64_t seed = 0;
  bool warmed = false;  // all prompts were sent once before
  bool sweep = false, interrupted = false;
  std::vector<ServeSetting> settings;
  std::vector<ServeRun> runs;  // by clients, then by setting
};

// The run of `method` with the most output tokens/s at so many clients; nullptr if there is none
// that completed anything.
const ServeRun* best_depth(const ServeReport& report, const std::string& method, int concurrency);

// The methods that the server offers (`aerie.speculations` of its model), without those that are
// plain decoding. kNotFound if it does not say.
Expected<std::vector<std::string>> offered_methods(const ServeTarget& target);

// One request with each setting comes before all, and if several runs share the prompts, each
// prompt once, so that what the server caches helps all runs alike.
//
// Single requests that fail are figures. Errors: those of read_prompts() and of making prompts;
// kInvalidArgument for options that cannot be; kNotFound if nothing answers, and the error of the
// first request with a setting if there is one.
Expected<ServeReport> bench_serve(const ServeOptions& options);

}  // namespace aerie::measure
