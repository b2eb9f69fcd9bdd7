#include "bench/prompt_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "bench/text_file.h"
#include "format/json.h"
#include "format/text.h"

namespace aerie::bench {
namespace {

constexpr std::array<std::string_view, 8> kMtBench = {
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"};
constexpr size_t kLongestName = 200;  // bytes of a category or an id: they stand in tables
constexpr size_t kMostTurns = 64;

Status broken(const std::string& where, std::string_view what) {
  return {StatusCode::kInvalidData,
          fmt::format("{}: {}; a line is a JSON object with 'turns' (a list of texts) or 'prompt' "
                      "(a text): correct or remove it",
                      where, what)};
}

Expected<std::string> text_of(const Json& value, const std::string& where, const char* key) {
  if (value.is_string() && !value.get_ref<const std::string&>().empty()) {
    return value.get<std::string>();
  }
  return broken(where, fmt::format("'{}' holds what is not a text, or an empty one", key));
}

Expected<std::string> category_of(const JsonObject& line, const std::string& where) {
  const Json* value = line.find("category");
  if (value == nullptr) return std::string();
  AERIE_ASSIGN_OR_RETURN(std::string text, text_of(*value, where, "category"));
  if (text.size() <= kLongestName) return printable(text, kLongestName);
  return broken(where, fmt::format("'category' is longer than {} bytes", kLongestName));
}

// Empty if it has none.
Expected<std::string> id_of(const JsonObject& line, const std::string& where) {
  for (const char* key : {"question_id", "task_id"}) {
    const Json* value = line.find(key);
    if (value == nullptr) continue;
    if (value->is_number_integer()) return value->dump();
    if (value->is_string()) return printable(value->get_ref<const std::string&>(), kLongestName);
    return broken(where, fmt::format("'{}' is neither a text nor a whole number", key));
  }
  return std::string();
}

Status read_turns(const JsonObject& line, const std::string& where, Prompt& prompt) {
  const Json* turns = line.find("turns");
  const Json* text = line.find("prompt");
  if ((turns == nullptr) == (text == nullptr)) {
    return broken(where, turns == nullptr ? "there is neither 'turns' nor 'prompt'"
                                          : "there are both 'turns' and 'prompt'");
  }
  if (text != nullptr) {
    AERIE_ASSIGN_OR_RETURN(prompt.turns.emplace_back(), text_of(*text, where, "prompt"));
    return {};
  }
  prompt.chat = true;
  if (!turns->is_array() || turns->empty() || turns->size() > kMostTurns) {
    return broken(where, fmt::format("'turns' is not a list of 1 to {} texts", kMostTurns));
  }
  for (const Json& turn : *turns) {
    AERIE_ASSIGN_OR_RETURN(prompt.turns.emplace_back(), text_of(turn, where, "turns"));
  }
  return {};
}

Expected<Prompt> read_line(std::string_view bytes, const std::string& where,
                           const std::string& default_task) {
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
  const bool mt_bench = std::find(kMtBench.begin(), kMtBench.end(), prompt.task) != kMtBench.end();
  if (mt_bench && prompt.turns.size() > 1) prompt.task = kMultiTurn;
  return prompt;
}

Status append_file(const std::string& path, int limit, int& number, std::vector<Prompt>& prompts) {
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "--dataset"));
  const std::string task = printable(std::filesystem::path(path).stem().string(), kLongestName);
  std::string_view rest = text;
  int kept = 0;
  for (int line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view bytes = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (bytes.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    // The lines that are left out count, and so are checked, too.
    AERIE_ASSIGN_OR_RETURN(Prompt prompt, read_line(bytes, fmt::format("{}:{}", path, line), task));
    prompt.number = number++;
    if (limit == 0 || kept++ < limit) prompts.push_back(std::move(prompt));
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
  std::sort(chosen.begin(), chosen.end());
  std::vector<Prompt> out;
  out.reserve(chosen.size());
  for (const size_t i : chosen) out.push_back(std::move(prompts[i]));
  return out;
}

}  // namespace

Expected<std::vector<Prompt>> read_prompts(const std::vector<std::string>& files,
                                           const PromptSelection& selection) {
  for (const auto& [flag, value] :
       {std::pair("--limit", selection.limit), std::pair("--sample", selection.sample)}) {
    if (value >= 0) continue;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} {}: give a number of prompts, or 0 for all", flag, value));
  }
  std::vector<Prompt> prompts;
  int number = 0;
  for (const std::string& file : files) {
    AERIE_RETURN_IF_ERROR(append_file(file, selection.limit, number, prompts));
  }
  if (prompts.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "there are no prompts: give --dataset FILE with at least one line");
  }
  if (selection.sample > 0) prompts = sampled(std::move(prompts), selection.sample);
  return prompts;
}

}  // namespace aerie::bench
