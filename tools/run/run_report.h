// The figures of a generation, for people and as JSON.
#pragma once

#include <string>

#include "tools/run/run_options.h"

namespace aerie {

// One line: tokens/s of prompt and generation, τ, acceptance by position, time by stage.
std::string closing_line(const Generation& generation, const Engine& engine);

// The same for who chats: tokens/s and τ.
std::string short_closing_line(const Generation& generation);

// Everything that it tells, and the token ids, as JSON.
std::string report_json(const Generation& generation, const RunOptions& options,
                        const Engine& engine);

}  // namespace aerie
