#include "tools/help/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>

#include "base/standard_streams.h"
#include "tools/train.h"

namespace aerie {
namespace {

// Of the program and all below it.
void each_command(const CommandWords& command,
                  const std::function<void(const CommandWords&)>& take) {
  take(command);
  for (const CommandWords& one : command.commands) each_command(one, take);
}

// For single quotes of a shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

// For single quotes of fish, which knows escapes there.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// The first clause.
std::string in_short(const std::string& what) {
  constexpr size_t kLongest = 60;
  if (what.size() <= kLongest) return what;
  const std::string clause = what.substr(0, what.find_first_of(";:("));
  if (clause.size() <= kLongest) return clause;
  return clause.substr(0, clause.rfind(' ', kLongest));
}

std::vector<std::string> flag_names(const CommandWords& command) {
  std::vector<std::string> names;
  for (const OptionWords& option : command.options) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::vector<std::string> command_names(const CommandWords& command) {
  std::vector<std::string> names;
  for (const CommandWords& one : command.commands) names.push_back(one.name());
  return names;
}

// The cases of a shell's `case` over "PATH WORD": `flags` of options with or without choices.
std::string value_cases(const CommandWords& program, bool with_choices, const char* body) {
  std::string text;
  each_command(program, [&](const CommandWords& command) {
    for (const OptionWords& option : command.options) {
      if (option.positional || !option.takes_value || option.choices.empty() == with_choices) {
        continue;
      }
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        patterns.push_back(shell_quoted(command.path + " " + name));
      }
      text += fmt::format("    {}) ", fmt::join(patterns, "|"));
      text += fmt::format(fmt::runtime(body), fmt::join(option.choices, " "));
      text += " ;;\n";
    }
  });
  return text;
}

std::string path_cases(const CommandWords& program) {
  std::string text;
  each_command(program, [&](const CommandWords& command) {
    if (&command != &program)
      text += fmt::format("      {}) at=$at\\ $word ;;\n", shell_quoted(command.path));
  });
  return text;
}

// Of all commands, each in quotes.
std::string all_paths(const CommandWords& program) {
  std::string text;
  each_command(program, [&](const CommandWords& command) {
    if (&command != &program) text += (text.empty() ? "" : " ") + fish_quoted(command.path);
  });
  return text;
}

std::string positional_choices(const CommandWords& command) {
  for (const OptionWords& option : command.options) {
    if (option.positional && !option.choices.empty()) {
      return fmt::format("{}", fmt::join(option.choices, " "));
    }
  }
  return "";
}

}  // namespace

std::string bash_completion(const CommandWords& program) {
  std::string text = fmt::format(
      "# Completion of {0} for bash: source it, or put it into the folder of completions.\n"
      "_{0}() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} at={0} word\n"
      "  local flags= words=\n"
      "  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n"
      "    case \"$at $word\" in\n{1}"
      "    esac\n"
      "  done\n"
      "  compopt +o nospace 2>/dev/null\n"
      "  case \"$at $prev\" in\n{2}{3}"
      "  esac\n"
      "  case \"$at\" in\n",
      program.path, path_cases(program),
      value_cases(program, true, "COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return"),
      value_cases(program, false, "COMPREPLY=($(compgen -f -- \"$cur\")); return"));
  each_command(program, [&](const CommandWords& command) {
    std::string words = fmt::format("{}", fmt::join(command_names(command), " "));
    if (words.empty()) words = positional_choices(command);
    text += fmt::format("    {}) flags={}; words={} ;;\n", shell_quoted(command.path),
                        shell_quoted(fmt::format("{}", fmt::join(flag_names(command), " "))),
                        shell_quoted(words));
  });
  text += fmt::format(
      "  esac\n"
      "  if [[ $cur == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
      "  elif [[ -n $words ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
      "  fi\n"
      "}}\n"
      "complete -o filenames -F _{0} {0}\n",
      program.path);
  return text;
}

std::string zsh_completion(const CommandWords& program) {
  const auto described = [](const std::string& name, const std::string& what) {
    std::string escaped;
    for (const char c : name) escaped += c == ':' ? std::string("\\:") : std::string(1, c);
    return shell_quoted(escaped + ":" + in_short(what));
  };
  std::string text = fmt::format(
      "#compdef {0}\n"
      "# Completion of {0} for zsh: put it as _{0} into a folder of $fpath.\n"
      "_{0}() {{\n"
      "  local at={0} word\n"
      "  local -a flags commands\n"
      "  for word in \"${{(@)words[2,CURRENT-1]}}\"; do\n"
      "    case \"$at $word\" in\n{1}"
      "    esac\n"
      "  done\n"
      "  case \"$at $words[CURRENT-1]\" in\n{2}{3}"
      "  esac\n"
      "  case \"$at\" in\n",
      program.path, path_cases(program), value_cases(program, true, "compadd -- {}; return"),
      value_cases(program, false, "_files; return"));
  each_command(program, [&](const CommandWords& command) {
    text += fmt::format("    {})\n      flags=(", shell_quoted(command.path));
    for (const OptionWords& option : command.options) {
      if (option.positional) continue;
      for (const std::string& name : option.names)
        text += "\n        " + described(name, option.what);
    }
    text += ")\n      commands=(";
    for (const CommandWords& one : command.commands) {
      text += "\n        " + described(one.name(), one.what);
    }
    text += positional_choices(command) + ") ;;\n";
  });
  text += fmt::format(
      "  esac\n"
      "  if [[ $words[CURRENT] == -* ]]; then\n"
      "    _describe -o flag flags\n"
      "  elif (( $#commands )); then\n"
      "    _describe command commands\n"
      "  else\n"
      "    _files\n"
      "  fi\n"
      "}}\n"
      "if [[ $funcstack[1] == _{0} ]]; then _{0} \"$@\"; else compdef _{0} {0}; fi\n",
      program.path);
  return text;
}

std::string fish_completion(const CommandWords& program) {
  std::string text = fmt::format(
      "# Completion of {0} for fish.\n"
      "function __{0}_is_at\n"
      "  set -l at {0}\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$at $word\"\n"
      "      case {1}\n"
      "        set at \"$at $word\"\n"
      "    end\n"
      "  end\n"
      "  test \"$at\" = \"$argv\"\n"
      "end\n",
      program.path, all_paths(program));
  each_command(program, [&](const CommandWords& command) {
    const std::string start =
        fmt::format("complete -c {0} -n {1}", program.path,
                    fish_quoted(fmt::format("__{}_is_at '{}'", program.path, command.path)));
    for (const CommandWords& one : command.commands) {
      text +=
          fmt::format("{} -f -a {} -d {}\n", start, one.name(), fish_quoted(in_short(one.what)));
    }
    for (const OptionWords& option : command.options) {
      std::string line = start;
      const std::string choices = fmt::format("{}", fmt::join(option.choices, " "));
      if (option.positional) {
        if (!choices.empty()) text += line + " -f -a " + fish_quoted(choices) + "\n";
        continue;
      }
      for (const std::string& name : option.names) {
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (option.takes_value) line += choices.empty() ? " -r" : " -x -a " + fish_quoted(choices);
      text += line + " -d " + fish_quoted(in_short(option.what)) + "\n";
    }
  });
  return text;
}

std::function<Expected<int>()> add_completion(CLI::App& app, const CLI::App& program,
                                              const std::string& version) {
  auto shell = std::make_shared<std::string>();
  app.add_option("SHELL", *shell,
                 "bash, zsh or fish: a script that completes commands and flags; man: the manual "
                 "page")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
  return [shell, &program, version]() -> Expected<int> {
    CommandWords words = command_words(program);
    add_train_words(words);
    if (*shell == "man") {
      print_output(manual_page(words, version));
    } else if (*shell == "bash") {
      print_output(bash_completion(words));
    } else if (*shell == "zsh") {
      print_output(zsh_completion(words));
    } else {
      print_output(fish_completion(words));
    }
    return 0;
  };
}

}  // namespace aerie
