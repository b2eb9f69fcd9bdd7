// Python's two ways of formatting: '%s' % x and '{}'.format(x).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "format/text.h"
#include "jinja/builtins/native.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

constexpr int64_t kMostPrecision = 100;

struct Spec {
  std::string_view fill = " ";
  char align = '\0';  // < > ^ = or none
  char sign = '-';    // - + or a space
  bool alternate = false;
  bool comma = false;
  int64_t width = 0;
  int64_t precision = -1;  // none
  char type = '\0';
};

bool is_one_of(char c, std::string_view characters) {
  return characters.find(c) != characters.npos;
}

bool take(std::string_view& rest, char c) {
  if (!rest.starts_with(c)) return false;
  rest.remove_prefix(1);
  return true;
}

// The number at the beginning of `rest`, if there is one; more than a string can hold stays large.
int64_t take_number(std::string_view& rest, int64_t otherwise) {
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits == 0) return otherwise;
  int64_t value = 0;
  for (const char c : rest.substr(0, digits)) {
    value = std::min<int64_t>(value * 10 + (c - '0'), int64_t{1} << 40);
  }
  rest.remove_prefix(digits);
  return value;
}

// `before` and `after` with what they lack to the width in front, between or behind them.
void pad(TextBuilder& out, std::string_view before, std::string_view after, const Spec& spec,
         char natural) {
  const size_t used = count_characters(before) + count_characters(after);
  const int64_t lacking = std::max<int64_t>(0, spec.width - static_cast<int64_t>(used));
  const char align = spec.align == '\0' ? natural : spec.align;
  const int64_t left = align == '^' ? lacking / 2 : align == '>' ? lacking : 0;
  out.repeat(spec.fill, left);
  out.add(before);
  if (align == '=') out.repeat(spec.fill, lacking);
  out.add(after);
  if (align != '=') out.repeat(spec.fill, lacking - left);
}

// Without width, as fmt writes it, whose formats have the same letters.
template <typename T>
std::string digits_of(const Spec& spec, char type, T value) {
  std::string format = "{:";
  if (spec.precision >= 0) format += fmt::format(".{}", spec.precision);
  if (type != '\0') format += type;
  return fmt::format(fmt::runtime(format + "}"), value);
}

std::string float_digits(const Spec& spec, double value) {
  if (spec.type == '%') return digits_of(spec, 'f', value * 100.0) + '%';
  if (spec.type != '\0') return digits_of(spec, spec.type, value);
  return spec.precision < 0 ? float_text(value) : digits_of(spec, 'g', value);
}

void write_number(TextBuilder& out, const Value& value, const Spec& spec) {
  Runtime& runtime = out.runtime();
  const bool has_base = is_one_of(spec.type, "xXob");
  const bool as_integer =
      spec.type == 'd' || has_base || (spec.type == '\0' && value.is_integral());
  if (!value.is_number()) {
    type_error(runtime, fmt::format("a number is needed for '{}'", spec.type), value);
  } else if (spec.precision > kMostPrecision) {
    runtime.fail(resource_exhausted("a format with more than {} decimal places", kMostPrecision));
  } else if (as_integer && !value.is_integral() && (has_base || !(std::fabs(value.real) < 1e38))) {
    runtime.fail("an integer is needed in a format");
  }
  if (runtime.failed()) return;
  std::string digits;
  if (as_integer) {
    const Int number = value.is_integral() ? value.as_int() : static_cast<Int>(value.real);
    digits = digits_of(Spec(), spec.type, number);
  } else {
    digits = float_digits(spec, value.as_double());
  }
  const bool negative = digits[0] == '-';
  if (negative) digits.erase(0, 1);
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; spec.comma && at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (has_base && spec.alternate) sign += {'0', spec.type};
  pad(out, sign, digits, spec, '>');
}

// Text, cut to the precision. `repr` for %r and !r.
void write_as_text(TextBuilder& out, const Value& value, const Spec& spec, bool repr) {
  TextBuilder body(out.runtime());
  if (repr) {
    write_repr(body, value);
  } else {
    write_text(body, value);
  }
  std::string_view text = body.text();
  if (spec.precision >= 0) {
    text = text.substr(0, character_offset(text, static_cast<size_t>(spec.precision)));
  }
  pad(out, "", text, spec, '<');
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, std::string_view pattern, const Value& arguments)
      : runtime_(runtime), rest_(pattern), arguments_(arguments), out_(runtime) {
    items_ = arguments.is_tuple() ? arguments.sequence->items : std::vector<Value>{arguments};
  }

  Value run() {
    for (;;) {
      out_.add(take_until(rest_, "%"));
      if (rest_.empty() || !runtime_.spend()) break;
      rest_.remove_prefix(1);
      conversion();
    }
    if (next_ < items_.size() && !arguments_.is(Kind::kDict)) {
      return runtime_.fail("a format with too many arguments");
    }
    return out_.value();
  }

 private:
  void conversion() {
    Value value = named();
    Spec spec;
    spec.align = '>';
    const bool zero = flags(spec);
    spec.width = number_or_star(0);
    if (take(rest_, '.')) spec.precision = number_or_star(0);
    if (rest_.empty()) {
      runtime_.fail("a format that ends after %");
      return;
    }
    spec.type = rest_[0];
    rest_.remove_prefix(1);
    if (spec.type == '%') return out_.add('%');
    if (value.is_absent()) value = next();
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    if (is_one_of(spec.type, "dxXoeEfFgG")) {
      if (zero && spec.align != '<') {
        spec.fill = "0";
        spec.align = '=';
      }
      write_number(out_, value, spec);
    } else if (spec.type == 'c' && !value.is_text()) {
      runtime_.fail("%c of a number");
    } else if (is_one_of(spec.type, "srac")) {
      write_as_text(out_, value, spec, spec.type == 'r' || spec.type == 'a');
    } else {
      runtime_.fail("a format with the unknown conversion '{}'",
                    printable(std::string_view(&spec.type, 1)));
    }
  }

  // What %(name) stands for; absent if there is no name.
  Value named() {
    if (!take(rest_, '(')) return Value::absent();
    const Value key = runtime_.text(take_until(rest_, ")"));
    if (!take(rest_, ')')) return runtime_.fail("a format whose %( does not end");
    if (!arguments_.is(Kind::kDict)) return runtime_.fail("a format with names needs a dict");
    const Dict::Entry* entry = runtime_.find(arguments_.dict, key);
    if (entry != nullptr) return entry->second;
    return runtime_.fail("a format needs '{}'", printable(key.view()));
  }

  // Whether there is a zero among them.
  bool flags(Spec& spec) {
    bool zero = false;
    for (; !rest_.empty() && is_one_of(rest_[0], "-+ #0"); rest_.remove_prefix(1)) {
      const char flag = rest_[0];
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      spec.alternate = spec.alternate || flag == '#';
      zero = zero || flag == '0';
    }
    return zero;
  }

  int64_t number_or_star(int64_t otherwise) {
    if (!take(rest_, '*')) return take_number(rest_, otherwise);
    const Value value = next();
    if (!value.is_integral()) return runtime_.fail("* in a format wants an integer");
    return static_cast<int64_t>(std::clamp<Int>(value.as_int(), 0, Int{1} << 40));
  }

  Value next() {
    if (next_ == items_.size()) return runtime_.fail("a format with too few arguments");
    return items_[next_++];
  }

  Runtime& runtime_;
  std::string_view rest_;
  const Value& arguments_;
  std::vector<Value> items_;
  size_t next_ = 0;
  TextBuilder out_;
};

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, std::string_view pattern, const Arguments& arguments)
      : runtime_(runtime), rest_(pattern), arguments_(arguments), out_(runtime) {}

  Value run() {
    for (;;) {
      out_.add(take_until(rest_, "{}"));
      if (rest_.empty() || !runtime_.spend()) break;
      if (rest_.size() > 1 && rest_[1] == rest_[0]) {
        out_.add(rest_[0]);
        rest_.remove_prefix(2);
        continue;
      }
      const size_t end = rest_.find('}');
      if (rest_[0] == '}' || end == rest_.npos) {
        return runtime_.fail("a format with a single brace");
      }
      field(rest_.substr(1, end - 1));
      rest_.remove_prefix(end + 1);
    }
    return out_.value();
  }

 private:
  void field(std::string_view text) {
    std::string_view name = take_until(text, ":");
    take(text, ':');
    const Spec spec = parse_spec(text);
    const bool repr = name.ends_with("!r");
    if (repr || name.ends_with("!s")) name.remove_suffix(2);
    const Value value = argument(name);
    const bool of_text = spec.type == '\0' || spec.type == 's';
    const bool number = !repr && value.is_number() && spec.type != 's' &&
                        !(value.is(Kind::kBool) && spec.type == '\0');
    if (number) return write_number(out_, value, spec);
    if (!value.is_text() && !repr && !of_text) {
      runtime_.fail("the format '{}' does not apply to '{}'", spec.type, type_name(value));
      return;
    }
    write_as_text(out_, value, spec, repr);
  }

  Spec parse_spec(std::string_view text) {
    Spec spec;
    std::string_view rest = text;
    // One character may stand before the alignment.
    for (const size_t at : {rest.empty() ? 0 : size_t{next_character(rest).length}, size_t{0}}) {
      if (at >= rest.size() || !is_one_of(rest[at], "<>^=")) continue;
      if (at > 0) spec.fill = rest.substr(0, at);
      spec.align = rest[at];
      rest.remove_prefix(at + 1);
      break;
    }
    if (rest.starts_with('+') || rest.starts_with(' ')) spec.sign = rest[0];
    if (rest.starts_with(spec.sign)) rest.remove_prefix(1);
    spec.alternate = take(rest, '#');
    if (take(rest, '0') && spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    spec.width = take_number(rest, 0);
    spec.comma = take(rest, ',');
    if (take(rest, '.')) {
      spec.precision = take_number(rest, -1);
      if (spec.precision < 0) return runtime_.fail("a format that has a '.' without a number");
    }
    if (!rest.empty()) spec.type = rest[0];
    if (rest.size() > 1 || !is_one_of(spec.type, {"dxXobeEfFgGs%\0", 14})) {
      return runtime_.fail("the format '{}' is not known", printable(text));
    }
    return spec;
  }

  // "", "0" or "name", then .attribute and [item].
  Value argument(std::string_view text) {
    Value value = first(take_until(text, ".["));
    while (!text.empty() && !runtime_.failed()) {
      const bool item = text[0] == '[';
      text.remove_prefix(1);
      const std::string_view key = take_until(text, item ? "]" : ".[");
      if (item && !take(text, ']')) return runtime_.fail("a format with a single bracket");
      value = get_path(runtime_, value, runtime_.text(key));
    }
    return value;
  }

  Value first(std::string_view name) {
    if (name.find_first_not_of("0123456789") != name.npos) {
      runtime_.spend(arguments_.named.size() / 8);
      const Value value = arguments_.find(name);
      if (!value.is_absent()) return value;
      return runtime_.fail("a format needs '{}'", printable(name));
    }
    const size_t place = name.empty() ? next_++ : static_cast<size_t>(take_number(name, 0));
    if (place < arguments_.positional.size()) return arguments_.positional[place];
    return runtime_.fail("a format with too few arguments");
  }

  Runtime& runtime_;
  std::string_view rest_;
  const Arguments& arguments_;
  size_t next_ = 0;
  TextBuilder out_;
};

}  // namespace

Value format_percent(Runtime& runtime, std::string_view pattern, const Value& arguments) {
  return PercentFormatter(runtime, pattern, arguments).run();
}

Value format_braces(Runtime& runtime, std::string_view pattern, const Arguments& arguments) {
  return BraceFormatter(runtime, pattern, arguments).run();
}

}  // namespace aerie::jinja
