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

Value absolute(Call& call) {
  const Value& it = call.subject;
  if (!it.is_number()) return type_error(call.runtime, "abs() needs a number", it);
  if (it.is(Kind::kFloat)) return Value::of(std::fabs(it.real));
  return with_sign(call.runtime, it.as_int() < 0 ? Operator::kSubtract : Operator::kAdd, it);
}

Value truncated(Runtime& runtime, double value, const Value& otherwise) {
  if (std::isnan(value) || std::isinf(value)) return otherwise;
  if (std::fabs(value) >= kIntRange) return too_large_error(runtime);
  return Value::of(static_cast<Int>(value));
}

bool has_only_digits(std::string_view text) {
  return text.size() > 30 && text.find_first_not_of("0123456789+-_ ") == text.npos;
}

Value to_int(Call& call) {
  const Value& it = call.subject;
  if (it.is_undefined()) return undefined_error(call.runtime, it);
  const Value otherwise = call.has(0) ? call[0] : Value::of(Int{0});
  const int64_t base = call.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36)) {
    return call.runtime.fail("int() with a base that is not 0 or 2-36");
  }
  if (it.is_integral()) return Value::of(it.as_int());
  if (it.is(Kind::kFloat)) return truncated(call.runtime, it.real, otherwise);
  if (!it.is_text() || !call.runtime.spend_text(8 * it.view().size())) return otherwise;
  const auto integer = parse_int(it.view(), static_cast<int>(base));
  if (integer) return Value::of(*integer);
  if (has_only_digits(it.view())) return too_large_error(call.runtime);
  const auto value = parse_float(it.view());
  return value ? truncated(call.runtime, *value, otherwise) : otherwise;
}

Value to_float(Call& call) {
  const Value& it = call.subject;
  if (it.is_undefined()) return undefined_error(call.runtime, it);
  if (it.is_number()) return Value::of(it.as_double());
  if (it.is_text() && call.runtime.spend_text(8 * it.view().size())) {
    if (const auto value = parse_float(it.view())) return Value::of(*value);
  }
  return call.has(0) ? call[0] : Value::of(0.0);
}

// Python's round(): to even where two are equally near.
Value round_int(Runtime& runtime, Int value, int64_t places) {
  if (places >= 0) return Value::of(value);
  if (places < -37) return Value::of(Int{0});
  Int unit = 1;
  for (int64_t i = 0; i > places; --i) unit *= 10;
  Int below = value / unit;
  if (value % unit < 0) --below;
  const Int rest = value - below * unit;
  const bool up = rest > unit - rest || (rest == unit - rest && below % 2 != 0);
  Int result = 0;
  if (__builtin_mul_overflow(below + (up ? 1 : 0), unit, &result)) return too_large_error(runtime);
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

Value round(Call& call) {
  const Value& it = call.subject;
  const int64_t places = call.integer(0);
  const std::string_view method = call.string(1, "common");
  if (!it.is_number()) return type_error(call.runtime, "round() needs a number", it);
  if (method == "common") {
    return it.is_integral() ? round_int(call.runtime, it.as_int(), places)
                            : Value::of(round_float(it.real, places));
  }
  if (method != "ceil" && method != "floor") {
    return call.runtime.fail("round() knows the methods 'common', 'ceil' and 'floor'");
  }
  const double unit = std::pow(10.0, static_cast<double>(places));
  const double scaled = it.as_double() * unit;
  if (unit == 0.0 || !std::isfinite(scaled)) {
    return call.runtime.fail("round() of too large a number");
  }
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr Native kAllNumberFilters[] = {
    {"abs", absolute},
    {"float", to_float, {"default"}},
    {"int", to_int, {"default", "base"}},
    {"round", round, {"precision", "method"}},
};

}  // namespace

const Table kNumberFilters(kAllNumberFilters);

}  // namespace aerie::jinja
