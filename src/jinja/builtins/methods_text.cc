// Methods of strings that give text, places or lists.
#include <algorithm>

#include "jinja/builtins/native.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

template <typename Choose>
Value text_in_case(Call& call, Choose choose) {
  return call.runtime.text(in_case(call.view(), choose));
}

// A word begins wherever a letter follows something that is no letter.
Value titled_text(Call& call) {
  return text_in_case(call, [inside = false](char32_t code) mutable {
    const bool within = std::exchange(inside, is_letter(code));
    return within ? Case::kLower : Case::kTitle;
  });
}

Value swapped_text(Call& call) {
  return text_in_case(call,
                      [](char32_t code) { return is_upper(code) ? Case::kLower : Case::kUpper; });
}

template <bool left, bool right>
Value stripped_at(Call& call) {
  constexpr Ends kEnds = {left, right};
  if (!call.given(0)) return call.runtime.borrow(strip(call.view(), nullptr, kEnds));
  const std::string_view chars = call.string(0);
  if (!call.runtime.spend(chars.size())) return {};
  if (!call.runtime.claim(chars.size(), sizeof(chars))) return {};
  return call.runtime.borrow(strip(call.view(), &chars, kEnds));
}

// Without the prefix or suffix.
template <bool at_start>
Value without_affix(Call& call) {
  const std::string_view text = call.view(), affix = call.string(0);
  if (at_start ? !text.starts_with(affix) : !text.ends_with(affix)) return call.subject;
  return call.runtime.borrow(text.substr(at_start ? affix.size() : 0, text.size() - affix.size()));
}

Value formatted(Call& call) {
  return format_braces(call.runtime, call.view(), call.all);
}

Value joined(Call& call) {
  const auto& items = iterate(call.runtime, call[0])->items;
  for (const Value& item : items) {
    if (!item.is_text()) return type_error(call.runtime, "join() needs strings", item);
  }
  return join_texts(call.runtime, call.view(), items);
}

// Splitting.

Value parts_of(Runtime& runtime, const std::vector<std::string_view>& parts,
               Sequence::Flavour flavour = Sequence::Flavour::kList) {
  Sequence* result = runtime.sequence(flavour);
  for (const std::string_view part : parts) {
    runtime.push(result, runtime.borrow(part));
    if (!runtime.spend()) break;
  }
  return Value::of(result);
}

bool claim_matches(Runtime& runtime, std::string_view text, std::string_view needle) {
  const size_t most = text.size() / std::max<size_t>(1, needle.size()) + 1;
  return runtime.claim(most, sizeof(size_t) + sizeof(text));
}

Value split_at(Call& call, std::string_view separator, Search search) {
  Runtime& runtime = call.runtime;
  const std::string_view text = call.view();
  if (separator.empty()) return runtime.fail("split() with an empty separator");
  if (!claim_matches(runtime, text, separator)) return {};
  if (search.from_right && !runtime.claim(2, text.size())) return {};
  std::vector<std::string_view> parts;
  size_t done = 0;
  for (const size_t place : find_all(text, separator, search)) {
    parts.push_back(text.substr(done, place - done));
    done = place + separator.size();
  }
  parts.push_back(text.substr(done));
  return parts_of(runtime, parts);
}

// The length of the word that `text` begins or ends with.
size_t word_length(std::string_view text, bool from_right) {
  size_t length = 0;
  while (length < text.size()) {
    const std::string_view rest = text.substr(from_right ? 0 : length, text.size() - length);
    const size_t size = from_right ? last_character(rest) : next_character(rest).length;
    const std::string_view character = from_right ? rest.substr(rest.size() - size) : rest;
    if (is_space(next_character(character).code)) break;
    length += size;
  }
  return length;
}

Value split_words(Call& call, Search search) {
  Runtime& runtime = call.runtime;
  const bool from_right = search.from_right;
  const Ends ends = {!from_right, from_right};
  Sequence* parts = runtime.sequence();
  for (std::string_view text = strip(call.view(), nullptr, ends); !text.empty();) {
    const bool rest = parts->items.size() == search.most;
    const size_t length = rest ? text.size() : word_length(text, from_right);
    runtime.push(parts, runtime.borrow(from_right ? text.substr(text.size() - length)
                                                  : text.substr(0, length)));
    if (!runtime.spend()) break;
    text = text.substr(from_right ? 0 : length, text.size() - length);
    text = strip(text, nullptr, ends);
  }
  if (from_right) std::ranges::reverse(parts->items);
  return Value::of(parts);
}

template <bool from_right>
Value split_from(Call& call) {
  const int64_t count = call.integer(1, -1);
  const Search search = {count < 0 ? SIZE_MAX : static_cast<size_t>(count), from_right};
  return call.given(0) ? split_at(call, call.string(0), search) : split_words(call, search);
}

template <bool from_right>
Value partitioned(Call& call) {
  const std::string_view text = call.view(), middle = call.string(0);
  if (middle.empty()) return call.runtime.fail("partition() with an empty separator");
  if (from_right && !call.runtime.claim(2, text.size())) return {};
  const std::vector<size_t> places = find_all(text, middle, {1, from_right});
  std::vector<std::string_view> parts = {text, "", ""};
  if (!places.empty()) {
    parts = {text.substr(0, places[0]), middle, text.substr(places[0] + middle.size())};
  } else if (from_right) {
    std::swap(parts[0], parts[2]);
  }
  return parts_of(call.runtime, parts, Sequence::Flavour::kTuple);
}

Value lines_of(Call& call) {
  if (!call.runtime.claim(call.view().size(), sizeof(std::string_view))) return {};
  return parts_of(call.runtime, split_lines(call.view(), call.flag(0)));
}

// Padding.

// So wide, of which `left(lacking)` characters stand on the left.
template <typename Left>
Value padded(Call& call, int64_t width, Left left) {
  const std::string_view fill = call.string(1, " ");
  if (count_characters(fill.substr(0, 16)) != 1) {
    return call.runtime.fail("padding is one character");
  }
  const Int lacking = std::max<Int>(0, Int{width} - length(call.runtime, call.subject));
  TextBuilder out(call.runtime);
  out.repeat(fill, left(lacking));
  out.add(call.view());
  out.repeat(fill, lacking - left(lacking));
  return out.value();
}

Value left_justified(Call& call) {
  return padded(call, call.integer(0), [](Int) { return Int{0}; });
}

Value right_justified(Call& call) {
  return padded(call, call.integer(0), [](Int lacking) { return lacking; });
}

Value zero_filled(Call& call) {
  const std::string_view text = call.view();
  const bool sign = text.starts_with('-') || text.starts_with('+');
  TextBuilder out(call.runtime);
  out.add(text.substr(0, sign ? 1 : 0));
  out.repeat("0", Int{call.integer(0)} - length(call.runtime, call.subject));
  out.add(text.substr(sign ? 1 : 0));
  return out.value();
}

// Finding.

// Where the part that start and end (arguments 1 and 2) leave of a string is; nothing if they leave
// none, not even an empty one.
struct Part {
  std::string_view view;
  size_t offset = 0;  // in bytes
  bool within = false;
};

Part part_of(const Call& call) {
  const std::string_view text = call.view();
  if (!call.given(1) && !call.given(2)) return {text, 0, true};
  const int64_t size = length(call.runtime, call.subject);
  int64_t start = call.integer(1, 0), end = call.integer(2, size);
  if (start < 0) start = std::max<int64_t>(0, start + size);
  if (end < 0) end += size;
  end = std::clamp<int64_t>(end, 0, size);
  if (start > end) return {};
  const size_t offset = character_offset(text, static_cast<size_t>(start));
  const size_t stop = character_offset(text, static_cast<size_t>(end));
  return {text.substr(offset, stop - offset), offset, true};
}

// The number of the character at which the first argument begins; -1 if nowhere.
template <bool from_right>
int64_t place_in_text(Call& call) {
  const std::string_view needle = call.string(0);
  const Part part = part_of(call);
  if (!part.within || (from_right && !call.runtime.claim(2, part.view.size()))) return -1;
  const auto places = find_all(part.view, needle, {1, from_right});
  if (places.empty()) return -1;
  const size_t bytes = part.offset + places[0];
  if (call.subject.text->ascii) return static_cast<int64_t>(bytes);
  return static_cast<int64_t>(count_characters(call.view().substr(0, bytes)));
}

template <bool from_right>
Value find_in_text(Call& call) {
  return Value::of(place_in_text<from_right>(call));
}

template <bool from_right>
Value index_in_text(Call& call) {
  const int64_t place = place_in_text<from_right>(call);
  if (place < 0) return call.runtime.fail("index() of a string that is not there");
  return Value::of(place);
}

Value count_in_text(Call& call) {
  const std::string_view needle = call.string(0);
  const Part part = part_of(call);
  if (!part.within || !claim_matches(call.runtime, part.view, needle)) return Value::of(Int{0});
  return Value::of(find_all(part.view, needle, {}).size());
}

template <bool at_start>
Value has_affix(Call& call) {
  const Part part = part_of(call);
  std::vector<Value> affixes = {call[0]};
  if (call[0].is_tuple()) affixes = call[0].sequence->items;
  for (const Value& affix : affixes) {
    if (!affix.is_text()) {
      return type_error(call.runtime, "startswith() and endswith() need strings", affix);
    }
    const bool found =
        at_start ? part.view.starts_with(affix.view()) : part.view.ends_with(affix.view());
    if (part.within && found) return Value::of(true);
    if (!call.runtime.spend()) break;
  }
  return Value::of(false);
}

constexpr Native kAllTextMethods[] = {
    of_text("capitalize", capitalized_text),
    of_text("casefold", lower_text),
    of_text("center", centered_text, {"width", "fillchar"}, 1),
    of_text("count", count_in_text, {"sub", "start", "end"}, 1),
    of_text("endswith", has_affix<false>, {"suffix", "start", "end"}, 1),
    of_text("find", find_in_text<false>, {"sub", "start", "end"}, 1),
    of_text("format", formatted, {}, 0, true),
    of_text("index", index_in_text<false>, {"sub", "start", "end"}, 1),
    of_text("join", joined, {"iterable"}, 1),
    of_text("ljust", left_justified, {"width", "fillchar"}, 1),
    of_text("lower", lower_text),
    of_text("lstrip", stripped_at<true, false>, {"chars"}),
    of_text("partition", partitioned<false>, {"sep"}, 1),
    of_text("removeprefix", without_affix<true>, {"prefix"}, 1),
    of_text("removesuffix", without_affix<false>, {"suffix"}, 1),
    of_text("replace", replaced_text, {"old", "new", "count"}, 2),
    of_text("rfind", find_in_text<true>, {"sub", "start", "end"}, 1),
    of_text("rindex", index_in_text<true>, {"sub", "start", "end"}, 1),
    of_text("rjust", right_justified, {"width", "fillchar"}, 1),
    of_text("rpartition", partitioned<true>, {"sep"}, 1),
    of_text("rsplit", split_from<true>, {"sep", "maxsplit"}),
    of_text("rstrip", stripped_at<false, true>, {"chars"}),
    of_text("split", split_from<false>, {"sep", "maxsplit"}),
    of_text("splitlines", lines_of, {"keepends"}),
    of_text("startswith", has_affix<true>, {"prefix", "start", "end"}, 1),
    of_text("strip", stripped_text, {"chars"}),
    of_text("swapcase", swapped_text),
    of_text("title", titled_text),
    of_text("upper", upper_text),
    of_text("zfill", zero_filled, {"width"}, 1),
};

}  // namespace

Value upper_text(Call& call) {
  return text_in_case(call, [](char32_t) { return Case::kUpper; });
}

Value lower_text(Call& call) {
  return text_in_case(call, [](char32_t) { return Case::kLower; });
}

Value capitalized_text(Call& call) {
  return text_in_case(
      call, [how = Case::kTitle](char32_t) mutable { return std::exchange(how, Case::kLower); });
}

Value stripped_text(Call& call) {
  return stripped_at<true, true>(call);
}

Value replaced_text(Call& call) {
  Runtime& runtime = call.runtime;
  const std::string_view text = call.view(), old = call.string(0), by = call.string(1);
  const int64_t count = call.integer(2, -1);
  const size_t most = count < 0 ? SIZE_MAX : static_cast<size_t>(count);
  TextBuilder out(runtime);
  if (!claim_matches(runtime, text, old)) return {};
  size_t done = 0;
  for (const size_t place : find_all(text, old, {most, false})) {
    out.add(text.substr(done, place - done));
    out.add(by);
    done = place + old.size();
    if (runtime.failed()) break;
  }
  out.add(text.substr(done));
  return out.value();
}

Value centered_text(Call& call) {
  const int64_t width = call.integer(0, 80);
  // Python's rounding: the odd one goes to the left where the width is odd.
  return padded(call, width, [&](Int lacking) { return lacking / 2 + (lacking & width & 1); });
}

Value join_texts(Runtime& runtime, std::string_view separator, const std::vector<Value>& items) {
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.add(separator);
    first = false;
    write_text(out, item);
    if (!runtime.spend()) break;
  }
  return out.value();
}

const Table kTextMethods(kAllTextMethods);

}  // namespace aerie::jinja
