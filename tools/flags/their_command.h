// Command lines that were written for vLLM, SGLang, llama.cpp and TensorRT-LLM.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/flags/their_flags.h"

namespace CLI {
class App;
}

namespace aerie {

struct OurCommand {
  std::vector<std::string> words;
  std::vector<std::string> notes;  // what to tell the user, a line each
};

// The words behind a command as that command, `app`, has them: flags of others, which stand in
// `theirs`, become ours of the same meaning, and what means nothing here is left
// out and noted, in one line. Words that nobody has stay, for the parser to refuse.
// kInvalidArgument for flags that ask for another output.
Expected<OurCommand> to_our_command(const CLI::App& app, std::span<const TheirFlag> theirs,
                                    const std::vector<std::string>& words);

}  // namespace aerie
