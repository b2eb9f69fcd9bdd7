// Standard output and standard error, for programs alone.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/status.h"

namespace aerie {

// The first thing that a program does. Descriptors 0 to 2 that are closed are taken, so that no
// file which is opened later comes to be one of them: reading closed input and writing closed
// output fail, messages on closed error are lost. Writing to a pipe that nobody reads any more, or
// beyond a file's largest size, becomes an error instead of a signal.
void claim_standard_descriptors();

// To standard output, past the buffers of the C library. Whether all could be written until now:
// after the first failure nothing more is. One thread at a time.
bool print_output(std::string_view text);

// What the first failure of print_output() was: kResourceExhausted. A program that ends as if all
// had gone well asks for it.
Status output_status();

// To standard error. What cannot be written is lost.
void print_message(std::string_view text);

template <typename... Args>
void print_message(fmt::format_string<Args...> format,
                   Args&&... args) requires(sizeof...(Args) > 0) {
  print_message(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace aerie
