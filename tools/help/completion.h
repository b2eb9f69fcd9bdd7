// Completion in shells and the manual page, from what the flags say of themselves.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "report/command_words.h"

namespace CLI {
class App;
}

namespace aerie {

std::string bash_completion(const CommandWords& program);
std::string zsh_completion(const CommandWords& program);
std::string fish_completion(const CommandWords& program);
// In the language of man(7).
std::string manual_page(const CommandWords& program, const std::string& version);

// `aerie completion SHELL` of `program`, of which `app` is a subcommand. Both must outlive the
// returned function.
std::function<Expected<int>()> add_completion(CLI::App& app, const CLI::App& program,
                                              const std::string& version);

}  // namespace aerie
