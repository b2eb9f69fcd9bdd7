// Bounds how long a part of an output may be, whose ends are marked in the text.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "aerie/request.h"
#include "core/constraint.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// Follows an output in and out of the parts between two texts. Empty texts are never found.
class SpanTracker {
 public:
  // As SpanLimit has them.
  SpanTracker(std::string open, std::string close, bool is_open, bool repeats)
      : open_(std::move(open)), close_(std::move(close)), repeats_(repeats), inside_(is_open) {}

  // The text of the next token; of a control token its name.
  void push(std::string_view piece);

  bool inside() const { return inside_; }
  // Tokens in such parts so far, without those of the texts around them.
  int tokens() const { return tokens_; }
  // With those that may become the closing text.
  int tokens_at_most() const { return tokens_ + closing_; }
  // Whether the output ends within a character.
  bool in_character() const { return in_character_; }
  // What is missing of the closing text, by how the output ends.
  std::string_view missing() const;

 private:
  bool opens();
  bool closes();

  std::string open_;
  std::string close_;
  bool repeats_;
  bool inside_;
  bool over_ = false;  // it does not begin any more
  bool in_character_ = false;
  std::string tail_;  // the text since the last of the two, as far as the other may begin there
  int tokens_ = 0;
  int closing_ = 0;  // tokens of what may become the closing text
};

// `inner`: what else constrains the output; may be null. The tokenizer must outlive it.
std::unique_ptr<TokenConstraint> make_span_limit(const SpanLimit& limit, const Tokenizer& tokenizer,
                                                 std::unique_ptr<TokenConstraint> inner);

}  // namespace aerie
