// What the samples of a folder have in common: data.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "train/data/answer.h"

namespace aerie::train {

// A file of prompts, by what is in it: it may lie elsewhere the next time.
struct PromptFile {
  std::string name;  // without its folder
  int64_t bytes = 0;
  uint64_t checksum = 0;  // format/checksum.h

  bool operator==(const PromptFile&) const = default;
};
// kNotFound if it cannot be read.
Expected<PromptFile> prompt_file(const std::string& path);

// format/fingerprint.h: content_fingerprint() in hexadecimal; empty: unknown. Of a path, errors of
// opening it.
std::string model_fingerprint(const ModelFile& file);
Expected<std::string> model_fingerprint(const std::string& path);

struct DataInfo {
  std::string model;        // as the model calls itself, or its file's name
  std::string fingerprint;  // model_fingerprint()
  int vocab = 0;
  std::string chat;  // ConversationFormat::example(): "{prompt}" in the template; empty: none
  int context = 0;
  AnswerSettings settings;
  double held_out = 0.0;  // the fraction that validates
  // Prompts are numbered through these. More may follow later: that renumbers nothing.
  std::vector<PromptFile> prompts;
};

// What differs, for people: "seed 1 there, 2 now"; empty: nothing but that one has more files of
// prompts than the other.
std::string difference(const DataInfo& there, const DataInfo& now);

// One JSON object with a line break at its end.
std::string to_json(const DataInfo& info);
// kInvalidData, naming `name` and the key, for what cannot be.
Expected<DataInfo> parse_info(std::string_view json, const std::string& name);

// DIR/data.json. kNotFound if there is none.
Expected<DataInfo> read_info(const std::string& folder);

// Makes folder and data.json, or finds that the samples there are of the same kind: else
// kInvalidArgument, naming the difference.
Status claim_folder(const std::string& folder, const DataInfo& info);

}  // namespace aerie::train
