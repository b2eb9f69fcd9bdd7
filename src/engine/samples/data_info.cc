#include "engine/samples/data_info.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/samples/json_errors.h"
#include "format/fingerprint.h"
#include "format/json.h"

namespace aerie {
namespace {

constexpr int kVersion = 1;

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
  AERIE_ASSIGN_OR_RETURN(info.served, object.boolean("served", false));
  AERIE_RETURN_IF_ERROR(parse_prompts(object, info));
  return info;
}

}  // namespace

std::string info_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "data.json").string();
}

std::string model_fingerprint(const ModelFile& file) {
  const std::optional<uint64_t> print = content_fingerprint(file);
  return print ? fmt::format("{:016x}", *print) : std::string();
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
  if (info.served) out["served"] = true;
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

}  // namespace aerie
