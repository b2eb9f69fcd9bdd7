#include "report/command_words.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/json.h"

namespace aerie {
namespace {

Json json_of(const OptionWords& option) {
  return {{"names", option.names},
          {"positional", option.positional},
          {"takes_value", option.takes_value},
          {"value", option.value},
          {"choices", option.choices},
          {"default", option.fallback},
          {"what", option.what},
          {"group", option.group}};
}

Json json_of(const CommandWords& command) {
  Json out = {{"name", command.name()},
              {"what", command.what},
              {"options", Json::array()},
              {"commands", Json::array()}};
  for (const OptionWords& option : command.options) out["options"].push_back(json_of(option));
  for (const CommandWords& one : command.commands) out["commands"].push_back(json_of(one));
  return out;
}

Expected<std::string> text_at(const JsonObject& object, std::string_view key) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view text, object.string(key));
  return std::string(text);
}

Expected<std::vector<std::string>> texts_at(const JsonObject& object, std::string_view key) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, object.strings(key));
  return std::vector<std::string>(texts.begin(), texts.end());
}

Expected<std::vector<JsonObject>> objects_at(const JsonObject& object, std::string_view key) {
  const Json* const list = object.find(key);
  if (list == nullptr || !list->is_array()) {
    return object.error(StatusCode::kInvalidData, key, "is no list");
  }
  std::vector<JsonObject> out;
  for (const Json& one : *list) {
    AERIE_ASSIGN_OR_RETURN(JsonObject view, JsonObject::view(one, object.file()));
    out.push_back(std::move(view));
  }
  return out;
}

Expected<OptionWords> read_option(const JsonObject& object) {
  OptionWords option;
  AERIE_ASSIGN_OR_RETURN(option.names, texts_at(object, "names"));
  if (option.names.empty()) return object.error(StatusCode::kInvalidData, "names", "is empty");
  AERIE_ASSIGN_OR_RETURN(option.positional, object.boolean("positional"));
  AERIE_ASSIGN_OR_RETURN(option.takes_value, object.boolean("takes_value"));
  AERIE_ASSIGN_OR_RETURN(option.value, text_at(object, "value"));
  AERIE_ASSIGN_OR_RETURN(option.choices, texts_at(object, "choices"));
  AERIE_ASSIGN_OR_RETURN(option.fallback, text_at(object, "default"));
  AERIE_ASSIGN_OR_RETURN(option.what, text_at(object, "what"));
  AERIE_ASSIGN_OR_RETURN(option.group, text_at(object, "group"));
  return option;
}

// parse_json() limits the depth.
Expected<CommandWords> read_command(const JsonObject& object, const std::string& path) {
  CommandWords command;
  command.path = path;
  AERIE_ASSIGN_OR_RETURN(command.what, text_at(object, "what"));
  AERIE_ASSIGN_OR_RETURN(const auto options, objects_at(object, "options"));
  for (const JsonObject& one : options) {
    AERIE_ASSIGN_OR_RETURN(OptionWords option, read_option(one));
    command.options.push_back(std::move(option));
  }
  AERIE_ASSIGN_OR_RETURN(const auto commands, objects_at(object, "commands"));
  for (const JsonObject& one : commands) {
    AERIE_ASSIGN_OR_RETURN(const std::string name, text_at(one, "name"));
    AERIE_ASSIGN_OR_RETURN(CommandWords below, read_command(one, path + " " + name));
    command.commands.push_back(std::move(below));
  }
  return command;
}

}  // namespace

std::vector<std::string> choices_of_type(const std::string& type) {
  const size_t open = type.find('{');
  const size_t close = type.find('}', open);
  std::vector<std::string> choices;
  if (open == std::string::npos || close == std::string::npos) return choices;
  for (size_t from = open + 1; from <= close;) {
    const size_t to = std::min(type.find(',', from), close);
    choices.push_back(type.substr(from, to - from));
    from = to + 1;
  }
  return choices;
}

std::string value_of_type(const std::string& type) {
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  if (type.starts_with("FLOAT")) return "X";
  return "TEXT";
}

std::string OptionWords::long_name() const {
  for (const std::string& name : names) {
    if (name.starts_with("--")) return name;
  }
  return names.front();
}

std::string command_words_json(const CommandWords& words) {
  return json_of(words).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Expected<CommandWords> parse_command_words(std::string_view json, const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const Json parsed, parse_json(json, "words of " + path));
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(parsed, "words of " + path));
  return read_command(object, path);
}

}  // namespace aerie
