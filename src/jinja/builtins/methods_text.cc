// Methods of strings that give text, places or lists.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/builtins/native.h"
#include "jinja/builtins/text_operations.h"
#include "jinja/values/characters.h"
#include "jinja/values/format.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

using Map = std::string (*)(std::string_view);

Expected<Value> mapped(Runtime& runtime, const Value& subject, Map map) {
  AERIE_RETURN_IF_ERROR(runtime.spend_text(8 * subject.view().size()));
  return runtime.text(map(subject.view()));
}

Expected<Value> upper(Runtime& runtime, const Value& subject, const Bound&) {
  return mapped(runtime, subject, to_upper);
}

Expected<Value> lower(Runtime& runtime, const Value& subject, const Bound&) {
  return mapped(runtime, subject, to_lower);
}

Expected<Value> capitalize(Runtime& runtime, const Value& subject, const Bound&) {
  return mapped(runtime, subject, to_capitalized);
}

// Python's: a word begins wherever a letter follows something that is no letter.
std::string titled(std::string_view text) {
  std::string result;
  bool inside = false;
  while (!text.empty()) {
    const Character character = next_character(text);
    const std::string_view part = text.substr(0, character.length);
    result += inside ? to_lower(part) : to_capitalized(part);
    inside = is_letter(character.code);
    text.remove_prefix(character.length);
  }
  return result;
}

Expected<Value> title(Runtime& runtime, const Value& subject, const Bound&) {
  return mapped(runtime, subject, titled);
}

std::string case_swapped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character character = next_character(text);
    const std::string_view part = text.substr(0, character.length);
    result += is_upper(character.code) ? to_lower(part) : to_upper(part);
    text.remove_prefix(character.length);
  }
  return result;
}

Expected<Value> swapcase(Runtime& runtime, const Value& subject, const Bound&) {
  return mapped(runtime, subject, case_swapped);
}

Expected<Value> stripped(Runtime& runtime, const Value& subject, const Bound& arguments,
                         Ends ends) {
  AERIE_RETURN_IF_ERROR(runtime.spend_text(subject.view().size()));
  if (!arguments.has(0) || arguments[0].is_none()) {
    return runtime.borrow(strip(subject.view(), nullptr, ends));
  }
  AERIE_ASSIGN_OR_RETURN(const Text* chars, text_argument(arguments, 0));
  AERIE_RETURN_IF_ERROR(claim_strip(runtime, *chars));
  return runtime.borrow(strip(subject.view(), &chars->view, ends));
}

Expected<Value> strip_both(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return stripped(runtime, subject, arguments, {true, true});
}

Expected<Value> strip_left(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return stripped(runtime, subject, arguments, {true, false});
}

Expected<Value> strip_right(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return stripped(runtime, subject, arguments, {false, true});
}

Expected<Value> remove_prefix(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Text* prefix, text_argument(arguments, 0));
  AERIE_RETURN_IF_ERROR(runtime.spend_text(prefix->view.size()));
  if (!subject.view().starts_with(prefix->view)) return subject;
  return runtime.borrow(subject.view().substr(prefix->view.size()));
}

Expected<Value> remove_suffix(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Text* suffix, text_argument(arguments, 0));
  AERIE_RETURN_IF_ERROR(runtime.spend_text(suffix->view.size()));
  if (!subject.view().ends_with(suffix->view)) return subject;
  return runtime.borrow(subject.view().substr(0, subject.view().size() - suffix->view.size()));
}

Expected<Value> replace(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Text* old, text_argument(arguments, 0));
  AERIE_ASSIGN_OR_RETURN(const Text* by, text_argument(arguments, 1));
  AERIE_ASSIGN_OR_RETURN(const int64_t count, int_argument(arguments, 2, -1));
  return replace_text(runtime, subject.view(), old->view, by->view, count);
}

Expected<Value> join(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, arguments[0]));
  for (const Value& item : items->items) {
    if (!item.is_text()) {
      return fail(fmt::format("join() needs strings, not '{}'", type_name(item)));
    }
  }
  return join_texts(runtime, subject.view(), *items);
}

Expected<Value> format(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return format_braces(runtime, subject.view(), *arguments.all);
}

// Splitting.

void push_part(Runtime& runtime, Sequence* parts, std::string_view part) {
  runtime.push(parts, runtime.borrow(part));
}

Expected<Value> split_at(Runtime& runtime, std::string_view text, std::string_view separator,
                         Search search) {
  if (separator.empty()) return fail("split() with an empty separator");
  AERIE_RETURN_IF_ERROR(
      runtime.claim(static_cast<Int>(text.size() / separator.size()) + 1, sizeof(size_t)));
  if (search.from_right) AERIE_RETURN_IF_ERROR(runtime.claim(2, text.size()));
  Sequence* parts = runtime.sequence();
  size_t done = 0;
  for (const size_t place : find_all(text, separator, search)) {
    push_part(runtime, parts, text.substr(done, place - done));
    done = place + separator.size();
    AERIE_RETURN_IF_ERROR(runtime.spend());
  }
  push_part(runtime, parts, text.substr(done));
  return Value::of(parts);
}

size_t space_free(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character character = next_character(text.substr(at));
    if (is_space(character.code)) break;
    at += character.length;
  }
  return at;
}

Expected<Value> split_words(Runtime& runtime, std::string_view text, size_t most) {
  Sequence* parts = runtime.sequence();
  text = strip(text, nullptr, {true, false});
  while (!text.empty()) {
    const bool rest = parts->items.size() == most;
    const size_t end = rest ? text.size() : space_free(text);
    push_part(runtime, parts, text.substr(0, end));
    AERIE_RETURN_IF_ERROR(runtime.spend());
    text = strip(text.substr(end), nullptr, {true, false});
  }
  return Value::of(parts);
}

Expected<Value> split_words_from_right(Runtime& runtime, std::string_view text, size_t most) {
  Sequence* parts = runtime.sequence();
  text = strip(text, nullptr, {false, true});
  while (!text.empty()) {
    size_t start = text.size();
    const bool rest = parts->items.size() == most;
    while (start > 0) {
      const size_t length = last_character(text.substr(0, start));
      if (!rest && is_space(next_character(text.substr(start - length)).code)) break;
      start -= length;
    }
    push_part(runtime, parts, text.substr(start));
    AERIE_RETURN_IF_ERROR(runtime.spend());
    text = strip(text.substr(0, start), nullptr, {false, true});
  }
  std::reverse(parts->items.begin(), parts->items.end());
  return Value::of(parts);
}

Expected<Value> split_from(Runtime& runtime, const Value& subject, const Bound& arguments,
                           bool from_right) {
  AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * subject.view().size()));
  AERIE_ASSIGN_OR_RETURN(const int64_t count, int_argument(arguments, 1, -1));
  const size_t most = count < 0 ? SIZE_MAX : static_cast<size_t>(count);
  if (!arguments.has(0) || arguments[0].is_none()) {
    return from_right ? split_words_from_right(runtime, subject.view(), most)
                      : split_words(runtime, subject.view(), most);
  }
  AERIE_ASSIGN_OR_RETURN(const Text* separator, text_argument(arguments, 0));
  return split_at(runtime, subject.view(), separator->view, {most, from_right});
}

Expected<Value> split(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return split_from(runtime, subject, arguments, false);
}

Expected<Value> rsplit(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return split_from(runtime, subject, arguments, true);
}

Expected<Value> partitioned(Runtime& runtime, const Value& subject, const Bound& arguments,
                            bool from_right) {
  AERIE_ASSIGN_OR_RETURN(const Text* separator, text_argument(arguments, 0));
  const std::string_view text = subject.view(), middle = separator->view;
  if (middle.empty()) return fail("partition() with an empty separator");
  AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * text.size()));
  if (from_right) AERIE_RETURN_IF_ERROR(runtime.claim(2, text.size()));
  const std::vector<size_t> places = find_all(text, middle, {1, from_right});
  Sequence* parts = runtime.sequence(Sequence::Flavour::kTuple);
  if (places.empty()) {
    push_part(runtime, parts, from_right ? "" : text);
    push_part(runtime, parts, "");
    push_part(runtime, parts, from_right ? text : "");
  } else {
    push_part(runtime, parts, text.substr(0, places[0]));
    push_part(runtime, parts, text.substr(places[0], middle.size()));
    push_part(runtime, parts, text.substr(places[0] + middle.size()));
  }
  return Value::of(parts);
}

Expected<Value> partition(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return partitioned(runtime, subject, arguments, false);
}

Expected<Value> rpartition(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return partitioned(runtime, subject, arguments, true);
}

Expected<Value> splitlines(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * subject.view().size()));
  AERIE_RETURN_IF_ERROR(
      runtime.claim(static_cast<Int>(subject.view().size()), sizeof(std::string_view)));
  Sequence* lines = runtime.sequence();
  for (const std::string_view line : split_lines(subject.view(), arguments.flag(0, false))) {
    push_part(runtime, lines, line);
    AERIE_RETURN_IF_ERROR(runtime.spend());
  }
  return Value::of(lines);
}

// Padding.

// One character, a space if none is given.
Expected<std::string_view> fill_argument(const Bound& arguments) {
  if (!arguments.has(1)) return std::string_view(" ");
  AERIE_ASSIGN_OR_RETURN(const Text* fill, text_argument(arguments, 1));
  if (count_characters(fill->view.substr(0, 16)) != 1) return fail("padding is one character");
  return fill->view;
}

Expected<Value> padded(Runtime& runtime, const Value& subject, const Bound& arguments,
                       bool on_left) {
  AERIE_ASSIGN_OR_RETURN(const int64_t width, int_argument(arguments, 0, 0));
  AERIE_ASSIGN_OR_RETURN(const std::string_view fill, fill_argument(arguments));
  AERIE_ASSIGN_OR_RETURN(const int64_t size, length(runtime, subject));
  const int64_t missing = std::max<int64_t>(0, width - size);
  AERIE_RETURN_IF_ERROR(runtime.claim(missing, fill.size()));
  TextBuilder out(runtime);
  if (!on_left) out.add(subject.view());
  for (int64_t i = 0; i < missing; ++i) out.add(fill);
  if (on_left) out.add(subject.view());
  return out.value();
}

Expected<Value> ljust(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return padded(runtime, subject, arguments, false);
}

Expected<Value> rjust(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return padded(runtime, subject, arguments, true);
}

Expected<Value> center(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t width, int_argument(arguments, 0, 0));
  AERIE_ASSIGN_OR_RETURN(const std::string_view fill, fill_argument(arguments));
  return center_text(runtime, *subject.text, width, fill);
}

Expected<Value> zfill(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t width, int_argument(arguments, 0, 0));
  AERIE_ASSIGN_OR_RETURN(const int64_t size, length(runtime, subject));
  const int64_t missing = std::max<int64_t>(0, width - size);
  AERIE_RETURN_IF_ERROR(runtime.claim(missing, 1));
  const std::string_view text = subject.view();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  TextBuilder out(runtime);
  out.add(text.substr(0, sign));
  for (int64_t i = 0; i < missing; ++i) out.add('0');
  out.add(text.substr(sign));
  return out.value();
}

// Places are counted in characters.
size_t characters_before(const Text& text, size_t offset) {
  return text.ascii ? offset : count_characters(text.view.substr(0, offset));
}

// The part that the arguments at 1 and 2 leave of a text, as text[start:end], and where it begins.
struct Part {
  std::string_view view;
  size_t offset = 0;
  bool within = true;  // start is not behind the end of the text
};

Expected<Part> part_of(Runtime& runtime, const Text& text, const Bound& arguments) {
  AERIE_RETURN_IF_ERROR(runtime.spend_text(4 * text.view.size()));
  const bool whole = !arguments.has(1) && !arguments.has(2);
  if (whole) return Part{text.view, 0, true};
  AERIE_ASSIGN_OR_RETURN(const int64_t size, length(runtime, Value::of(&text)));
  AERIE_ASSIGN_OR_RETURN(int64_t start, int_argument(arguments, 1, 0));
  AERIE_ASSIGN_OR_RETURN(int64_t end, int_argument(arguments, 2, size));
  if (start < 0) start = std::max<int64_t>(0, start + size);
  if (end < 0) end = std::max<int64_t>(0, end + size);
  end = std::min(end, size);
  if (start > end) return Part{"", 0, false};
  const size_t from = character_offset(text.view, static_cast<size_t>(start));
  const size_t to = character_offset(text.view, static_cast<size_t>(end));
  return Part{text.view.substr(from, to - from), from, true};
}

Expected<int64_t> place(Runtime& runtime, const Value& subject, const Bound& arguments,
                        bool from_right) {
  AERIE_ASSIGN_OR_RETURN(const Text* needle, text_argument(arguments, 0));
  AERIE_ASSIGN_OR_RETURN(const Part part, part_of(runtime, *subject.text, arguments));
  if (!part.within) return int64_t{-1};
  size_t found;
  if (needle->view.empty()) {
    found = from_right ? part.view.size() : 0;
  } else {
    if (from_right) AERIE_RETURN_IF_ERROR(runtime.claim(2, part.view.size()));
    const auto places = find_all(part.view, needle->view, {1, from_right});
    if (places.empty()) return int64_t{-1};
    found = places[0];
  }
  return static_cast<int64_t>(characters_before(*subject.text, part.offset + found));
}

Expected<Value> find(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t found, place(runtime, subject, arguments, false));
  return Value::of(Int{found});
}

Expected<Value> rfind(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t found, place(runtime, subject, arguments, true));
  return Value::of(Int{found});
}

Expected<Value> index(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t found, place(runtime, subject, arguments, false));
  if (found < 0) return fail("index() of a string that is not there");
  return Value::of(Int{found});
}

Expected<Value> rindex(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t found, place(runtime, subject, arguments, true));
  if (found < 0) return fail("rindex() of a string that is not there");
  return Value::of(Int{found});
}

Expected<Value> count(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Text* needle, text_argument(arguments, 0));
  AERIE_ASSIGN_OR_RETURN(const Part part, part_of(runtime, *subject.text, arguments));
  if (!part.within) return Value::of(Int{0});
  if (needle->view.empty()) return Value::of(static_cast<Int>(count_characters(part.view)) + 1);
  AERIE_RETURN_IF_ERROR(
      runtime.claim(static_cast<Int>(part.view.size() / needle->view.size()), sizeof(size_t)));
  return Value::of(static_cast<Int>(find_all(part.view, needle->view, {}).size()));
}

Expected<Value> at_end(Runtime& runtime, const Value& subject, const Bound& arguments,
                       bool at_start) {
  AERIE_ASSIGN_OR_RETURN(const Part part, part_of(runtime, *subject.text, arguments));
  const auto matches = [&](const Value& affix) -> Expected<bool> {
    if (affix.is_undefined()) return undefined_error(affix);
    if (!affix.is_text()) {
      return fail(
          fmt::format("startswith() and endswith() need strings, not '{}'", type_name(affix)));
    }
    if (!part.within) return false;
    return at_start ? part.view.starts_with(affix.view()) : part.view.ends_with(affix.view());
  };
  const Value& affix = arguments[0];
  if (affix.is(Kind::kSequence) && affix.sequence->is_tuple()) {
    for (const Value& item : affix.sequence->items) {
      AERIE_ASSIGN_OR_RETURN(const bool found, matches(item));
      if (found) return Value::of(true);
      AERIE_RETURN_IF_ERROR(runtime.spend());
    }
    return Value::of(false);
  }
  AERIE_ASSIGN_OR_RETURN(const bool found, matches(affix));
  return Value::of(found);
}

Expected<Value> startswith(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return at_end(runtime, subject, arguments, true);
}

Expected<Value> endswith(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return at_end(runtime, subject, arguments, false);
}

constexpr Native kMethods[] = {
    {"capitalize", capitalize},
    {"casefold", lower},
    {"center", center, {"width", "fillchar"}, 1},
    {"count", count, {"sub", "start", "end"}, 1},
    {"endswith", endswith, {"suffix", "start", "end"}, 1},
    {"find", find, {"sub", "start", "end"}, 1},
    {"format", format, {}, 0, true},
    {"index", index, {"sub", "start", "end"}, 1},
    {"join", join, {"iterable"}, 1},
    {"ljust", ljust, {"width", "fillchar"}, 1},
    {"lower", lower},
    {"lstrip", strip_left, {"chars"}},
    {"partition", partition, {"sep"}, 1},
    {"removeprefix", remove_prefix, {"prefix"}, 1},
    {"removesuffix", remove_suffix, {"suffix"}, 1},
    {"replace", replace, {"old", "new", "count"}, 2},
    {"rfind", rfind, {"sub", "start", "end"}, 1},
    {"rindex", rindex, {"sub", "start", "end"}, 1},
    {"rjust", rjust, {"width", "fillchar"}, 1},
    {"rpartition", rpartition, {"sep"}, 1},
    {"rsplit", rsplit, {"sep", "maxsplit"}},
    {"rstrip", strip_right, {"chars"}},
    {"split", split, {"sep", "maxsplit"}},
    {"splitlines", splitlines, {"keepends"}},
    {"startswith", startswith, {"prefix", "start", "end"}, 1},
    {"strip", strip_both, {"chars"}},
    {"swapcase", swapcase},
    {"title", title},
    {"upper", upper},
    {"zfill", zfill, {"width"}, 1},
};

}  // namespace

std::span<const Native> text_methods() {
  return kMethods;
}

}  // namespace aerie::jinja
