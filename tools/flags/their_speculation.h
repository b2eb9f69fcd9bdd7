// Settings of speculation as other programs have them: vLLM's --speculative-config, TensorRT-LLM's
// speculative_config, and what the flags of SGLang and llama.cpp say.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace aerie {

// What parse_speculative_json() takes, of the same meaning. Keys that mean nothing here go into
// `ignored`; kInvalidArgument for what would change the output (typical or relaxed acceptance) and
// for methods that there are not. What is ours already stays as it is.
Expected<Json> to_our_speculation(const Json& theirs, std::vector<std::string>& ignored);

}  // namespace aerie
