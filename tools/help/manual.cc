#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/help/completion.h"

namespace aerie {
namespace {

// Hyphens are copied from manuals into shells, and a point at the start of a line is an order.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && out.empty()) {
      out += std::string("\\&") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string option_text(const OptionWords& option) {
  std::string text =
      fmt::format(".TP\n.B {}", roff(fmt::format("{}", fmt::join(option.names, ", "))));
  if (!option.value.empty()) text += " " + option.value;
  std::string what = option.what;
  if (!option.choices.empty()) what += fmt::format(" [{}]", fmt::join(option.choices, ", "));
  if (!option.fallback.empty()) what += fmt::format(" (default: {})", option.fallback);
  return text + "\n" + (what.empty() ? "\\&" : roff(what)) + "\n";
}

std::string section(const CommandWords& command) {
  std::string text = fmt::format(".SH {}\n{}\n", roff(command.path), roff(command.what));
  for (const OptionWords& option : command.options) text += option_text(option);
  for (const CommandWords& one : command.commands) text += section(one);
  return text;
}

}  // namespace

std::string manual_page(const CommandWords& program, const std::string& version) {
  std::string text = fmt::format(
      ".TH AERIE 1 \"\" \"{0} {1}\" \"User Commands\"\n"
      ".SH NAME\n{0} \\- language models with lossless speculative decoding\n"
      ".SH SYNOPSIS\n.B {0}\nCOMMAND [FLAGS]\n",
      program.path, version);
  return text + section(program);
}

}  // namespace aerie
