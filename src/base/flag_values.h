// How programs read their flags, and what flags of any program may not be given. The library that
// parses them takes an empty text for zero or for no flag at all, wraps numbers around, and finds
// nan inside of every range.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/program.h"
#include "base/standard_streams.h"
#include "base/words/nearest.h"

namespace aerie {

// Why a text is no whole number of 64 bits without a sign; empty if it is.
inline std::string seed_fault(const std::string& text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end) return "";
  return "'" + text + "' is no whole number from 0 to 18446744073709551615";
}

// Why a text is no number to compare with others; empty if it is.
inline std::string nan_fault(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? "'" + text + "' is no number" : "";
}

// Refuses empty values of all flags of `app` (a CLI::App) and its subcommands, but for those named,
// seeds that are none, and nan for numbers. The message names the flag.
template <typename App>
void check_flag_values(App& app, std::initializer_list<const char*> may_be_empty) {
  for (auto* option : app.get_options()) {
    if (option->get_expected_max() == 0) continue;
    if (option->check_name("--seed")) option->check(seed_fault);
    if (option->get_type_name().starts_with("FLOAT")) option->check(nan_fault);
    if (std::any_of(may_be_empty.begin(), may_be_empty.end(),
                    [&](const char* name) { return option->check_name(name); })) {
      continue;
    }
    option->check([](const std::string& value) -> std::string {
      return value.empty() ? "the value '' is empty: give one, or leave the flag out" : "";
    });
  }
  for (App* command : app.get_subcommands([](const App*) { return true; })) {
    check_flag_values(*command, may_be_empty);
  }
}

// The names of the options of `app`, and of its subcommands where `of_commands`.
template <typename App>
std::vector<std::string> names_in(const App& app, bool of_commands) {
  std::vector<std::string> names;
  if (of_commands) {
    for (const App* command : app.get_subcommands([](const App*) { return true; })) {
      names.push_back(command->get_name());
    }
    return names;
  }
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Says which word of a command line that `app` refuses is no flag or subcommand, and what is near
// it; empty if that is not what is wrong.
template <typename App>
std::string unknown_word(App& app, int argc, char** argv) {
  App* command = &app;
  std::string path = app.get_name();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") return "";
    const auto message = [&](const char* what, const std::string& name, bool of_commands) {
      std::string text = path;
      text.append(": there is no ").append(what).append(" ").append(name);
      text.append(did_you_mean(name, names_in(*command, of_commands)));
      text.append("; see ").append(path).append(of_commands ? " --help\n" : " --help-all\n");
      return text;
    };
    if (word.starts_with("--")) {
      const std::string name = word.substr(0, word.find('='));
      const auto* option = command->get_option_no_throw(name);
      if (option == nullptr) return message("flag", name, false);
      if (option->get_expected_min() > 0 && name == word) ++i;
    } else if (word.starts_with("-") && word.size() == 2) {
      const auto* option = command->get_option_no_throw(word);
      if (option != nullptr && option->get_expected_min() > 0) ++i;
    } else if (!word.starts_with("-")) {
      const auto found =
          command->get_subcommands([&](const App* one) { return one->get_name() == word; });
      if (found.empty() && command->get_require_subcommand_min() > 0) {
        return message("command", word, true);
      }
      if (found.empty()) continue;
      command = found.front();
      path += " " + word;
    }
  }
  return "";
}

// Gives the command line to `app` (a CLI::App; ParseError: CLI::ParseError). The exit status if
// there is nothing else to do: help was asked for and printed, or a flag is wrong, with a message
// that says so.
template <typename ParseError, typename App>
std::optional<int> parse_flags(App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const ParseError& error) {
    std::ostringstream help, wrong;
    const bool is_wrong = app.exit(error, help, wrong) != 0;
    print_output(help.view());
    const std::string unknown = is_wrong ? unknown_word(app, argc, argv) : "";
    print_message(unknown.empty() ? wrong.str() : unknown);
    return is_wrong ? 2 : exit_with(0);
  }
}

}  // namespace aerie
