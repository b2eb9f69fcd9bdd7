// The rules that any JSON text is made of.
//
// Spaces: at most one after ':' and after ',', none elsewhere. Numbers: up to 15 digits before and
// 15 after the point, an exponent of up to two. Strings: any escape of RFC 8259, but no half
// surrogate pairs.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar_graph.h"

namespace aerie {

class JsonGrammar {
 public:
  using Expr = GrammarBuilder::Expr;
  static constexpr int kMaxDigits = 15;

  explicit JsonGrammar(GrammarBuilder& builder) : builder_(builder) {}

  // A rule for each, made when it is first asked for.
  Expr value();
  Expr object();
  Expr array();
  Expr string();
  Expr character();  // of a string, spelled in any way
  Expr number();     // any, with an integer's among them
  Expr integer();    // without point or exponent
  Expr boolean();
  Expr null();
  Expr comma();
  Expr colon();

  // A character of a string in its shortest spelling: what is told from other characters has one.
  Expr plain_character(const std::vector<CodePointRange>& ranges);
  // A string in that spelling, with its quotes. `text` is UTF-8.
  Expr plain_string(std::string_view text);

  Expr make_object(Expr members_or_empty);
  Expr make_array(Expr items_or_empty);

 private:
  template <typename Make>
  Expr once(const char* name, const Make& make);
  Expr range(char first, char last) {
    return builder_.byte_range(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
  }
  Expr hex_digit();
  Expr unicode_escape();

  GrammarBuilder& builder_;
  std::map<std::string, Expr> made_;
};

}  // namespace aerie
