#include "train/data/info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "format/checksum.h"
#include "format/fingerprint.h"
#include "format/json.h"
#include "format/output_file.h"
#include "format/text.h"
#include "hub/locate.h"
#include "model/import/hugging_face_file.h"
#include "report/text_file.h"
#include "train/data/json_errors.h"

namespace aerie::train {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;

std::string info_path(const std::string& folder) {
  return (fs::path(folder) / "data.json").string();
}

Status broken(const JsonObject& object, const char* key, const char* what) {
  return object.error(StatusCode::kInvalidData, key, what);
}

Expected<int> positive(const JsonObject& object, const char* key) {
  AERIE_ASSIGN_OR_RETURN(const int64_t value, object.integer_in(key, 1, int64_t{1} << 30));
  return static_cast<int>(value);
}

Expected<uint64_t> hexadecimal(const JsonObject& object, const char* key) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view text, object.string(key));
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  if (const auto r = std::from_chars(text.data(), end, value, 16);
      r.ec != std::errc() || r.ptr != end) {
    return broken(object, key, "is no hexadecimal number of 64 bits");
  }
  return value;
}

Status parse_prompts(const JsonObject& object, DataInfo& info) {
  const Json* files = object.find("prompts");
  if (files == nullptr || !files->is_array()) return broken(object, "prompts", "is no list");
  for (const Json& file : *files) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject one, JsonObject::view(file, object.file()));
    PromptFile& out = info.prompts.emplace_back();
    AERIE_ASSIGN_OR_RETURN(out.name, one.string("name"));
    AERIE_ASSIGN_OR_RETURN(out.bytes, one.integer("bytes"));
    AERIE_ASSIGN_OR_RETURN(out.checksum, hexadecimal(one, "checksum"));
    AERIE_ASSIGN_OR_RETURN(out.plain, one.boolean("plain", false));
  }
  return {};
}

Expected<DataInfo> parse(std::string_view text, const std::string& name) {
  AERIE_ASSIGN_OR_RETURN(const Json json, parse_json(text, name));
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(json, name));
  AERIE_ASSIGN_OR_RETURN(const int64_t version, object.integer("aerie_training_data"));
  if (version != kVersion) {
    return object.error(StatusCode::kUnsupported, "aerie_training_data",
                        fmt::format("is {}; this program reads {}", version, kVersion));
  }
  DataInfo info;
  AERIE_ASSIGN_OR_RETURN(info.model, object.string("model"));
  AERIE_ASSIGN_OR_RETURN(info.fingerprint, object.string("model_fingerprint"));
  AERIE_ASSIGN_OR_RETURN(info.vocab, positive(object, "vocab"));
  AERIE_ASSIGN_OR_RETURN(info.chat, object.string("chat"));
  AERIE_ASSIGN_OR_RETURN(info.context, positive(object, "context"));
  AERIE_ASSIGN_OR_RETURN(info.settings.max_tokens, positive(object, "max_tokens"));
  AERIE_ASSIGN_OR_RETURN(info.settings.temperatures, object.numbers("temperatures"));
  AERIE_ASSIGN_OR_RETURN(info.settings.seed, object.unsigned_integer("seed"));
  AERIE_ASSIGN_OR_RETURN(info.held_out, object.number("held_out"));
  if (!(info.held_out >= 0.0 && info.held_out < 1.0)) {
    return broken(object, "held_out", "is not from 0 to below 1");
  }
  AERIE_RETURN_IF_ERROR(parse_prompts(object, info));
  return info;
}

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

std::string model_fingerprint(const ModelFile& file) {
  const std::optional<uint64_t> print = content_fingerprint(file);
  return print ? fmt::format("{:016x}", *print) : std::string();
}

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

std::string to_json(const DataInfo& info) {
  Json out;
  out["aerie_training_data"] = kVersion;
  out["model"] = info.model;
  out["model_fingerprint"] = info.fingerprint;
  out["vocab"] = info.vocab;
  out["chat"] = info.chat;
  out["context"] = info.context;
  out["max_tokens"] = info.settings.max_tokens;
  out["temperatures"] = info.settings.temperatures;
  out["seed"] = info.settings.seed;
  out["held_out"] = info.held_out;
  out["prompts"] = Json::array();
  for (const PromptFile& file : info.prompts) {
    Json& one = out["prompts"].emplace_back();
    one["name"] = file.name;
    one["bytes"] = file.bytes;
    one["checksum"] = fmt::format("{:016x}", file.checksum);
    if (file.plain) one["plain"] = true;
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Expected<DataInfo> parse_info(std::string_view text, const std::string& name) {
  auto info = parse(text, name);
  if (!info.ok()) return absent_is_broken(info.status());
  return info;
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
