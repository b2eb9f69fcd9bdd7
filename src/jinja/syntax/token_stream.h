// The tokens that a parser has still to read, and what parsers share.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/syntax/ast.h"
#include "jinja/syntax/lexer.h"

namespace aerie::jinja {

class TokenStream {
 public:
  using Type = Token::Type;

  TokenStream(std::vector<Token> tokens, Program& program)
      : tokens_(std::move(tokens)), program_(program) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Place& place() const { return peek().place; }
  Token take() {
    Token token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool is(Type type) const { return peek().type == type; }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return peek(ahead).type == Type::kName && peek(ahead).text == name;
  }
  bool is_operator(std::string_view text, size_t ahead = 0) const {
    return peek(ahead).type == Type::kOperator && peek(ahead).text == text;
  }
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view text);
  Status expect_name(std::string_view name);
  Status expect_operator(std::string_view text);
  Status expect(Type type);
  Expected<Token> expect_any_name();

  // "expected X, not Y", at the next token.
  Status unexpected(std::string_view wanted) const;
  Status error(std::string reason) const { return syntax_error(place(), std::move(reason)); }

  // The number of a name.
  int number_of(std::string_view name);
  // Marks the macros around as users of varargs, kwargs or caller.
  void note_use(int name);

  const Limits& limits() const { return program_.limits; }
  std::vector<Macro*>& macros() { return macros_; }

  // Nested parsing, for the life of the object.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) { ++stream_.depth_; }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    bool too_deep() const { return stream_.depth_ > stream_.limits().nesting; }

   private:
    TokenStream& stream_;
  };
  Status too_deep() const;

 private:
  std::vector<Token> tokens_;
  Program& program_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<Macro*> macros_;
};

}  // namespace aerie::jinja
