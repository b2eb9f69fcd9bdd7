#include "tools/help/option_words.h"

#include <CLI/CLI.hpp>

namespace aerie {
namespace {

// "TEXT:{auto,none}" has choices.
std::vector<std::string> choices_in(const std::string& type) {
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

std::string value_name(const std::string& type) {
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  if (type.starts_with("FLOAT")) return "X";
  return "TEXT";
}

OptionWords words_of(const CLI::Option& option) {
  OptionWords words;
  words.positional = option.get_positional();
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  // A word that stands beside flags ("OUT,-o") counts as they do.
  if (!words.names.empty()) words.positional = false;
  if (words.positional) words.names = {option.get_name(true)};
  words.takes_value = option.get_expected_max() > 0 && option.get_expected_min() > 0;
  if (words.takes_value && !words.positional) words.value = value_name(option.get_type_name());
  words.choices = choices_in(option.get_type_name());
  words.fallback = option.get_default_str();
  words.what = option.get_description();
  words.group = option.get_group();
  return words;
}

}  // namespace

std::string OptionWords::long_name() const {
  for (const std::string& name : names) {
    if (name.starts_with("--")) return name;
  }
  return names.front();
}

std::vector<OptionWords> options_of(const CLI::App& app) {
  std::vector<OptionWords> positionals, flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    OptionWords words = words_of(*option);
    (words.positional ? positionals : flags).push_back(std::move(words));
  }
  positionals.insert(positionals.end(), flags.begin(), flags.end());
  return positionals;
}

CommandWords command_words(const CLI::App& app, const std::string& before) {
  CommandWords words;
  words.path = before.empty() ? app.get_name() : before + " " + app.get_name();
  words.what = app.get_description();
  words.options = options_of(app);
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    words.commands.push_back(command_words(*command, words.path));
  }
  return words;
}

}  // namespace aerie
