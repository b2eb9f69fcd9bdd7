// What was asked of a model and what came of it, as a line of JSON: for asking again later. A key
// of the line has the name of its field here unless docs/audit.md says otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace aerie {

// How the model was opened.
struct RecordedEngine {
  std::string model;        // the path as it was given
  std::string fingerprint;  // content_fingerprint() in hexadecimal; empty: unknown
  std::optional<DType> weight_type;
  kernels::KvType cache_type = kernels::KvType::kF16;
  kernels::Isa isa = kernels::Isa::kReference;
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
  // What came.
  std::vector<int32_t> tokens;
  std::string text;
  FinishReason finish = FinishReason::kNone;  // kNone: it was interrupted
};

// Of an engine as it answers requests that pick no speculation of their own. Reads some bytes of
// every tensor: once is enough.
RecordedEngine recorded_engine(const Engine& engine);

// `prompt_text` is what request.prompt was made of.
Record make_record(const RecordedEngine& engine, const Request& request,
                   const std::string& prompt_text, const Generation& generation);

// One line without its end. Bytes of a path or a stop string that are not UTF-8 become U+FFFD.
std::string to_line(const Record& record);

// The reverse. kInvalidData, starting with `where` and naming the key, for what cannot be;
// kUnsupported for a line of another version. Sampling settings are left for validate() to judge.
Expected<Record> parse_record(std::string_view line, const std::string& where);

}  // namespace aerie
