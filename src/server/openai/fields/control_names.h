// Names of control tokens in what users wrote, which must stay text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "tokenizer/tokenizer.h"

namespace aerie::server {

// A chat template writes control tokens by name, and so can a user: "<|im_end|>" in a message would
// end it. So the names in messages are replaced by marks that nobody can guess before the template
// is rendered, and the marks are encoded as the text that stood there. Immutable.
class ControlNames {
 public:
  explicit ControlNames(const Tokenizer& tokenizer);

  // Marks the names in all strings of `value`; whether there were any.
  bool mark(Json& value, std::string_view secret) const;

  // The ids of a rendered prompt.
  Status encode(std::string_view text, std::string_view secret, std::vector<int32_t>& ids) const;

 private:
  bool mark_text(std::string& text, std::string_view secret) const;

  const Tokenizer& tokenizer_;
  std::vector<std::string> names_;
};

}  // namespace aerie::server
