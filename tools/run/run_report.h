// The figures of a generation, for people and as JSON.
#pragma once

#include <string>

#include "base/status.h"
#include "tools/run/run_options.h"

namespace aerie {

// One line: tokens/s of prompt and generation, τ, acceptance by position, time by stage.
std::string closing_line(const Generation& generation, const Engine& engine);

// Writes everything that closing_line() tells and the token ids to a file, whole or not at all.
Status write_json(const std::string& path, const Generation& generation, const RunOptions& options,
                  const Engine& engine);

// The same with any text. Messages name the file by the flag that asked for it.
Status write_text(const std::string& path, const std::string& text, const char* flag = "--json");

// Fails early where these would fail late.
Status check_writable(const std::string& path, const char* flag = "--json");

}  // namespace aerie
