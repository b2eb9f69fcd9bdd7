#include "jinja/values/value.h"

#include <algorithm>

namespace aerie::jinja {
namespace {

bool is_ascii(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// In the order of Kind and of Sequence::Flavour.
constexpr std::string_view kNames[] = {"Undefined", "Undefined", "None",  "bool", "int",
                                       "float",     "str",       "list",  "dict", "namespace",
                                       "function",  "loop",      "cycler"};
constexpr std::string_view kSequenceNames[] = {
    "list", "tuple", "tuple", "range", "dict_keys", "dict_values", "dict_items", "generator"};

}  // namespace

Text::Text(std::string bytes) : owned(std::move(bytes)), view(owned), ascii(is_ascii(view)) {}
Text::Text(Borrow, std::string_view bytes) : view(bytes), ascii(is_ascii(bytes)) {}

std::string_view type_name(Kind kind) {
  return kNames[static_cast<size_t>(kind)];
}

std::string_view type_name(Sequence::Flavour flavour) {
  return kSequenceNames[static_cast<size_t>(flavour)];
}

std::string_view type_name(const Value& value) {
  return value.is(Kind::kSequence) ? type_name(value.sequence->flavour) : type_name(value.kind);
}

}  // namespace aerie::jinja
