// Takes a Jinja template apart into a canonical form, in which two templates that are written
// differently but mean the same (quotes, white space, trimmed newlines, "a" + "b" for "ab",
// x.y for x['y']) are equal. It does not evaluate anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

struct JinjaStep {
  enum class Kind : uint8_t {
    kTag,     // {% ... %}: its words
    kText,    // output that is known: the text
    kOutput,  // output of an expression: its words
  };
  Kind kind;
  // Words are separated by one space each; a string is in single quotes, with \\ and \' inside.
  std::string text;

  bool operator==(const JinjaStep&) const = default;
};

// The template as Hugging Face sets Jinja up (trim_blocks, lstrip_blocks). Adjacent texts are
// joined, and an output's summands are outputs of their own. kInvalidData if a tag, string or
// comment does not end; kUnsupported for an escape in a string that is not \n, \t, \r, \\, \' or
// \".
Expected<std::vector<JinjaStep>> lex_jinja(std::string_view source);

}  // namespace aerie
