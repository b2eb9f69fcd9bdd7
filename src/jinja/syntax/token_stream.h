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

// The first failure stays and leaves nothing to read, so that whatever is being parsed ends. What
// it gives then is of no use.
class TokenStream {
 public:
  using Type = Token::Type;

  TokenStream(std::vector<Token> tokens, Program& program)
      : tokens_(std::move(tokens)), program_(program) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Place& place() const { return peek().place; }
  const Token& take();
  bool is(Type type) const { return peek().type == type; }
  // A name, an operator or the beginning or end of a tag that is spelled so.
  bool is(std::string_view spelled, size_t ahead = 0) const;
  bool skip(std::string_view spelled);
  void expect(std::string_view spelled);
  const Token& expect_name();

  void fail(const Place& place, const Status& reason);
  // "expected X, not Y".
  void fail_unexpected(std::string_view wanted);
  void fail_too_deep();
  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }

  // The number of a name.
  int number_of(std::string_view name);
  // Marks the macros around as users of varargs, kwargs or caller.
  void note_use(int name);

  const Limits& limits() const { return program_.limits; }
  std::vector<Macro*>& macros() { return macros_; }

  // Nested parsing, for the life of the object. Fails where that is too deep.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) {
      if (++stream_.depth_ > stream_.limits().nesting) stream_.fail_too_deep();
    }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenStream& stream_;
  };

 private:
  std::vector<Token> tokens_;
  Program& program_;
  Status status_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<Macro*> macros_;
};

}  // namespace aerie::jinja
