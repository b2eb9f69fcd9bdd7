#include <cmath>

#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

Runtime::Failure zero_division(Runtime& runtime) {
  return runtime.fail("division by zero");
}

Value int_power(Runtime& runtime, Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return zero_division(runtime);
    return Value::of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
      return too_large_error(runtime);
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return too_large_error(runtime);
  }
  return Value::of(result);
}

Value int_divide(Runtime& runtime, Operator op, Int a, Int b) {
  if (b == 0) return zero_division(runtime);
  if (op == Operator::kDivide) return Value::of(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (op == Operator::kModulo) return Value::of(Int{0});
    return with_sign(runtime, Operator::kSubtract, Value::of(a));
  }
  const Int remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
  if (op == Operator::kModulo) return Value::of(adjust ? remainder + b : remainder);
  return Value::of(adjust ? a / b - 1 : a / b);
}

Value int_arithmetic(Runtime& runtime, Operator op, Int a, Int b) {
  Int result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower:
      return int_power(runtime, a, b);
    default:
      return int_divide(runtime, op, a, b);
  }
  if (overflow) return too_large_error(runtime);
  return Value::of(result);
}

Value float_divide(Runtime& runtime, Operator op, double a, double b) {
  if (b == 0.0) return zero_division(runtime);
  if (op == Operator::kDivide) return Value::of(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0.0 && (remainder < 0.0) != (b < 0.0)) remainder += b;
  return Value::of(op == Operator::kModulo ? remainder : std::round((a - remainder) / b));
}

Value float_arithmetic(Runtime& runtime, Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::of(a + b);
    case Operator::kSubtract:
      return Value::of(a - b);
    case Operator::kMultiply:
      return Value::of(a * b);
    case Operator::kPower: {
      if (a == 0.0 && b < 0.0) return zero_division(runtime);
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        return runtime.fail("a power that is not a real number");
      }
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return runtime.fail("a power that is too large");
      }
      return Value::of(result);
    }
    default:
      return float_divide(runtime, op, a, b);
  }
}

Value add_texts(Runtime& runtime, const Text& a, const Text& b) {
  const bool safe = a.safe || b.safe;
  TextBuilder out(runtime);
  for (const Text* part : {&a, &b}) {
    if (safe && !part->safe) {
      write_escaped(out, part->view);
    } else {
      out.add(part->view);
    }
  }
  return out.value(safe);
}

Value add_sequences(Runtime& runtime, const Value& a, const Value& b) {
  Sequence* sum =
      runtime.sequence(a.is_tuple() ? Sequence::Flavour::kTuple : Sequence::Flavour::kList);
  runtime.push(sum, a.sequence->items);
  runtime.push(sum, b.sequence->items);
  return Value::of(sum);
}

// 'ab' * 3 and [1] * 3.
Value repeat(Runtime& runtime, const Value& value, Int count) {
  if (value.is_text()) {
    TextBuilder out(runtime);
    out.repeat(value.view(), count);
    return out.value(value.text->safe);
  }
  const auto& items = value.sequence->items;
  Sequence* result = runtime.sequence(value.sequence->flavour);
  if (!runtime.claim(count, items.size() * 2 * sizeof(Value))) return {};
  for (Int i = 0; !items.empty() && i < count; ++i) runtime.push(result, items);
  runtime.spend(result->items.size() / 4);
  return Value::of(result);
}

bool is_repeatable(const Value& value) {
  return value.is_text() || value.is_list() || value.is_tuple();
}

}  // namespace

Runtime::Failure too_large_error(Runtime& runtime) {
  return runtime.fail("an integer does not fit 128 bits");
}

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kConcatenate) {
    TextBuilder out(runtime);
    write_text(out, a);
    write_text(out, b);
    return out.value();
  }
  if (a.is_undefined()) return undefined_error(runtime, a);
  if (op == Operator::kModulo && a.is_text()) return format_percent(runtime, a.view(), b);
  if (b.is_undefined()) return undefined_error(runtime, b);
  if (a.is_integral() && b.is_integral()) {
    return int_arithmetic(runtime, op, a.as_int(), b.as_int());
  }
  if (a.is_number() && b.is_number()) {
    return float_arithmetic(runtime, op, a.as_double(), b.as_double());
  }
  if (op == Operator::kMultiply) {
    if (is_repeatable(a) && b.is_integral()) return repeat(runtime, a, b.as_int());
    if (is_repeatable(b) && a.is_integral()) return repeat(runtime, b, a.as_int());
  }
  if (op == Operator::kAdd) {
    if (a.is_text() && b.is_text()) return add_texts(runtime, *a.text, *b.text);
    if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
      return add_sequences(runtime, a, b);
    }
  }
  return runtime.fail("'{}' does not apply to '{}' and '{}'", spelling(op), type_name(a),
                      type_name(b));
}

Value with_sign(Runtime& runtime, Operator sign, const Value& value) {
  const bool negative = sign == Operator::kSubtract;
  if (value.is(Kind::kFloat)) return Value::of(negative ? -value.real : value.real);
  if (!value.is_integral()) return type_error(runtime, "a sign needs a number", value);
  Int result = value.as_int();
  if (negative && __builtin_sub_overflow(Int{0}, result, &result)) return too_large_error(runtime);
  return Value::of(result);
}

}  // namespace aerie::jinja
