// What the flags of a program say of themselves, for help, completion and the manual page.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

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

// Positionals first, then flags in the order in which they were added; none that is hidden.
std::vector<OptionWords> options_of(const CLI::App& app);

struct CommandWords {
  std::string path;  // "aerie bench serve"
  std::string what;
  std::vector<OptionWords> options;
  std::vector<CommandWords> commands;
};

CommandWords command_words(const CLI::App& app, const std::string& before = "");

}  // namespace aerie
