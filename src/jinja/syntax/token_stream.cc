#include "jinja/syntax/token_stream.h"

#include <fmt/format.h>

#include "format/text.h"

namespace aerie::jinja {
namespace {

std::string described(const Token& token) {
  switch (token.type) {
    case Token::Type::kText:
      return "text";
    case Token::Type::kTagBegin:
      return "'{%'";
    case Token::Type::kTagEnd:
      return "'%}'";
    case Token::Type::kOutputBegin:
      return "'{{'";
    case Token::Type::kOutputEnd:
      return "'}}'";
    case Token::Type::kEnd:
      return "the end of the template";
    case Token::Type::kString:
      return fmt::format("the string '{}'", printable(token.text, 40));
    default:
      return fmt::format("'{}'", printable(token.text, 40));
  }
}

}  // namespace

bool TokenStream::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

bool TokenStream::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  take();
  return true;
}

Status TokenStream::expect_name(std::string_view name) {
  return skip_name(name) ? Status() : unexpected(fmt::format("'{}'", name));
}

Status TokenStream::expect_operator(std::string_view text) {
  return skip_operator(text) ? Status() : unexpected(fmt::format("'{}'", text));
}

Status TokenStream::expect(Type type) {
  if (!is(type)) return unexpected(described({type, {}, "", 0, 0.0}));
  take();
  return {};
}

Expected<Token> TokenStream::expect_any_name() {
  if (!is(Type::kName)) return unexpected("a name");
  return take();
}

Status TokenStream::unexpected(std::string_view wanted) const {
  return error(fmt::format("expected {}, not {}", wanted, described(peek())));
}

int TokenStream::number_of(std::string_view name) {
  const auto found = program_.names.find(name);
  if (found != program_.names.end()) return found->second;
  const int number = static_cast<int>(program_.names.size());
  program_.names.emplace(std::string(name), number);
  return number;
}

void TokenStream::note_use(int name) {
  for (Macro* macro : macros_) {
    if (name == kVarargsName) macro->takes_more = true;
    if (name == kKwargsName) macro->takes_more_named = true;
    if (name == kCallerName) macro->takes_caller = true;
  }
}

Status TokenStream::too_deep() const {
  return at_place(place(),
                  {StatusCode::kResourceExhausted,
                   fmt::format("the template is nested deeper than {} levels", limits().nesting)});
}

}  // namespace aerie::jinja
