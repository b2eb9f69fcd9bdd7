#include "report/prompt_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "format/json.h"
#include "format/text.h"
#include "report/text_file.h"

namespace aerie {
namespace {

constexpr std::array<std::string_view, 8> kMtBench = {
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"};
constexpr size_t kLongestName = 200;  // bytes of a category or an id: they stand in tables
constexpr size_t kMostTurns = 64;

template <typename... Args>
Status broken(const std::string& where, fmt::format_string<Args...> what, Args&&... args) {
  return invalid_data(
      "{}: {}; a line is a JSON object with 'turns' (a list of texts) or 'prompt', 'question' or "
      "'text' (a text) or 'messages' or 'conversations': correct or remove it",
      where, fmt::format(what, std::forward<Args>(args)...));
}

Expected<std::string> text_of(const Json& value, const std::string& where, const char* key) {
  if (value.is_string() && !value.get_ref<const std::string&>().empty()) {
    return value.get<std::string>();
  }
  return broken(where, "'{}' holds what is not a text, or an empty one", key);
}

Expected<std::string> category_of(const JsonObject& line, const std::string& where) {
  const Json* value = line.find("category");
  if (value == nullptr) return std::string();
  AERIE_ASSIGN_OR_RETURN(std::string text, text_of(*value, where, "category"));
  if (text.size() <= kLongestName) return printable(text, kLongestName);
  return broken(where, "'category' is longer than {} bytes", kLongestName);
}

// Empty if it has none.
Expected<std::string> id_of(const JsonObject& line, const std::string& where) {
  for (const char* key : {"question_id", "task_id"}) {
    const Json* value = line.find(key);
    if (value == nullptr) continue;
    if (value->is_number_integer()) return value->dump();
    if (value->is_string()) return printable(value->get_ref<const std::string&>(), kLongestName);
    return broken(where, "'{}' is neither a text nor a whole number", key);
  }
  return std::string();
}

Status read_list(const Json& turns, const std::string& where, Prompt& prompt) {
  if (!turns.is_array() || turns.empty() || turns.size() > kMostTurns) {
    return broken(where, "'turns' is not a list of 1 to {} texts", kMostTurns);
  }
  for (const Json& turn : turns) {
    AERIE_ASSIGN_OR_RETURN(prompt.turns.emplace_back(), text_of(turn, where, "turns"));
  }
  return {};
}

// As OpenAI has them, {role, content}, or ShareGPT, {from, value}.
struct Message {
  std::string_view role;
  const char* content_key = nullptr;
  const Json* content = nullptr;
};

Expected<Message> message_of(const Json& json, const char* list, const std::string& where) {
  const auto object = JsonObject::view(json, where);
  if (!object.ok()) return broken(where, "'{}' holds what is no object", list);
  for (const auto& [role_key, content_key] : {std::pair{"role", "content"}, {"from", "value"}}) {
    const auto role = object->string(role_key);
    const Json* content = object->find(content_key);
    if (role.ok() && content != nullptr) return Message{*role, content_key, content};
  }
  return broken(where, "'{}' holds an object without 'role' or 'content'", list);
}

bool is_one_of(std::string_view role, std::initializer_list<std::string_view> roles) {
  return std::ranges::find(roles, role) != roles.end();
}

Status read_messages(const Json& messages, const char* list, const std::string& where,
                     Prompt& prompt) {
  if (!messages.is_array() || messages.size() > 2 * kMostTurns) {
    return broken(where, "'{}' is not a list of at most {} objects", list, 2 * kMostTurns);
  }
  for (const Json& json : messages) {
    AERIE_ASSIGN_OR_RETURN(const Message message, message_of(json, list, where));
    if (is_one_of(message.role, {"user", "human"})) {
      AERIE_ASSIGN_OR_RETURN(prompt.turns.emplace_back(),
                             text_of(*message.content, where, message.content_key));
    } else if (message.role == "system") {
      if (&json != &messages.front()) {
        return broken(where, "'{}' has a system message that is not the first", list);
      }
      AERIE_ASSIGN_OR_RETURN(prompt.system, text_of(*message.content, where, message.content_key));
    } else if (!is_one_of(message.role, {"assistant", "gpt", "chatgpt", "bing", "bard"})) {
      return broken(where, "'{}' has a role other than system, user and assistant", list);
    }
  }
  return prompt.turns.empty() ? broken(where, "'{}' has no message of the user", list) : Status();
}

Status read_turns(const JsonObject& line, const std::string& where, Prompt& prompt) {
  prompt.chat = true;
  // Sets of chats repeat their beginning as `prompt`.
  for (const char* key : {"messages", "conversations"}) {
    if (const Json* list = line.find(key)) return read_messages(*list, key, where, prompt);
  }
  const char* found = nullptr;
  for (const char* key : {"turns", "prompt", "question", "text"}) {
    if (!line.has(key)) continue;
    if (found != nullptr) {
      return broken(where, "there are both '{}' and '{}'", found, key);
    }
    found = key;
  }
  if (found == nullptr) {
    return broken(where,
                  "there is none of 'turns', 'messages', 'conversations', 'prompt', 'question' and "
                  "'text'");
  }
  const std::string_view key = found;
  const Json& value = *line.find(key);
  if (key == "turns") {
    const bool objects = value.is_array() && !value.empty() && value.front().is_object();
    return objects ? read_messages(value, found, where, prompt) : read_list(value, where, prompt);
  }
  prompt.chat = key != "prompt";
  AERIE_ASSIGN_OR_RETURN(prompt.turns.emplace_back(), text_of(value, where, found));
  return {};
}

Expected<bool> is_in(const PromptRange& range, const JsonObject& line, const std::string& where) {
  const Json* value = line.find(range.key);
  if (value == nullptr) return true;
  if (const auto number = line.integer(range.key); number.ok()) {
    return *number >= range.first && *number <= range.last;
  }
  return broken(where, "'{}' is no whole number, by which lines are chosen",
                printable(range.key, kLongestName));
}

// None: `ranges` leave it out.
Expected<std::optional<Prompt>> read_line(std::string_view bytes, const std::string& where,
                                          const std::string& default_task,
                                          const std::vector<PromptRange>& ranges) {
  const auto json = parse_json(bytes, where);
  if (!json.ok()) {
    return Status(json.status().code(),
                  broken(json.status().message(), "this is no JSON").message());
  }
  if (!json->is_object()) return broken(where, "this is no object");
  AERIE_ASSIGN_OR_RETURN(const JsonObject line, JsonObject::view(*json, where));
  Prompt prompt;
  AERIE_RETURN_IF_ERROR(read_turns(line, where, prompt));
  AERIE_ASSIGN_OR_RETURN(prompt.task, category_of(line, where));
  AERIE_ASSIGN_OR_RETURN(const std::string id, id_of(line, where));
  prompt.name = id.empty() ? where : fmt::format("{} ({})", where, id);
  if (prompt.task.empty()) prompt.task = default_task;
  const bool mt_bench = std::ranges::find(kMtBench, prompt.task) != kMtBench.end();
  if (mt_bench && prompt.turns.size() > 1) prompt.task = kMultiTurn;
  for (const PromptRange& range : ranges) {
    AERIE_ASSIGN_OR_RETURN(const bool in, is_in(range, line, where));
    if (!in) return std::optional<Prompt>();
  }
  return std::optional(std::move(prompt));
}

Status append_file(const std::string& path, const PromptSelection& selection, int& number,
                   std::vector<Prompt>& prompts) {
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, selection.flag));
  const std::string task = printable(std::filesystem::path(path).stem().string(), kLongestName);
  std::string_view rest = text;
  int kept = 0;
  for (int line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view bytes = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (bytes.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    // The lines that are left out count, and so are checked, too.
    AERIE_ASSIGN_OR_RETURN(
        std::optional<Prompt> prompt,
        read_line(bytes, fmt::format("{}:{}", path, line), task, selection.where));
    const int here = number++;
    if (!prompt || (selection.limit > 0 && kept++ >= selection.limit)) continue;
    prompt->number = here;
    prompts.push_back(std::move(*prompt));
  }
  return {};
}

// Of n the places i * n / count, which are `count` different ones.
std::vector<Prompt> sampled(std::vector<Prompt> prompts, int count) {
  std::map<std::string, std::vector<size_t>> tasks;
  for (size_t i = 0; i < prompts.size(); ++i) tasks[prompts[i].task].push_back(i);
  std::vector<size_t> chosen;
  for (const auto& [task, places] : tasks) {
    const size_t take = std::min(places.size(), static_cast<size_t>(count));
    for (size_t i = 0; i < take; ++i) chosen.push_back(places[i * places.size() / take]);
  }
  std::ranges::sort(chosen);
  std::vector<Prompt> out;
  out.reserve(chosen.size());
  for (const size_t i : chosen) out.push_back(std::move(prompts[i]));
  return out;
}

bool parse_whole(std::string_view text, int64_t& out) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, out);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

Expected<PromptRange> parse_prompt_range(const std::string& text) {
  PromptRange range;
  const size_t equals = text.find('=');
  range.key = text.substr(0, equals);
  const std::string_view numbers =
      equals == std::string::npos ? "" : std::string_view(text).substr(equals + 1);
  const size_t dots = numbers.find("..");
  const std::string_view first = numbers.substr(0, dots);
  const std::string_view last = dots == std::string::npos ? first : numbers.substr(dots + 2);
  const bool is_open = dots != std::string::npos;
  if (range.key.empty() || (first.empty() && last.empty()) ||
      !((first.empty() && is_open) || parse_whole(first, range.first)) ||
      !((last.empty() && is_open) || parse_whole(last, range.last))) {
    return invalid_argument(
        "{}: give KEY=FIRST..LAST with whole numbers, such as task_id=601..974, or KEY=NUMBER",
        printable(text));
  }
  return range;
}

Expected<std::vector<Prompt>> read_prompts(const std::vector<std::string>& files,
                                           const PromptSelection& selection) {
  for (const auto& [flag, value] :
       {std::pair("--limit", selection.limit), std::pair("--sample", selection.sample)}) {
    if (value >= 0) continue;
    return invalid_argument("{} {}: give a number of prompts, or 0 for all", flag, value);
  }
  std::vector<Prompt> prompts;
  int number = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const size_t before = prompts.size();
    AERIE_RETURN_IF_ERROR(append_file(files[i], selection, number, prompts));
    for (size_t j = before; j < prompts.size(); ++j) prompts[j].file = static_cast<int>(i);
  }
  if (prompts.empty()) {
    return invalid_argument("there are no prompts: give {} FILE with at least one line{}",
                            selection.flag,
                            selection.where.empty() ? "" : " that --where does not leave out");
  }
  if (selection.sample > 0) prompts = sampled(std::move(prompts), selection.sample);
  return prompts;
}

}  // namespace aerie
