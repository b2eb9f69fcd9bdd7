// Methods of strings that ask what characters they have: str.isdigit and its like.
#include "jinja/builtins/native.h"
#include "jinja/values/characters.h"

namespace aerie::jinja {
namespace {

using Predicate = bool (*)(char32_t);

// Whether there is a character and all are so.
template <Predicate predicate>
Expected<Value> all(Runtime& runtime, const Value& subject, const Bound&) {
  AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * subject.view().size()));
  std::string_view rest = subject.view();
  if (rest.empty()) return Value::of(false);
  while (!rest.empty()) {
    const Character character = next_character(rest);
    if (!predicate(character.code)) return Value::of(false);
    rest.remove_prefix(character.length);
  }
  return Value::of(true);
}

bool is_alphanumeric(char32_t code) {
  return is_letter(code) || is_numeric(code) || is_digit(code);
}

Expected<Value> is_ascii(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.text->ascii);
}

Expected<Value> cased(Runtime& runtime, const Value& subject, bool upper) {
  AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * subject.view().size()));
  return Value::of(has_case(subject.view(), upper));
}

Expected<Value> all_lower(Runtime& runtime, const Value& subject, const Bound&) {
  return cased(runtime, subject, false);
}

Expected<Value> all_upper(Runtime& runtime, const Value& subject, const Bound&) {
  return cased(runtime, subject, true);
}

// Upper case exactly where a run of letters begins.
Expected<Value> is_title(Runtime& runtime, const Value& subject, const Bound&) {
  AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * subject.view().size()));
  bool inside = false, found = false;
  for (std::string_view rest = subject.view(); !rest.empty();) {
    const Character character = next_character(rest);
    const bool upper = is_upper(character.code), lower = is_lower(character.code);
    if ((upper && inside) || (lower && !inside)) return Value::of(false);
    inside = upper || lower;
    found = found || inside;
    rest.remove_prefix(character.length);
  }
  return Value::of(found);
}

constexpr Native kMethods[] = {
    {"isalnum", all<is_alphanumeric>},
    {"isalpha", all<is_letter>},
    {"isascii", is_ascii},
    {"isdecimal", all<is_decimal>},
    {"isdigit", all<is_digit>},
    {"islower", all_lower},
    {"isnumeric", all<is_numeric>},
    {"isspace", all<is_space>},
    {"istitle", is_title},
    {"isupper", all_upper},
};

}  // namespace

std::span<const Native> text_predicates() {
  return kMethods;
}

}  // namespace aerie::jinja
