#include "jinja/syntax/token_stream.h"

#include "base/errors.h"
#include "format/text.h"

namespace aerie::jinja {
namespace {

std::string described(const Token& token) {
  if (token.type == Token::Type::kText) return "text";
  if (token.type == Token::Type::kEnd) return "the end of the template";
  return fmt::format("{}'{}'", token.type == Token::Type::kString ? "the string " : "",
                     printable(token.text, 40));
}

}  // namespace

const Token& TokenStream::take() {
  const Token& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::is(std::string_view spelled, size_t ahead) const {
  const Token& token = peek(ahead);
  return (token.type == Type::kName || token.type == Type::kOperator) && token.text == spelled;
}

bool TokenStream::skip(std::string_view spelled) {
  if (!is(spelled)) return false;
  take();
  return true;
}

void TokenStream::expect(std::string_view spelled) {
  if (!skip(spelled)) fail_unexpected(fmt::format("'{}'", spelled));
}

const Token& TokenStream::expect_name() {
  if (!is(Type::kName)) fail_unexpected("a name");
  return take();
}

void TokenStream::fail(const Place& place, const Status& reason) {
  if (failed()) return;
  status_ = at_place(place, reason);
  at_ = tokens_.size() - 1;
}

void TokenStream::fail_unexpected(std::string_view wanted) {
  fail(place(), invalid_data("expected {}, not {}", wanted, described(peek())));
}

void TokenStream::fail_too_deep() {
  fail(place(),
       resource_exhausted("the template is nested deeper than {} levels", limits().nesting));
}

int TokenStream::number_of(std::string_view name) {
  const int next = static_cast<int>(program_.names.size());
  return program_.names.emplace(std::string(name), next).first->second;
}

void TokenStream::note_use(int name) {
  for (Macro* macro : macros_) {
    if (name == kVarargsName) macro->takes_more = true;
    if (name == kKwargsName) macro->takes_more_named = true;
    if (name == kCallerName) macro->takes_caller = true;
  }
}

}  // namespace aerie::jinja
