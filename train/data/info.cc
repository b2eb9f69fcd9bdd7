#include "train/data/info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "format/checksum.h"
#include "format/output_file.h"
#include "format/text.h"
#include "hub/locate.h"
#include "model/import/hugging_face_file.h"
#include "report/text_file.h"

namespace aerie::train {
namespace {

namespace fs = std::filesystem;

std::string describe(const PromptFile& file) {
  return fmt::format("{} of {} bytes with checksum {:016x}{}", file.name, file.bytes, file.checksum,
                     file.plain ? ", plain" : "");
}

// The longer list may go on where the shorter one ends.
std::string difference(const std::vector<PromptFile>& there, const std::vector<PromptFile>& now) {
  for (size_t i = 0; i < std::min(there.size(), now.size()); ++i) {
    if (there[i] == now[i]) continue;
    return fmt::format("file {} of --prompts is {} there, {} now", i + 1, describe(there[i]),
                       describe(now[i]));
  }
  return {};
}

Status write_info(const std::string& folder, const DataInfo& info) {
  return write_file(info_path(folder), to_json(info));
}

}  // namespace

Expected<std::string> model_fingerprint(const std::string& name) {
  AERIE_ASSIGN_OR_RETURN(const std::string path, locate_model(name));
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFile> file, open_model_file(path));
  return model_fingerprint(*file);
}

Expected<PromptFile> prompt_file(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "--prompts"));
  PromptFile file;
  file.name = printable(fs::path(path).filename().string());
  file.bytes = static_cast<int64_t>(text.size());
  file.checksum = checksum(std::as_bytes(std::span(text)));
  return file;
}

std::string difference(const DataInfo& there, const DataInfo& now) {
  const auto say = [](const char* what, const auto& a, const auto& b) {
    return fmt::format("{} {} there, {} now", what, a, b);
  };
  const auto shown = [](const std::string& text) {
    return text.empty() ? std::string("none") : printable(text, 300);
  };
  if (there.model != now.model) return say("model", shown(there.model), shown(now.model));
  if (there.fingerprint != now.fingerprint) {
    return say("model fingerprint", shown(there.fingerprint), shown(now.fingerprint));
  }
  if (there.served != now.served) {
    const auto whose = [](const DataInfo& info) {
      return info.served ? "a server's replies" : "answers to --prompts";
    };
    return say("samples", whose(there), whose(now));
  }
  if (there.vocab != now.vocab) return say("vocabulary", there.vocab, now.vocab);
  if (there.chat != now.chat) return say("chat template", shown(there.chat), shown(now.chat));
  if (there.context != now.context) return say("--context", there.context, now.context);
  const AnswerSettings& a = there.settings;
  const AnswerSettings& b = now.settings;
  if (a.max_tokens != b.max_tokens) return say("--max-tokens", a.max_tokens, b.max_tokens);
  if (a.temperatures != b.temperatures) {
    return say("--temperature", fmt::format("{}", fmt::join(a.temperatures, ",")),
               fmt::format("{}", fmt::join(b.temperatures, ",")));
  }
  if (a.seed != b.seed) return say("--seed", a.seed, b.seed);
  if (there.held_out != now.held_out) return say("--held-out", there.held_out, now.held_out);
  return difference(there.prompts, now.prompts);
}

Expected<DataInfo> read_info(const std::string& folder) {
  const std::string path = info_path(folder);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return Status(StatusCode::kNotFound,
                  path + ": there is no such file; `aerie train data --out` makes the folder");
  }
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "--data"));
  return parse_info(text, path);
}

Status claim_folder(const std::string& folder, const DataInfo& info) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--out {}: the folder cannot be made: {}", folder, error.message())};
  }
  const auto there = read_info(folder);
  if (!there.ok()) {
    return there.status().code() == StatusCode::kNotFound ? write_info(folder, info)
                                                          : there.status();
  }
  if (const std::string other = difference(*there, info); !other.empty()) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--out {}: its samples were made otherwise: {}; give the same settings or "
                        "another folder",
                        folder, other)};
  }
  return info.prompts.size() > there->prompts.size() ? write_info(folder, info) : Status();
}

}  // namespace aerie::train
