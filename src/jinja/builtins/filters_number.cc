// Filters of numbers.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "jinja/builtins/native.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

constexpr double kIntRange = 1.7e38;  // less than 2^127
constexpr int64_t kMostPlaces = 300;  // beyond a double's

Expected<Value> absolute(Runtime&, const Value& subject, const Bound&) {
  if (subject.is_undefined()) return undefined_error(subject);
  if (subject.is(Kind::kFloat)) return Value::of(std::fabs(subject.real));
  if (!subject.is_integral()) {
    return fail(fmt::format("abs() needs a number, not '{}'", type_name(subject)));
  }
  if (subject.as_int() < 0) return negate(subject);
  return Value::of(subject.as_int());
}

Expected<Value> truncated(double value, const Value& otherwise) {
  if (std::isnan(value) || std::isinf(value)) return otherwise;
  if (std::fabs(value) >= kIntRange) return fail("an integer does not fit 128 bits");
  return Value::of(static_cast<Int>(value));
}

bool has_only_digits(std::string_view text) {
  return text.size() > 30 && text.find_first_not_of("0123456789+-_ ") == text.npos;
}

Expected<Value> to_int(Runtime& runtime, const Value& subject, const Bound& arguments) {
  if (subject.is_undefined()) return undefined_error(subject);
  const Value otherwise = arguments.has(0) ? arguments[0] : Value::of(Int{0});
  AERIE_ASSIGN_OR_RETURN(const int64_t base, int_argument(arguments, 1, 10));
  if (base != 0 && (base < 2 || base > 36)) return fail("int() with a base that is not 0 or 2-36");
  if (subject.is_integral()) return Value::of(subject.as_int());
  if (subject.is(Kind::kFloat)) return truncated(subject.real, otherwise);
  if (!subject.is_text()) return otherwise;
  AERIE_RETURN_IF_ERROR(runtime.spend_text(8 * subject.view().size()));
  if (const auto value = parse_int(subject.view(), static_cast<int>(base))) {
    return Value::of(*value);
  }
  if (has_only_digits(subject.view())) return fail("an integer does not fit 128 bits");
  const auto value = parse_float(subject.view());
  return value ? truncated(*value, otherwise) : otherwise;
}

Expected<Value> to_float(Runtime& runtime, const Value& subject, const Bound& arguments) {
  if (subject.is_undefined()) return undefined_error(subject);
  if (subject.is_number()) return Value::of(subject.as_double());
  if (subject.is_text()) {
    AERIE_RETURN_IF_ERROR(runtime.spend_text(8 * subject.view().size()));
    if (const auto value = parse_float(subject.view())) return Value::of(*value);
  }
  return arguments.has(0) ? arguments[0] : Value::of(0.0);
}

// Python's round(): to even where two are equally near.
Expected<Value> round_int(Int value, int64_t places) {
  if (places >= 0) return Value::of(value);
  if (places < -37) return Value::of(Int{0});
  Int unit = 1;
  for (int64_t i = 0; i > places; --i) unit *= 10;
  Int below = value / unit;
  if (value % unit < 0) --below;
  const Int rest = value - below * unit;
  const bool up = rest > unit - rest || (rest == unit - rest && below % 2 != 0);
  Int result = 0;
  if (__builtin_mul_overflow(below + (up ? 1 : 0), unit, &result)) {
    return fail("an integer does not fit 128 bits");
  }
  return Value::of(result);
}

double round_float(double value, int64_t places) {
  if (!std::isfinite(value)) return value;
  if (places >= 0) {
    // The decimal that is printed is rounded from the exact binary value.
    const auto text = fmt::format("{:.{}f}", value, std::min(places, kMostPlaces));
    return std::strtod(text.c_str(), nullptr);
  }
  if (places < -kMostPlaces) return std::copysign(0.0, value);
  const double unit = std::pow(10.0, static_cast<double>(-places));
  return std::nearbyint(value / unit) * unit;
}

Expected<Value> round(Runtime&, const Value& subject, const Bound& arguments) {
  if (subject.is_undefined()) return undefined_error(subject);
  AERIE_ASSIGN_OR_RETURN(const int64_t places, int_argument(arguments, 0, 0));
  std::string_view method = "common";
  if (arguments.has(1)) {
    AERIE_ASSIGN_OR_RETURN(const Text* text, text_argument(arguments, 1));
    method = text->view;
  }
  if (!subject.is_number()) {
    return fail(fmt::format("round() needs a number, not '{}'", type_name(subject)));
  }
  if (method == "common") {
    if (subject.is_integral()) return round_int(subject.as_int(), places);
    return Value::of(round_float(subject.real, places));
  }
  if (method != "ceil" && method != "floor") {
    return fail("round() knows the methods 'common', 'ceil' and 'floor'");
  }
  const double unit = std::pow(10.0, static_cast<double>(places));
  const double scaled = subject.as_double() * unit;
  if (unit == 0.0 || !std::isfinite(scaled)) return fail("round() of too large a number");
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr Native kFilters[] = {
    {"abs", absolute},
    {"float", to_float, {"default"}},
    {"int", to_int, {"default", "base"}},
    {"round", round, {"precision", "method"}},
};

}  // namespace

std::span<const Native> number_filters() {
  return kFilters;
}

}  // namespace aerie::jinja
