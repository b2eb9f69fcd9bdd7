// Filters that give text.
#include <fmt/format.h>

#include "jinja/builtins/html.h"
#include "jinja/builtins/native.h"
#include "jinja/builtins/text_operations.h"
#include "jinja/values/characters.h"
#include "jinja/values/format.h"
#include "jinja/values/json_values.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

using Map = std::string (*)(std::string_view);

Expected<Value> mapped(Runtime& runtime, const Value& subject, Map map) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  AERIE_RETURN_IF_ERROR(runtime.spend_text(8 * text.view().size()));
  return runtime.text(map(text.view()));
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

// Jinja's own notion of a word, which is not str.title's.
std::string titled(std::string_view text) {
  std::string result;
  bool begins = true;
  while (!text.empty()) {
    const Character character = next_character(text);
    const char32_t code = character.code;
    const bool between =
        is_space(code) ||
        (code < 0x80 && std::string_view("-({[<").find(static_cast<char>(code)) != text.npos);
    if (begins || between) {
      result += to_upper(text.substr(0, character.length));
    } else {
      result += to_lower(text.substr(0, character.length));
    }
    begins = between;
    text.remove_prefix(character.length);
  }
  return result;
}

Expected<Value> title(Runtime& runtime, const Value& subject, const Bound&) {
  return mapped(runtime, subject, titled);
}

Expected<Value> string(Runtime& runtime, const Value& subject, const Bound&) {
  return to_text(runtime, subject);
}

Expected<Value> safe(Runtime& runtime, const Value& subject, const Bound&) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  return text.text->safe ? text : runtime.safe_text(std::string(text.view()));
}

Expected<Value> force_escape(Runtime& runtime, const Value& subject, const Bound&) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  TextBuilder out(runtime);
  write_escaped(out, text.view());
  AERIE_RETURN_IF_ERROR(out.status());
  return runtime.safe_text(out.take());
}

Expected<Value> escape(Runtime& runtime, const Value& subject, const Bound& arguments) {
  if (subject.is_text() && subject.text->safe) return subject;
  return force_escape(runtime, subject, arguments);
}

Expected<Value> trim(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  AERIE_RETURN_IF_ERROR(runtime.spend_text(text.view().size()));
  std::string_view stripped;
  if (arguments.has(0) && !arguments[0].is_none()) {
    AERIE_ASSIGN_OR_RETURN(const Text* chars, text_argument(arguments, 0));
    AERIE_RETURN_IF_ERROR(claim_strip(runtime, *chars));
    stripped = strip(text.view(), &chars->view, {});
  } else {
    stripped = strip(text.view(), nullptr, {});
  }
  if (stripped.size() == text.view().size()) return text;
  return text.text->safe ? runtime.safe_text(std::string(stripped)) : runtime.borrow(stripped);
}

Expected<Value> replace(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  AERIE_ASSIGN_OR_RETURN(const Value old, to_text(runtime, arguments[0]));
  AERIE_ASSIGN_OR_RETURN(const Value by, to_text(runtime, arguments[1]));
  AERIE_ASSIGN_OR_RETURN(const int64_t count, int_argument(arguments, 2, -1));
  return replace_text(runtime, text.view(), old.view(), by.view(), count);
}

Expected<Value> center(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  AERIE_ASSIGN_OR_RETURN(const int64_t width, int_argument(arguments, 0, 80));
  return center_text(runtime, *text.text, width, " ");
}

Expected<Value> indent(Runtime& runtime, const Value& subject, const Bound& arguments) {
  if (!subject.is_text()) {
    return fail(fmt::format("indent() needs a string, not '{}'", type_name(subject)));
  }
  std::string indention;
  if (arguments[0].is_text()) {
    indention = arguments[0].view();
  } else {
    AERIE_ASSIGN_OR_RETURN(const int64_t width, int_argument(arguments, 0, 4));
    AERIE_RETURN_IF_ERROR(runtime.claim(width, 1));
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool blank = arguments.flag(2, false);
  AERIE_RETURN_IF_ERROR(runtime.spend_text(4 * subject.view().size()));
  AERIE_RETURN_IF_ERROR(
      runtime.claim(static_cast<Int>(subject.view().size()), 2 * sizeof(std::string_view)));
  // A text that ends with a line end has one more line, which is empty.
  std::vector<std::string_view> lines = split_lines(subject.view(), false);
  const std::vector<std::string_view> whole = split_lines(subject.view(), true);
  if (whole.empty() || whole.back().size() != lines.back().size()) lines.emplace_back("");
  TextBuilder out(runtime);
  if (arguments.flag(1, false)) out.add(indention);
  for (size_t i = 0; i < lines.size() && !out.full(); ++i) {
    if (i > 0) out.add('\n');
    if (i > 0 && (blank || !lines[i].empty())) out.add(indention);
    out.add(lines[i]);
  }
  return out.value();
}

Expected<Value> truncate(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  AERIE_ASSIGN_OR_RETURN(const int64_t most, int_argument(arguments, 0, 255));
  AERIE_ASSIGN_OR_RETURN(const int64_t leeway, int_argument(arguments, 3, 5));
  std::string_view end = "...";
  if (arguments.has(2)) {
    AERIE_ASSIGN_OR_RETURN(const Text* given, text_argument(arguments, 2));
    end = given->view;
  }
  AERIE_RETURN_IF_ERROR(runtime.spend_text(end.size()));
  const auto end_length = static_cast<int64_t>(count_characters(end));
  if (most < end_length || leeway < 0 || leeway > (int64_t{1} << 40)) {
    return fail("truncate() with a length that does not hold its end, or a negative leeway");
  }
  AERIE_ASSIGN_OR_RETURN(const int64_t size, length(runtime, text));
  if (size <= leeway || size - leeway <= most) return text;
  std::string_view kept =
      text.view().substr(0, character_offset(text.view(), static_cast<size_t>(most - end_length)));
  if (!arguments.flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  TextBuilder out(runtime);
  out.add(kept);
  out.add(end);
  return out.value();
}

Expected<Value> word_count(Runtime& runtime, const Value& subject, const Bound&) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  AERIE_RETURN_IF_ERROR(runtime.spend_text(4 * text.view().size()));
  Int count = 0;
  bool inside = false;
  for (std::string_view rest = text.view(); !rest.empty();) {
    const Character character = next_character(rest);
    const bool word =
        is_letter(character.code) || is_numeric(character.code) || character.code == '_';
    if (word && !inside) ++count;
    inside = word;
    rest.remove_prefix(character.length);
  }
  return Value::of(count);
}

Expected<Value> format(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  const Arguments& given = *arguments.all;
  if (given.named.empty()) {
    Sequence* items = runtime.sequence(Sequence::Flavour::kTuple);
    for (const Value& value : given.positional) runtime.push(items, value);
    return format_percent(runtime, text.view(), Value::of(items));
  }
  if (!given.positional.empty()) return fail("format() takes either names or positions, not both");
  Dict* dict = runtime.dict();
  for (const auto& [name, value] : given.named) {
    AERIE_RETURN_IF_ERROR(runtime.put(dict, runtime.text(std::string(name)), value));
  }
  return format_percent(runtime, text.view(), Value::of(dict));
}

void write_quoted_url(TextBuilder& out, std::string_view text, bool query) {
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != text.npos || (c == '/' && !query);
    if (plain) {
      out.add(c);
    } else if (c == ' ' && query) {
      out.add('+');
    } else {
      out.add(fmt::format("%{:02X}", static_cast<unsigned char>(c)));
    }
  }
}

Expected<Value> url_encode(Runtime& runtime, const Value& subject, const Bound&) {
  TextBuilder out(runtime);
  if (!subject.is(Kind::kDict)) {
    AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
    write_quoted_url(out, text.view(), false);
    return out.value();
  }
  for (const auto& [key, value] : subject.dict->entries) {
    if (!out.text().empty()) out.add('&');
    AERIE_ASSIGN_OR_RETURN(const Value name, to_text(runtime, key));
    AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, value));
    write_quoted_url(out, name.view(), true);
    out.add('=');
    write_quoted_url(out, text.view(), true);
    AERIE_RETURN_IF_ERROR(out.status());
  }
  return out.value();
}

// Hugging Face's, not Jinja's: neither escapes HTML nor, unless asked to, what is not ASCII.
Expected<Value> to_json_filter(Runtime& runtime, const Value& subject, const Bound& arguments) {
  JsonStyle style;
  style.ascii = arguments.flag(0, false);
  style.sort_keys = arguments.flag(3, false);
  if (arguments[1].is_text()) {
    style.indent = std::string(arguments[1].view());
  } else if (arguments.has(1) && !arguments[1].is_none()) {
    AERIE_ASSIGN_OR_RETURN(const int64_t width, int_argument(arguments, 1, 0));
    AERIE_RETURN_IF_ERROR(runtime.claim(width, 1));
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (style.indent) style.item_separator.assign(1, ',');
  if (arguments.has(2) && !arguments[2].is_none()) {
    AERIE_ASSIGN_OR_RETURN(const Sequence* separators, iterate(runtime, arguments[2]));
    if (separators->items.size() != 2 || !separators->items[0].is_text() ||
        !separators->items[1].is_text()) {
      return fail("tojson() needs two strings as separators");
    }
    style.item_separator = separators->items[0].view();
    style.key_separator = separators->items[1].view();
  }
  return to_json(runtime, subject, style);
}

constexpr Native kFilters[] = {
    {"capitalize", capitalize},
    {"center", center, {"width"}},
    {"e", escape},
    {"escape", escape},
    {"forceescape", force_escape},
    {"format", format, {}, 0, true},
    {"indent", indent, {"width", "first", "blank"}},
    {"lower", lower},
    {"replace", replace, {"old", "new", "count"}, 2},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"tojson", to_json_filter, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", trim, {"chars"}},
    {"truncate", truncate, {"length", "killwords", "end", "leeway"}},
    {"upper", upper},
    {"urlencode", url_encode},
    {"wordcount", word_count},
};

}  // namespace

std::span<const Native> text_filters() {
  return kFilters;
}

}  // namespace aerie::jinja
