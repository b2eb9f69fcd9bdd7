// Help that fits a screen of 24 lines and 80 columns, and --help-all with everything.
#pragma once

#include <string>

#include "report/command_words.h"

namespace CLI {
class App;
}

namespace aerie {

// Before subcommands are added, which take it over.
void set_help(CLI::App& app);

// Everything in lines of at most 80 columns; `all`: else what is most used, in a screen.
std::string help_text(const CommandWords& command, bool all);

}  // namespace aerie
