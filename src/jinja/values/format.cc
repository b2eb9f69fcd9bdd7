#include "jinja/values/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "format/text.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

constexpr int kMostPrecision = 100;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ = or none
  char sign = '-';    // - + or a space
  bool alternate = false;
  bool comma = false;
  int64_t width = 0;
  int64_t precision = -1;  // none
  char type = '\0';
};

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

// The number at the beginning of `rest`, if there is one; more than a string can hold stays large.
int64_t take_number(std::string_view& rest, int64_t otherwise) {
  if (rest.empty() || !is_ascii_digit(rest[0])) return otherwise;
  int64_t value = 0;
  while (!rest.empty() && is_ascii_digit(rest[0])) {
    value = std::min<int64_t>(value * 10 + (rest[0] - '0'), int64_t{1} << 40);
    rest.remove_prefix(1);
  }
  return value;
}

std::string with_commas(std::string digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string int_digits(Int value, char type) {
  const auto bits = static_cast<unsigned __int128>(value < 0 ? -value : value);
  switch (type) {
    case 'x':
      return fmt::format("{:x}", bits);
    case 'X':
      return fmt::format("{:X}", bits);
    case 'o':
      return fmt::format("{:o}", bits);
    case 'b':
      return fmt::format("{:b}", bits);
    default:
      return fmt::format("{}", bits);
  }
}

std::string_view int_prefix(char type) {
  switch (type) {
    case 'x':
      return "0x";
    case 'X':
      return "0X";
    case 'o':
      return "0o";
    case 'b':
      return "0b";
    default:
      return "";
  }
}

std::string float_digits(double value, const Spec& spec) {
  const double size = std::fabs(value);
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  switch (spec.type) {
    case 'e':
      return fmt::format("{:.{}e}", size, precision);
    case 'E':
      return fmt::format("{:.{}E}", size, precision);
    case 'g':
      return fmt::format("{:.{}g}", size, precision);
    case 'G':
      return fmt::format("{:.{}G}", size, precision);
    case '%':
      return fmt::format("{:.{}f}%", size * 100.0, precision);
    case '\0':
      if (spec.precision < 0) return float_text(size);
      return fmt::format("{:.{}g}", size, precision);
    default:
      return fmt::format("{:.{}f}", size, precision);
  }
}

Status pad(TextBuilder& out, Runtime& runtime, std::string_view sign, std::string_view body,
           const Spec& spec, char natural) {
  const auto used = static_cast<int64_t>(count_characters(sign) + count_characters(body));
  const int64_t missing = std::max<int64_t>(0, spec.width - used);
  AERIE_RETURN_IF_ERROR(runtime.claim(missing, spec.fill.size()));
  const char align = spec.align == '\0' ? natural : spec.align;
  const int64_t before = align == '<' || align == '=' ? 0 : align == '^' ? missing / 2 : missing;
  for (int64_t i = 0; i < before; ++i) out.add(spec.fill);
  out.add(sign);
  for (int64_t i = 0; align == '=' && i < missing; ++i) out.add(spec.fill);
  out.add(body);
  for (int64_t i = before; align != '=' && i < missing; ++i) out.add(spec.fill);
  return out.status();
}

Status write_number(TextBuilder& out, Runtime& runtime, const Value& value, const Spec& spec) {
  if (value.is_undefined()) return undefined_error(value);
  if (!value.is_number()) {
    return fail(fmt::format("a number is needed for '{}', not '{}'", spec.type, type_name(value)));
  }
  if (spec.precision > kMostPrecision) {
    return {StatusCode::kResourceExhausted,
            fmt::format("a format with more than {} decimal places", kMostPrecision)};
  }
  const bool integral = std::string_view("dixXobu").find(spec.type) != std::string_view::npos ||
                        (spec.type == '\0' && value.is_integral());
  if (integral && !value.is_integral()) {
    if (spec.type != 'd' && spec.type != 'i') return fail("an integer is needed in a format");
    if (!(std::fabs(value.real) < 1e38)) return fail("a float that is no integer in a format");
  }
  std::string digits;
  bool negative;
  if (integral) {
    const Int number = value.is_integral() ? value.as_int() : static_cast<Int>(value.real);
    negative = number < 0;
    digits = int_digits(number, spec.type);
  } else {
    negative = std::signbit(value.as_double());
    digits = float_digits(value.as_double(), spec);
  }
  if (spec.comma) digits = with_commas(std::move(digits));
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (integral && spec.alternate) sign += int_prefix(spec.type);
  return pad(out, runtime, sign, digits, spec, '>');
}

// Text, cut to the precision. `repr` for %r and !r.
Status write_as_text(TextBuilder& out, Runtime& runtime, const Value& value, const Spec& spec,
                     bool repr) {
  TextBuilder body(runtime);
  if (repr) {
    write_repr(body, runtime, value);
  } else {
    write_text(body, runtime, value);
  }
  AERIE_RETURN_IF_ERROR(body.status());
  std::string_view text = body.text();
  if (spec.precision >= 0) {
    text = text.substr(0, character_offset(text, static_cast<size_t>(spec.precision)));
  }
  return pad(out, runtime, "", text, spec, '<');
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, std::string_view pattern, const Value& arguments)
      : runtime_(runtime), rest_(pattern), arguments_(arguments), out_(runtime) {
    const bool tuple = arguments.is(Kind::kSequence) && arguments.sequence->is_tuple();
    items_ = tuple ? arguments.sequence->items : std::vector<Value>{arguments};
  }

  Expected<Value> run() {
    while (!rest_.empty()) {
      const size_t percent = std::min(rest_.find('%'), rest_.size());
      out_.add(rest_.substr(0, percent));
      rest_.remove_prefix(percent);
      if (rest_.empty()) break;
      rest_.remove_prefix(1);
      AERIE_RETURN_IF_ERROR(conversion());
      AERIE_RETURN_IF_ERROR(runtime_.spend());
    }
    const bool by_name = arguments_.is(Kind::kDict);
    if (next_ < items_.size() && !by_name) return fail("a format with too many arguments");
    return out_.value();
  }

 private:
  Status conversion() {
    Value named = Value::absent();
    if (!rest_.empty() && rest_[0] == '(') {
      const size_t end = rest_.find(')');
      if (end == rest_.npos) return fail("a format whose %( does not end");
      if (!arguments_.is(Kind::kDict)) return fail("a format with names needs a dict");
      const Value key = runtime_.text(std::string(rest_.substr(1, end - 1)));
      AERIE_ASSIGN_OR_RETURN(const int64_t place, runtime_.find(arguments_.dict, key));
      if (place < 0) return fail(fmt::format("a format needs '{}'", printable(key.view())));
      named = arguments_.dict->entries[static_cast<size_t>(place)].second;
      rest_.remove_prefix(end + 1);
    }
    Spec spec;
    flags(spec);
    AERIE_ASSIGN_OR_RETURN(spec.width, number_or_star(0));
    if (!rest_.empty() && rest_[0] == '.') {
      rest_.remove_prefix(1);
      AERIE_ASSIGN_OR_RETURN(spec.precision, number_or_star(0));
    }
    if (rest_.empty()) return fail("a format that ends after %");
    spec.type = rest_[0];
    rest_.remove_prefix(1);
    if (spec.type == '%') {
      out_.add('%');
      return {};
    }
    if (named.is_absent()) {
      AERIE_ASSIGN_OR_RETURN(named, next());
    }
    return convert(spec, named);
  }

  void flags(Spec& spec) {
    for (; !rest_.empty(); rest_.remove_prefix(1)) {
      switch (rest_[0]) {
        case '-':
          spec.align = '<';
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          if (spec.sign != '+') spec.sign = ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          zero_ = true;
          break;
        default:
          return;
      }
    }
  }

  Expected<int64_t> number_or_star(int64_t otherwise) {
    if (rest_.empty() || rest_[0] != '*') return take_number(rest_, otherwise);
    rest_.remove_prefix(1);
    AERIE_ASSIGN_OR_RETURN(const Value value, next());
    if (!value.is_integral()) return fail("* in a format wants an integer");
    return static_cast<int64_t>(
        std::clamp<Int>(value.as_int(), 0, static_cast<Int>(int64_t{1} << 40)));
  }

  Expected<Value> next() {
    if (next_ == items_.size()) return fail("a format with too few arguments");
    return items_[next_++];
  }

  Status convert(Spec& spec, const Value& value) {
    const bool zero = std::exchange(zero_, false);
    if (spec.align == '\0') spec.align = '>';
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        return write_as_text(out_, runtime_, value, spec, spec.type != 's');
      case 'c':
        if (value.is_text()) return write_as_text(out_, runtime_, value, spec, false);
        return fail("%c of a number");
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (zero && spec.align != '<') {
          spec.fill.assign(1, '0');
          spec.align = '=';
        }
        return write_number(out_, runtime_, value, spec);
      default:
        return fail(fmt::format("a format with the unknown conversion '{}'",
                                printable(std::string_view(&spec.type, 1))));
    }
  }

  Runtime& runtime_;
  std::string_view rest_;
  const Value& arguments_;
  std::vector<Value> items_;
  size_t next_ = 0;
  bool zero_ = false;
  TextBuilder out_;
};

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

Expected<Spec> parse_spec(std::string_view text) {
  Spec spec;
  std::string_view rest = text;
  const size_t first = rest.empty() ? 0 : next_character(rest).length;
  if (rest.size() > first && is_align(rest[first])) {
    spec.fill = std::string(rest.substr(0, first));
    spec.align = rest[first];
    rest.remove_prefix(first + 1);
  } else if (!rest.empty() && is_align(rest[0])) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  const auto take = [&](char c) {
    if (rest.empty() || rest[0] != c) return false;
    rest.remove_prefix(1);
    return true;
  };
  if (take('+')) {
    spec.sign = '+';
  } else if (take(' ')) {
    spec.sign = ' ';
  } else {
    take('-');
  }
  spec.alternate = take('#');
  if (take('0') && spec.align == '\0') {
    spec.fill.assign(1, '0');
    spec.align = '=';
  }
  spec.width = take_number(rest, 0);
  spec.comma = take(',');
  if (take('.')) {
    spec.precision = take_number(rest, -1);
    if (spec.precision < 0) return fail("a format that has a '.' without a number");
  }
  if (!rest.empty()) {
    spec.type = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty() || std::string_view("dxXobeEfFgGs%\0", 14).find(spec.type) == text.npos) {
    return fail(fmt::format("the format '{}' is not known", printable(text)));
  }
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, std::string_view pattern, const Arguments& arguments)
      : runtime_(runtime), rest_(pattern), arguments_(arguments), out_(runtime) {}

  Expected<Value> run() {
    while (!rest_.empty()) {
      const size_t brace = std::min(rest_.find_first_of("{}"), rest_.size());
      out_.add(rest_.substr(0, brace));
      rest_.remove_prefix(brace);
      if (rest_.empty()) break;
      if (rest_.size() > 1 && rest_[1] == rest_[0]) {
        out_.add(rest_[0]);
        rest_.remove_prefix(2);
        continue;
      }
      const size_t end = rest_.find('}');
      if (rest_[0] == '}' || end == rest_.npos) return fail("a format with a single brace");
      AERIE_RETURN_IF_ERROR(field(rest_.substr(1, end - 1)));
      AERIE_RETURN_IF_ERROR(runtime_.spend());
      rest_.remove_prefix(end + 1);
    }
    return out_.value();
  }

 private:
  Status field(std::string_view text) {
    const size_t colon = std::min(text.find(':'), text.size());
    AERIE_ASSIGN_OR_RETURN(const Spec spec,
                           parse_spec(colon < text.size() ? text.substr(colon + 1) : ""));
    text = text.substr(0, colon);
    const bool repr = text.ends_with("!r");
    if (repr || text.ends_with("!s")) text.remove_suffix(2);
    AERIE_ASSIGN_OR_RETURN(const Value value, argument(text));
    const bool as_text = repr || colon == rest_.npos || spec.type == 's' || !value.is_number() ||
                         (value.is(Kind::kBool) && spec.type == '\0');
    if (!as_text) return write_number(out_, runtime_, value, spec);
    if (!value.is_text() && !repr && spec.type != '\0' && spec.type != 's') {
      return fail(
          fmt::format("the format '{}' does not apply to '{}'", spec.type, type_name(value)));
    }
    return write_as_text(out_, runtime_, value, spec, repr);
  }

  // "", "0" or "name", then .attribute and [item].
  Expected<Value> argument(std::string_view text) {
    const size_t end = std::min(text.find_first_of(".["), text.size());
    AERIE_ASSIGN_OR_RETURN(Value value, first(text.substr(0, end)));
    text.remove_prefix(end);
    while (!text.empty()) {
      const bool item = text[0] == '[';
      text.remove_prefix(1);
      const size_t stop = item ? text.find(']') : std::min(text.find_first_of(".["), text.size());
      if (stop == text.npos) return fail("a format with a single bracket");
      AERIE_ASSIGN_OR_RETURN(
          value, get_path(runtime_, value, runtime_.text(std::string(text.substr(0, stop)))));
      text.remove_prefix(item ? stop + 1 : stop);
    }
    return value;
  }

  Expected<Value> first(std::string_view name) {
    const bool number = name.find_first_not_of("0123456789") == name.npos;
    if (!number) {
      AERIE_RETURN_IF_ERROR(runtime_.spend(arguments_.named.size() / 8));
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      return fail(fmt::format("a format needs '{}'", printable(name)));
    }
    const size_t place = name.empty() ? next_++ : static_cast<size_t>(take_number(name, 0));
    if (place >= arguments_.positional.size()) return fail("a format with too few arguments");
    return arguments_.positional[place];
  }

  Runtime& runtime_;
  std::string_view rest_;
  const Arguments& arguments_;
  size_t next_ = 0;
  TextBuilder out_;
};

}  // namespace

Expected<Value> format_percent(Runtime& runtime, std::string_view pattern, const Value& arguments) {
  return PercentFormatter(runtime, pattern, arguments).run();
}

Expected<Value> format_braces(Runtime& runtime, std::string_view pattern,
                              const Arguments& arguments) {
  return BraceFormatter(runtime, pattern, arguments).run();
}

}  // namespace aerie::jinja
