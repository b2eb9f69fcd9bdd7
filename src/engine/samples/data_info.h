// What the samples of a folder have in common: data.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"

namespace aerie {

// What samples depend on, beside the target and the prompts. How many are made at a time, by how
// many threads and in which order makes no difference.
struct AnswerSettings {
  int max_tokens = 256;                      // of a reply
  std::vector<double> temperatures = {0.0};  // dealt out: sample i of prompt p gets number p + i
  uint64_t seed = 0;
};

// A file of prompts, by what is in it: it may lie elsewhere the next time.
struct PromptFile {
  std::string name;  // without its folder
  int64_t bytes = 0;
  uint64_t checksum = 0;  // format/checksum.h
  bool plain = false;     // `prompt`s are texts to go on with, without the template

  bool operator==(const PromptFile&) const = default;
};

struct DataInfo {
  std::string model;        // as the model calls itself, or its file's name
  std::string fingerprint;  // model_fingerprint()
  int vocab = 0;
  std::string chat;  // ConversationFormat::example(): "{prompt}" in the template; empty: none
  int context = 0;
  AnswerSettings settings;
  double held_out = 0.0;  // the fraction that validates
  // Each sample has settings of its own, as a server's requests had them; `settings` says nothing
  // then, and `prompts` names no files.
  bool served = false;
  // Prompts are numbered through these. More may follow later: that renumbers nothing.
  std::vector<PromptFile> prompts;
};

// Of DataInfo::fingerprint: format/fingerprint.h's content_fingerprint() in hexadecimal; empty:
// unknown.
std::string model_fingerprint(const ModelFile& file);

// One JSON object with a line break at its end.
std::string to_json(const DataInfo& info);
// kInvalidData, naming `name` and the key, for what cannot be.
Expected<DataInfo> parse_info(std::string_view json, const std::string& name);

// DIR/data.json.
std::string info_path(const std::string& folder);

}  // namespace aerie
