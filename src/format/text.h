// Text from files, which may hold anything: checking it, and showing it to people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace aerie {

// The length of the well-formed UTF-8 sequence that `text` starts with; 0 if there is none.
// Overlong forms, surrogates and values above U+10FFFF are not well-formed.
size_t utf8_sequence_length(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Whether a file holds what Git leaves in the place of a large one that has not been fetched.
bool is_git_lfs_pointer(std::string_view bytes);

// `text` with backslashes, control characters and malformed UTF-8 escaped, so that it can neither
// break a line nor steer a terminal. After about `limit` bytes it ends with "...".
std::string printable(std::string_view text, size_t limit = 120);

}  // namespace aerie
