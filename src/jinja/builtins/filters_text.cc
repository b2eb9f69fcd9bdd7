// Filters that give text.
#include <fmt/format.h>

#include "jinja/builtins/native.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

// Jinja's own notion of a word, which is not str.title's.
Value title(Call& call) {
  return call.runtime.text(in_case(call.view(), [begins = true](char32_t code) mutable {
    const bool between =
        is_space(code) || (code < 0x80 && std::string_view("-({[<").find(static_cast<char>(code)) !=
                                              std::string_view::npos);
    return std::exchange(begins, between) ? Case::kUpper : Case::kLower;
  }));
}

Value safe(Call& call) {
  return call.subject.text->safe ? call.subject : call.runtime.text(std::string(call.view()), true);
}

Value force_escape(Call& call) {
  TextBuilder out(call.runtime);
  write_escaped(out, call.view());
  return out.value(true);
}

Value escape(Call& call) {
  return call.subject.text->safe ? call.subject : force_escape(call);
}

Value replace(Call& call) {
  for (const size_t i : {0, 1}) call.slots[i] = to_text(call.runtime, call[i]);
  return replaced_text(call);
}

// Spaces by their number, or any text: what indents.
std::string indention_of(const Call& call, size_t i, int64_t otherwise) {
  if (call[i].is_text()) return std::string(call[i].view());
  const int64_t width = call.integer(i, otherwise);
  if (!call.runtime.claim(width, 1)) return "";
  return std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
}

Value indent(Call& call) {
  Runtime& runtime = call.runtime;
  if (!call.subject.is_text()) return type_error(runtime, "indent() needs a string", call.subject);
  const std::string indention = indention_of(call, 0, 4);
  if (!runtime.spend_text(4 * call.view().size())) return {};
  if (!runtime.claim(call.view().size(), 2 * sizeof(std::string_view))) return {};
  // A text that ends with a line end has one more line, which is empty.
  const std::string closed = std::string(call.view()) + '\n';
  const std::vector<std::string_view> lines = split_lines(closed, false);
  TextBuilder out(runtime);
  if (call.flag(1)) out.add(indention);
  for (size_t i = 0; i < lines.size() && !runtime.failed(); ++i) {
    if (i > 0) out.add('\n');
    if (i > 0 && (call.flag(2) || !lines[i].empty())) out.add(indention);
    out.add(lines[i]);
  }
  return out.value();
}

Value truncate(Call& call) {
  const int64_t most = call.integer(0, 255), leeway = call.integer(3, 5);
  const std::string_view text = call.view(), end = call.string(2, "...");
  if (!call.runtime.spend_text(end.size())) return {};
  const auto end_length = static_cast<int64_t>(count_characters(end));
  if (most < end_length || leeway < 0 || leeway > (int64_t{1} << 40)) {
    return call.runtime.fail(
        "truncate() with a length that does not hold its end, or a negative leeway");
  }
  const int64_t size = length(call.runtime, call.subject);
  if (size <= leeway || size - leeway <= most) return call.subject;
  std::string_view kept =
      text.substr(0, character_offset(text, static_cast<size_t>(most - end_length)));
  if (!call.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  TextBuilder out(call.runtime);
  out.add(kept);
  out.add(end);
  return out.value();
}

Value word_count(Call& call) {
  Int count = 0;
  bool inside = false;
  for (std::string_view rest = call.view(); !rest.empty();) {
    const auto [code, size] = next_character(rest);
    const bool word = is_word(code);
    if (word && !inside) ++count;
    inside = word;
    rest.remove_prefix(size);
  }
  return Value::of(count);
}

Value format(Call& call) {
  Runtime& runtime = call.runtime;
  if (call.all.named.empty()) {
    return format_percent(runtime, call.view(), runtime.tuple(call.all.positional));
  }
  if (!call.all.positional.empty()) {
    return runtime.fail("format() takes either names or positions, not both");
  }
  Dict* dict = runtime.dict();
  update_dict(runtime, dict, call.all);
  return format_percent(runtime, call.view(), Value::of(dict));
}

void write_quoted_url(TextBuilder& out, const Value& value, bool query) {
  const Value text = to_text(out.runtime(), value);
  for (const char c : text.view()) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       (c == '/' && !query);
    if (plain) {
      out.add(c);
    } else if (c == ' ' && query) {
      out.add('+');
    } else {
      out.add(fmt::format("%{:02X}", static_cast<unsigned char>(c)));
    }
  }
}

Value url_encode(Call& call) {
  TextBuilder out(call.runtime);
  if (!call.subject.is(Kind::kDict)) {
    write_quoted_url(out, call.subject, false);
    return out.value();
  }
  for (const auto& [key, value] : call.subject.dict->entries) {
    if (!out.text().empty()) out.add('&');
    write_quoted_url(out, key, true);
    out.add('=');
    write_quoted_url(out, value, true);
    if (call.runtime.failed()) break;
  }
  return out.value();
}

// Hugging Face's, not Jinja's: neither escapes HTML nor, unless asked to, what is not ASCII.
Value to_json_filter(Call& call) {
  JsonStyle style;
  style.ascii = call.flag(0);
  style.sort_keys = call.flag(3);
  if (call.given(1)) {
    style.indent = indention_of(call, 1, 0);
    style.item_separator = ",";
  }
  if (call.given(2)) {
    const auto& separators = iterate(call.runtime, call[2])->items;
    if (separators.size() != 2 || !separators[0].is_text() || !separators[1].is_text()) {
      return call.runtime.fail("tojson() needs two strings as separators");
    }
    style.item_separator = separators[0].view();
    style.key_separator = separators[1].view();
  }
  return to_json(call.runtime, call.subject, style);
}

constexpr Native kAllTextFilters[] = {
    of_text("capitalize", capitalized_text),
    of_text("center", centered_text, {"width"}),
    of_text("e", escape),
    of_text("escape", escape),
    of_text("forceescape", force_escape),
    of_text("format", format, {}, 0, true),
    {"indent", indent, {"width", "first", "blank"}},
    of_text("lower", lower_text),
    of_text("replace", replace, {"old", "new", "count"}, 2),
    of_text("safe", safe),
    of_text("string", [](Call& c) { return c.subject; }),
    of_text("title", title),
    {"tojson", to_json_filter, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    of_text("trim", stripped_text, {"chars"}),
    of_text("truncate", truncate, {"length", "killwords", "end", "leeway"}),
    of_text("upper", upper_text),
    {"urlencode", url_encode},
    of_text("wordcount", word_count),
};

}  // namespace

const Table kTextFilters(kAllTextFilters);

}  // namespace aerie::jinja
