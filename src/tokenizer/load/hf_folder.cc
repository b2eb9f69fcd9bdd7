#include "tokenizer/load/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "format/input_file.h"
#include "format/text.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// None if there is no such file.
Expected<std::optional<Json>> read_if_there(const std::string& path) {
  if (!exists(path)) return std::optional<Json>();
  AERIE_ASSIGN_OR_RETURN(Json json, read_json(path));
  return std::optional<Json>(std::move(json));
}

// "<s>" or {"content": "<s>", ...}.
Status read_name(const JsonObject& object, std::string_view key, std::optional<std::string>& out) {
  const Json* value = object.find(key);
  if (value == nullptr || out) return {};
  if (value->is_object()) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject token, object.object(key));
    AERIE_ASSIGN_OR_RETURN(const std::string_view content, token.string("content"));
    out = std::string(content);
    return {};
  }
  AERIE_ASSIGN_OR_RETURN(const std::string_view content, object.string(key));
  out = std::string(content);
  return {};
}

Status read_names(const JsonObject& object, HfSettings& settings) {
  AERIE_RETURN_IF_ERROR(read_name(object, "bos_token", settings.bos));
  AERIE_RETURN_IF_ERROR(read_name(object, "eos_token", settings.eos));
  AERIE_RETURN_IF_ERROR(read_name(object, "unk_token", settings.unk));
  return read_name(object, "pad_token", settings.pad);
}

Status read_flag(const JsonObject& object, std::string_view key, std::optional<bool>& out) {
  if (!object.has(key)) return {};
  AERIE_ASSIGN_OR_RETURN(out, object.boolean(key));
  return {};
}

// {"32000": {"content": "<|user|>", "special": true, ...}, ...}
Status read_added_decoder(const JsonObject& object, std::vector<AddedToken>& added) {
  if (!object.has("added_tokens_decoder")) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject decoder, object.object("added_tokens_decoder"));
  for (const auto& [key, value] : decoder.json().items()) {
    AddedToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0) {
      return decoder.error(StatusCode::kInvalidData, printable(key, 40), "is not a token id");
    }
    AERIE_ASSIGN_OR_RETURN(
        const JsonObject entry,
        JsonObject::view(value, fmt::format("{}: added_tokens_decoder.{}", object.file(), key)));
    AERIE_ASSIGN_OR_RETURN(const std::string_view content, entry.string("content"));
    token.content = content;
    AERIE_ASSIGN_OR_RETURN(token.special, entry.boolean("special", false));
    AERIE_ASSIGN_OR_RETURN(token.lstrip, entry.boolean("lstrip", false));
    AERIE_ASSIGN_OR_RETURN(token.rstrip, entry.boolean("rstrip", false));
    AERIE_ASSIGN_OR_RETURN(token.single_word, entry.boolean("single_word", false));
    AERIE_ASSIGN_OR_RETURN(token.normalized, entry.boolean("normalized", false));
    added.push_back(std::move(token));
  }
  return {};
}

Status read_tokenizer_config(const std::string& path, HfSettings& settings) {
  AERIE_ASSIGN_OR_RETURN(const auto json, read_if_there(path));
  if (!json) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(*json, path));
  AERIE_RETURN_IF_ERROR(read_names(object, settings));
  AERIE_ASSIGN_OR_RETURN(settings.tokenizer_class, object.string("tokenizer_class", ""));
  AERIE_RETURN_IF_ERROR(read_flag(object, "add_bos_token", settings.add_bos));
  AERIE_RETURN_IF_ERROR(read_flag(object, "add_eos_token", settings.add_eos));
  AERIE_RETURN_IF_ERROR(read_flag(object, "add_prefix_space", settings.add_prefix_space));
  AERIE_RETURN_IF_ERROR(read_flag(object, "legacy", settings.legacy));
  return read_added_decoder(object, settings.added);
}

Status read_special_map(const std::string& path, HfSettings& settings,
                        std::vector<std::string>& special) {
  AERIE_ASSIGN_OR_RETURN(const auto json, read_if_there(path));
  if (!json) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(*json, path));
  AERIE_RETURN_IF_ERROR(read_names(object, settings));
  const Json* more = object.find("additional_special_tokens");
  if (more == nullptr || !more->is_array()) return {};
  for (const Json& entry : *more) {
    if (entry.is_string()) special.push_back(entry.get<std::string>());
  }
  return {};
}

// The older form, {"<|user|>": 32000, ...}, where tokenizer_config.json does not list them.
Status read_added_tokens(const std::string& path, const std::vector<std::string>& special,
                         HfSettings& settings) {
  if (!settings.added.empty()) return {};
  AERIE_ASSIGN_OR_RETURN(const auto json, read_if_there(path));
  if (!json) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(*json, path));
  for (const auto& item : json->items()) {
    const std::string& name = item.key();
    const auto& id = item.value();
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= INT32_MAX) {
      return object.error(StatusCode::kInvalidData, printable(name, 40), "is not a token id");
    }
    AddedToken token;
    token.content = name;
    token.id = static_cast<int32_t>(id.get<int64_t>());
    const auto is = [&](const std::optional<std::string>& role) { return role && *role == name; };
    token.special = is(settings.bos) || is(settings.eos) || is(settings.unk) || is(settings.pad) ||
                    std::ranges::find(special, name) != special.end();
    settings.added.push_back(std::move(token));
  }
  return {};
}

// A number or a list of numbers.
Status read_ids(const std::string& path, HfSettings& settings) {
  AERIE_ASSIGN_OR_RETURN(const auto json, read_if_there(path));
  if (!json) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(*json, path));
  if (const Json* eos = object.find("eos_token_id"); eos != nullptr && eos->is_array()) {
    AERIE_ASSIGN_OR_RETURN(const auto ids, object.integers("eos_token_id"));
    settings.eos_ids.insert(settings.eos_ids.end(), ids.begin(), ids.end());
  } else if (eos != nullptr) {
    AERIE_ASSIGN_OR_RETURN(const int64_t id, object.integer("eos_token_id"));
    settings.eos_ids.push_back(id);
  }
  const Json* bos = object.find("bos_token_id");
  if (bos != nullptr && bos->is_number_integer() && !settings.bos_id) {
    AERIE_ASSIGN_OR_RETURN(settings.bos_id, object.integer("bos_token_id"));
  }
  return {};
}

Expected<std::unique_ptr<Tokenizer>> finished(Expected<PipelineParts> parts) {
  if (!parts.ok()) return parts.status();
  return std::unique_ptr<Tokenizer>(std::make_unique<PipelineTokenizer>(std::move(parts).value()));
}

// A tokenizer.json that GGUF has no form for is often the same as a tokenizer.model that it has.
void take_gguf_form(const std::string& model, const HfSettings& settings, PipelineParts& parts) {
  if (parts.gguf.ok() || !exists(model)) return;
  auto other = read_sentencepiece_model(model, settings);
  if (!other.ok() || !other->gguf.ok()) return;
  const GgufTokenizerMetadata& metadata = *other->gguf;
  if (static_cast<int32_t>(metadata.tokens.size()) != parts.vocabulary->size()) return;
  for (int32_t id = 0; id < parts.vocabulary->size(); ++id) {
    if (other->vocabulary->name(id) != parts.vocabulary->name(id)) return;
  }
  parts.gguf = std::move(other->gguf);
}

}  // namespace

Expected<HfSettings> read_hf_settings(const std::string& folder) {
  HfSettings settings;
  settings.folder = folder;
  std::vector<std::string> special;
  AERIE_RETURN_IF_ERROR(read_tokenizer_config(folder + "/tokenizer_config.json", settings));
  AERIE_RETURN_IF_ERROR(read_special_map(folder + "/special_tokens_map.json", settings, special));
  AERIE_RETURN_IF_ERROR(read_added_tokens(folder + "/added_tokens.json", special, settings));
  AERIE_RETURN_IF_ERROR(read_ids(folder + "/generation_config.json", settings));
  AERIE_RETURN_IF_ERROR(read_ids(folder + "/config.json", settings));
  return settings;
}

TokenRoles hf_roles(const HfSettings& settings,
                    const std::function<int32_t(std::string_view)>& find, int64_t size) {
  TokenRoles roles;
  const auto by_name = [&](const std::optional<std::string>& name, std::optional<int64_t>& out) {
    const int32_t id = name ? find(*name) : -1;
    if (id >= 0) out = id;
  };
  by_name(settings.bos, roles.bos);
  by_name(settings.eos, roles.eos);
  by_name(settings.unk, roles.unk);
  by_name(settings.pad, roles.pad);
  for (const int64_t id : settings.eos_ids) {
    if (id < 0 || id >= size) continue;
    roles.ends.push_back(id);
    if (!roles.eos) roles.eos = id;
  }
  if (!roles.bos && settings.bos_id && *settings.bos_id >= 0 && *settings.bos_id < size) {
    roles.bos = settings.bos_id;
  }
  return roles;
}

VocabularyKeys hf_keys(const std::string& file) {
  return {file + ": the vocabulary", file + ": the type", file + ": ", "_token"};
}

Status TokenList::set(int64_t id, std::string_view name, TokenType type, const std::string& what) {
  // Models pad their vocabularies, but not without measure; a hostile id must not cost memory.
  const size_t most = expected_ * 8 + 65536;
  if (id < 0 || static_cast<size_t>(id) >= most) {
    return invalid_data("{}: '{}' has id {}, far beyond the number of tokens", what,
                        printable(name, 40), id);
  }
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  Token& token = tokens_[index];
  if (token.present && token.name != name) {
    return invalid_data("{}: '{}' and '{}' have the same id, {}", what, printable(token.name, 40),
                        printable(name, 40), id);
  }
  token.name = name;
  token.type = type;
  token.present = true;
  return {};
}

Expected<std::unique_ptr<Tokenizer>> Tokenizer::from_folder(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const HfSettings settings, read_hf_settings(path));
  const std::string json = path + "/tokenizer.json", model = path + "/tokenizer.model";
  const std::string vocab = path + "/vocab.json", merges = path + "/merges.txt";
  if (exists(json)) {
    AERIE_ASSIGN_OR_RETURN(PipelineParts parts, read_tokenizer_json(json, settings));
    take_gguf_form(model, settings, parts);
    return finished(std::move(parts));
  }
  if (exists(model)) return finished(read_sentencepiece_model(model, settings));
  if (exists(vocab) && exists(merges)) {
    return finished(read_vocab_and_merges(vocab, merges, settings));
  }
  return not_found(
      "{}: there is no tokenizer here: no tokenizer.json, no tokenizer.model, and not both "
      "vocab.json and merges.txt",
      path);
}

namespace {

// A template, or of several named ones the one called "default".
Expected<std::string> template_in(const JsonObject& object) {
  const Json* value = object.find("chat_template");
  if (value == nullptr || !value->is_array()) {
    AERIE_ASSIGN_OR_RETURN(const std::string_view text, object.string("chat_template"));
    return std::string(text);
  }
  for (const Json& entry : *value) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject named,
                           JsonObject::view(entry, object.file() + ": chat_template"));
    AERIE_ASSIGN_OR_RETURN(const std::string_view name, named.string("name"));
    if (name != "default") continue;
    AERIE_ASSIGN_OR_RETURN(const std::string_view text, named.string("template"));
    return std::string(text);
  }
  return object.error(StatusCode::kNotFound, "chat_template", "has none called 'default'");
}

}  // namespace

Expected<std::string> chat_template_of_folder(const std::string& path) {
  const std::string jinja = path + "/chat_template.jinja";
  if (exists(jinja)) {
    return read_file(jinja);
  }
  for (const char* name : {"/chat_template.json", "/tokenizer_config.json"}) {
    AERIE_ASSIGN_OR_RETURN(const auto json, read_if_there(path + name));
    if (!json) continue;
    AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(*json, path + name));
    if (object.has("chat_template")) return template_in(object);
  }
  return not_found("{}: there is no chat template here", path);
}

Expected<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view bytes,
                                                         const std::string& name,
                                                         const HfSettings& settings) {
  AERIE_ASSIGN_OR_RETURN(const Json json, parse_json(bytes, name));
  return finished(parse_tokenizer_json(json, name, settings));
}

Expected<std::unique_ptr<Tokenizer>> tokenizer_from_sentencepiece(std::string_view bytes,
                                                                  const std::string& name,
                                                                  const HfSettings& settings) {
  return finished(parse_sentencepiece_model(bytes, name, settings));
}

}  // namespace aerie
