// What was asked of a model and what came of it, as a line of JSON: for asking again later. A key
// of the line has the name of its field here unless docs/audit.md says otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aerie/grammar.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/opened_model.h"

namespace aerie {

// How the model was opened.
struct RecordedEngine {
  std::string model;        // the path as it was given
  std::string fingerprint;  // content_fingerprint() in hexadecimal; empty: unknown
  std::optional<DType> weight_type;
  kernels::KvType cache_type = kernels::KvType::kF16;
  kernels::Isa isa = kernels::Isa::kReference;
  std::string device = "cpu";  // EngineOptions::device
  int device_layers = 0;       // of a model that was divided, the device's; else 0
  int context = 0;
  int threads = 0;
  std::string speculate = "none";  // the short form of --speculate
  VerifyRule rule = VerifyRule::kExact;
};

struct Record {
  RecordedEngine engine;
  // What was asked.
  std::vector<int32_t> prompt;
  std::optional<std::string> prompt_text;  // as rendered; none if it is not UTF-8
  SamplingParams sampling;                 // but for logprobs, which change nothing
  int max_tokens = 0;                      // as Request has it
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::optional<GrammarSpec> grammar;
  // What came.
  std::vector<int32_t> tokens;
  std::optional<std::string> text;  // none: it was not kept
  // kNone: it was interrupted, or what its grammar asked for came to a limit, which depends on what
  // else went on.
  FinishReason finish = FinishReason::kNone;
  int64_t time = 0;  // when it ended, in seconds since 1970; 0: not known
};

// Of an engine as it answers requests that pick no speculation of their own. Reads some bytes of
// every tensor: once is enough.
RecordedEngine recorded_engine(const OpenedModel& opened);

// What was asked, under `engine` but for its speculation, where the request is for none.
Record make_record(const RecordedEngine& engine, const Request& request);

// All of it, for a reply that ends now. `prompt_text` is what request.prompt was made of.
Record make_record(const RecordedEngine& engine, const Request& request,
                   const std::string& prompt_text, const Generation& generation);

// As Record::finish has it.
FinishReason recorded_finish(FinishReason finish);

// One line without its end. Bytes of a path, a stop string or a grammar that are not UTF-8 become
// U+FFFD.
std::string to_line(const Record& record);

// The reverse. kInvalidData, starting with `where` and naming the key, for what cannot be;
// kUnsupported for a line of another version. Sampling settings are left for validate() to judge.
Expected<Record> parse_record(std::string_view line, const std::string& where);

}  // namespace aerie
