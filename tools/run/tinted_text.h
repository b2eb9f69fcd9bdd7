// A reply's text in colours that say where each piece came from.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "aerie/request.h"
#include "tokenizer/detokenizer.h"

namespace aerie {

// "drafted and accepted", ... in the colours that they have.
std::string tint_legend();

inline constexpr const char* kDim = "\x1b[2m";

// Text in one colour.
struct Tint {
  std::string text;
  const char* colour = "";  // an escape sequence; empty: none
};
// Every colour ends with its text.
void append(const Tint& tint, std::string& out);

class TintedText {
 public:
  // Without `tinted`, text has no colour. The tokenizer must outlive it.
  TintedText(const Tokenizer& tokenizer, bool tinted)
      : detokenizer_(tokenizer), tokenizer_(tokenizer), tinted_(tinted) {}

  // The text that a delta brings.
  std::vector<Tint> add(const ReplyDelta& delta);

 private:
  struct Piece {
    size_t bytes;
    TokenOrigin origin;
  };

  Detokenizer detokenizer_;
  const Tokenizer& tokenizer_;
  bool tinted_;
  std::deque<Piece> pieces_;  // of text that is still to come
};

}  // namespace aerie
