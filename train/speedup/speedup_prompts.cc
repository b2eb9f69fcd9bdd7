#include "train/speedup/speedup_prompts.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/philox.h"
#include "format/json.h"
#include "train/data/dataset.h"

namespace aerie::train {
namespace {

// What a template adds to a turn, in tokens.
constexpr size_t kTemplateTokens = 192;

PromptSelection all_of_prompts() {
  PromptSelection selection;
  selection.flag = "--prompts";
  return selection;
}

// A token is a byte at least.
size_t bytes_of(const Prompt& prompt) {
  return prompt.system.size() + prompt.turns.front().size();
}

}  // namespace

Expected<std::vector<Prompt>> mixed_prompts(const std::vector<std::string>& files,
                                            const std::vector<std::string>& plain) {
  AERIE_ASSIGN_OR_RETURN(std::vector<Prompt> prompts, read_prompts(files, all_of_prompts()));
  std::vector<std::pair<uint32_t, size_t>> order;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Prompt& prompt = prompts[i];
    const std::string& path = files[static_cast<size_t>(prompt.file)];
    prompt.chat = prompt.chat || std::ranges::find(plain, path) == plain.end();
    prompt.name.erase(0, path.size() - std::filesystem::path(path).filename().string().size());
    const auto number = static_cast<uint32_t>(prompt.number);
    order.emplace_back(philox4x32({number, 0, 0, 0}, {0, 0})[0], i);
  }
  std::ranges::sort(order);
  std::vector<Prompt> mixed;
  mixed.reserve(prompts.size());
  for (const auto& [draw, place] : order) {
    Prompt& prompt = mixed.emplace_back(std::move(prompts[place]));
    prompt.file = 0;
    prompt.number = static_cast<int>(mixed.size()) - 1;
  }
  return mixed;
}

double mean_turns(const std::vector<Prompt>& prompts, bool chat_template) {
  size_t turns = 0;
  for (const Prompt& prompt : prompts) {
    turns += chat_template && prompt.chat ? prompt.turns.size() : 1;
  }
  return static_cast<double>(turns) / static_cast<double>(prompts.size());
}

std::string to_lines(const std::vector<Prompt>& prompts) {
  std::string lines;
  for (const Prompt& prompt : prompts) {
    Json line = {{"question_id", prompt.name}, {"category", prompt.task}};
    if (!prompt.chat) {
      line["prompt"] = prompt.turns.front();
    } else {
      Json& messages = line["messages"] = Json::array();
      const auto add = [&](const char* role, const std::string& content) {
        messages.push_back({{"role", role}, {"content", content}});
      };
      if (!prompt.system.empty()) add("system", prompt.system);
      for (const std::string& turn : prompt.turns) add("user", turn);
    }
    lines += line.dump() + "\n";
  }
  return lines;
}

std::vector<Prompt> held_out_prompts(const std::vector<Prompt>& prompts, double fraction,
                                     int context, int reply) {
  std::vector<Prompt> held_out;
  for (const Prompt& prompt : prompts) {
    const size_t tokens = bytes_of(prompt) + kTemplateTokens + static_cast<size_t>(reply);
    if (!is_held_out(prompt.number, fraction) || tokens > static_cast<size_t>(context)) continue;
    held_out.push_back(prompt);
  }
  return held_out;
}

}  // namespace aerie::train
