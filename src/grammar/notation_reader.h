// What the parsers of notations have in common: a place in a text, and errors that name it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie::grammar {

class NotationReader {
 public:
  // The text must outlive it.
  explicit NotationReader(std::string_view text) : text_(text) {}

 protected:
  // "line 2, column 7: WHAT", of the place.
  Status error(std::string_view what, StatusCode code = StatusCode::kInvalidArgument) const;

  bool at_end() const { return at_ == text_.size(); }
  bool peek(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what);

  // A number of repetitions.
  Expected<int> take_count();
  // The character that so many hexadecimal digits are the number of.
  Expected<uint32_t> take_hex(int digits);
  // A character as it stands there.
  Expected<uint32_t> take_character();

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace aerie::grammar
