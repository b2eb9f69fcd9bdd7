// How much a template may ask for. Each limit that is reached is an ordinary Status that names it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aerie::jinja {

// The largest template in wide use is about 30 KB and renders a long conversation in some ten
// thousand steps.
struct Limits {
  size_t source_bytes = size_t{256} << 10;
  // Of brackets, statements and operators in a template, and of lists and dicts in a value.
  int nesting = 100;
  // Of expressions and statements that are being evaluated, macros that call macros included. A
  // level takes up to about 1 KB of stack (4 KB with AddressSanitizer).
  int depth = 500;
  // One for each expression, each item that a filter visits and each 16 bytes of text that are
  // looked at or copied.
  uint64_t steps = 20'000'000;
  // Of all values of one rendering together; nothing is given back before its end.
  size_t memory_bytes = size_t{256} << 20;
  size_t output_bytes = size_t{32} << 20;
};

}  // namespace aerie::jinja
