// What the flags of a program say of themselves, for help, completion and the manual page. One
// program can tell it to another, as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

struct OptionWords {
  std::vector<std::string> names;  // "-m", "--model"; of a positional: "MODEL"
  bool positional = false;
  bool takes_value = false;
  std::string value;                 // "TEXT", "N"; empty without one
  std::vector<std::string> choices;  // of the value, if there are only so many
  std::string fallback;              // shown default
  std::string what;
  std::string group;

  std::string long_name() const;  // the first with two dashes, else the first
};

struct CommandWords {
  std::string path;  // "aerie bench serve"
  std::string what;
  std::vector<OptionWords> options;
  std::vector<CommandWords> commands;

  std::string name() const { return path.substr(path.rfind(' ') + 1); }
};

// "TEXT:{auto,none}" has choices.
std::vector<std::string> choices_of_type(const std::string& type);
// "TEXT", "N" or "X".
std::string value_of_type(const std::string& type);

template <typename Option>
OptionWords option_words(const Option& option) {
  OptionWords words;
  words.positional = option.get_positional();
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  // A word that stands beside flags ("OUT,-o") counts as they do.
  if (!words.names.empty()) words.positional = false;
  if (words.positional) words.names = {option.get_name(true)};
  words.takes_value = option.get_expected_max() > 0 && option.get_expected_min() > 0;
  if (words.takes_value && !words.positional) words.value = value_of_type(option.get_type_name());
  words.choices = choices_of_type(option.get_type_name());
  words.fallback = option.get_default_str();
  words.what = option.get_description();
  words.group = option.get_group();
  return words;
}

// Of a CLI::App: positionals first, then flags in the order in which they were added; none that is
// hidden.
template <typename App>
std::vector<OptionWords> options_of(const App& app) {
  std::vector<OptionWords> positionals, flags;
  for (const auto* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    OptionWords words = option_words(*option);
    (words.positional ? positionals : flags).push_back(std::move(words));
  }
  positionals.insert(positionals.end(), flags.begin(), flags.end());
  return positionals;
}

template <typename App>
CommandWords command_words(const App& app, const std::string& before = "") {
  CommandWords words;
  words.path = before.empty() ? app.get_name() : before + " " + app.get_name();
  words.what = app.get_description();
  words.options = options_of(app);
  for (const App* command : app.get_subcommands([](const App*) { return true; })) {
    words.commands.push_back(command_words(*command, words.path));
  }
  return words;
}

std::string command_words_json(const CommandWords& words);
// The paths are those below `path`, whatever the program calls itself. kInvalidData for what is
// none of them.
Expected<CommandWords> parse_command_words(std::string_view json, const std::string& path);

}  // namespace aerie
