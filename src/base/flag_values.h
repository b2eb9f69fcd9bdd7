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

#include "base/program.h"
#include "base/standard_streams.h"

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
    print_message(wrong.view());
    return is_wrong ? 2 : exit_with(0);
  }
}

}  // namespace aerie
