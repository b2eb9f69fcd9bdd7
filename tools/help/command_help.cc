#include "tools/help/command_help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

namespace aerie {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kLines = 24;
constexpr size_t kLeft = 27;  // columns of the names

// What most people want, where a command has more flags than a screen has lines; of others the
// first flags are the common ones. The text takes the place of one that is too long for a line.
struct Common {
  std::string_view name;
  std::string_view what = {};
};

const std::map<std::string_view, std::vector<Common>>& common_flags() {
  static const std::map<std::string_view, std::vector<Common>> flags = {
      {"aerie run",
       {{"MODEL", "The model, and what to say in quotes; without it: a chat"},
        {"--model", "A file, a folder or a name"},
        {"--prompt", "A message"},
        {"--file", "A file with the prompt; -: standard input"},
        {"--system"},
        {"--raw", "Go on with the prompt as a text"},
        {"--max-tokens"},
        {"--temp", "0: always the likeliest token"},
        {"--top-p", "Keep the likeliest tokens with this much in all"},
        {"--seed", "Seed of random choices (default: drawn)"},
        {"--json-schema"},
        {"--speculate", "auto, none, ngram, draft_model:model=FILE, ..."},
        {"--ctx", "Tokens of context (default: at most 4096)"},
        {"--cache-type", "Of keys and values: f16, or q8 for half the memory"},
        {"--threads", "Default: one for each performance core"},
        {"--json", "Write ids and figures to this file"}}},
      {"aerie serve",
       {{"MODEL", "The model"},
        {"--model", "A file, a folder or a name"},
        {"--served-model-name", "What requests call the model"},
        {"--host", "The address to listen on; 0.0.0.0: all"},
        {"--port", "0: any that is free, which is printed"},
        {"--api-key-file", "API keys or their hashes, one a line"},
        {"--config", "A file with flags"},
        {"--max-model-len", "Tokens of context (default: as memory goes)"},
        {"--max-num-seqs", "Requests decoded together"},
        {"--cache-tokens", "Positions of the cache (0: by memory)"},
        {"--cache-type", "Of keys and values: f16, or q8 for half the memory"},
        {"--speculate", "auto, none, ngram, draft_model:model=FILE, ..."},
        {"--speculative-config", "The same as JSON, with vLLM's keys"},
        {"--threads", "Default: one for each performance core"}}},
  };
  return flags;
}

// Lines of at most `width`, broken at spaces.
std::vector<std::string> wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (line.size() + 1 + word.size() <= width) {
      line.append(" ").append(word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

// What fits in a line, up to the end of a clause if that is not much less.
std::string shortened(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  const size_t clause = text.find_last_of(";:,(", width);
  if (clause != std::string::npos && clause > width / 3) {
    return text.substr(0, text.find_last_not_of(" ;:,(", clause) + 1);
  }
  return text.substr(0, text.rfind(' ', width - 4)) + " ...";
}

std::string left_side(const OptionWords& option, bool all) {
  std::vector<std::string> names = option.names;
  if (!all && names.size() > 1) {
    names = {option.long_name()};
    if (option.names.front().size() == 2) names.insert(names.begin(), option.names.front());
  }
  std::string text = fmt::format("{}", fmt::join(names, ", "));
  // Long names stand below one another.
  if (names.front().starts_with("--") || option.positional) text = "    " + text;
  if (option.positional) text.erase(0, 4);
  if (!option.value.empty()) text.append(" ").append(option.value);
  return text;
}

std::string right_side(const OptionWords& option) {
  std::string text = option.what;
  const auto note = [&](const std::string& more) {
    text += text.empty() ? more : fmt::format(" ({})", more);
  };
  // Where the text does not name them.
  const bool named = std::ranges::all_of(option.choices, [&](const std::string& choice) {
    return text.find(choice) != std::string::npos;
  });
  if (!option.choices.empty() && !named) note(fmt::format("{}", fmt::join(option.choices, ", ")));
  if (!option.fallback.empty()) note("default: " + option.fallback);
  return text;
}

std::string two_columns(const std::string& left, const std::vector<std::string>& right) {
  std::string out = "  " + left;
  size_t column = out.size();
  for (const std::string& line : right) {
    if (line.empty()) continue;
    if (column + 2 > kLeft) {
      out += '\n';
      column = 0;
    }
    out.append(kLeft - column, ' ').append(line);
    column = kColumns;  // the next line is a new one
  }
  return out + '\n';
}

std::string usage(const CommandWords& command) {
  std::string line = "Usage: " + command.path;
  if (!command.commands.empty()) line += " COMMAND";
  for (const OptionWords& option : command.options) {
    if (option.positional) line += " " + option.names.front();
  }
  return line + " [FLAGS]\n" + command.what + "\n\n";
}

std::string list_commands(const CommandWords& command) {
  std::string text;
  for (const CommandWords& one : command.commands) {
    const std::string name = one.path.substr(command.path.size() + 1);
    constexpr size_t kNames = 11;
    text += fmt::format("  {:<{}}{}\n", name, kNames, shortened(one.what, kColumns - kNames - 2));
  }
  return text.empty() ? text : "Commands:\n" + text + "\n";
}

struct Row {
  std::string left, right;
};

// The first `most` of what is common.
std::vector<Row> common_rows(const CommandWords& command, size_t most) {
  const auto chosen = common_flags().find(command.path);
  std::vector<Row> rows;
  const auto add = [&](const OptionWords& option, std::string_view what) {
    if (rows.size() == most || option.long_name().starts_with("--help")) return;
    rows.push_back({left_side(option, false), what.empty() ? option.what : std::string(what)});
  };
  if (chosen == common_flags().end()) {
    for (const OptionWords& option : command.options) add(option, "");
    return rows;
  }
  for (const Common& common : chosen->second) {
    const auto option = std::ranges::find_if(command.options, [&](const OptionWords& one) {
      return std::ranges::find(one.names, common.name) != one.names.end();
    });
    if (option != command.options.end()) add(*option, common.what);
  }
  return rows;
}

// One line for each.
std::string list_common(const CommandWords& command, size_t most) {
  const std::vector<Row> rows = common_rows(command, most);
  size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.left.size());
  std::string text;
  for (const Row& row : rows) {
    text +=
        fmt::format("  {:<{}}  {}\n", row.left, width, shortened(row.right, kColumns - width - 4));
  }
  return text;
}

std::string list_all(const CommandWords& command) {
  std::string text;
  std::vector<std::string> groups;
  for (const OptionWords& option : command.options) {
    if (std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  }
  for (const std::string& title : groups) {
    text += (text.empty() ? "" : "\n") + title + ":\n";
    for (const OptionWords& option : command.options) {
      if (option.group != title) continue;
      text += two_columns(left_side(option, true), wrapped(right_side(option), kColumns - kLeft));
    }
  }
  return text;
}

}  // namespace

std::string help_text(const CommandWords& command, bool all) {
  std::string text = usage(command) + list_commands(command);
  const std::string everything = list_all(command);
  const auto lines = [](const std::string& of) {
    return static_cast<size_t>(std::ranges::count(of, '\n'));
  };
  if (all || lines(text) + lines(everything) < kLines) return text + everything;
  // The last line of a screen is the prompt.
  constexpr std::string_view kMore = "\n--help-all lists every flag.\n";
  const size_t taken = lines(text) + 3;
  return text + list_common(command, taken < kLines ? kLines - taken : 0) + std::string(kMore);
}

void set_help(CLI::App& app) {
  app.set_help_flag("-h,--help", "The flags that are used most");
  app.set_help_all_flag("--help-all", "All flags");
  app.formatter_fn([](const CLI::App* command, const std::string& name, CLI::AppFormatMode mode) {
    CommandWords words = command_words(*command);
    // The library hands over the whole path.
    words.path = name;
    for (CommandWords& one : words.commands) {
      one.path = name + one.path.substr(command->get_name().size());
    }
    return help_text(words, mode == CLI::AppFormatMode::All);
  });
}

}  // namespace aerie
