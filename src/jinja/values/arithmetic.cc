#include <fmt/format.h>

#include <cmath>

#include "jinja/builtins/html.h"
#include "jinja/values/format.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

const char* sign(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
    default:
      return "~";
  }
}

Status beyond() {
  return fail("an integer does not fit 128 bits");
}

Expected<Value> int_power(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return fail("division by zero");
    return Value::of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return beyond();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return beyond();
  }
  return Value::of(result);
}

Expected<Value> int_divide(Operator op, Int a, Int b) {
  if (b == 0) return fail("division by zero");
  if (op == Operator::kDivide) {
    return Value::of(static_cast<double>(a) / static_cast<double>(b));
  }
  if (b == -1) {
    if (op == Operator::kModulo) return Value::of(Int{0});
    return negate(Value::of(a));
  }
  const Int remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
  if (op == Operator::kModulo) return Value::of(adjust ? remainder + b : remainder);
  return Value::of(adjust ? a / b - 1 : a / b);
}

Expected<Value> int_arithmetic(Operator op, Int a, Int b) {
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
      return int_power(a, b);
    default:
      return int_divide(op, a, b);
  }
  if (overflow) return beyond();
  return Value::of(result);
}

Expected<Value> float_divide(Operator op, double a, double b) {
  if (b == 0.0) return fail("division by zero");
  if (op == Operator::kDivide) return Value::of(a / b);
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0.0 && (remainder < 0.0) != (b < 0.0)) {
    remainder += b;
    quotient -= 1.0;
  }
  if (op == Operator::kModulo) return Value::of(remainder);
  const double floor = std::floor(quotient);
  return Value::of(quotient - floor > 0.5 ? floor + 1.0 : floor);
}

Expected<Value> float_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::of(a + b);
    case Operator::kSubtract:
      return Value::of(a - b);
    case Operator::kMultiply:
      return Value::of(a * b);
    case Operator::kPower: {
      if (a == 0.0 && b < 0.0) return fail("division by zero");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        return fail("a power that is not a real number");
      }
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return fail("a power that is too large");
      }
      return Value::of(result);
    }
    default:
      return float_divide(op, a, b);
  }
}

Expected<Value> add_texts(Runtime& runtime, const Text& a, const Text& b) {
  const bool safe = a.safe || b.safe;
  TextBuilder out(runtime);
  for (const Text* part : {&a, &b}) {
    if (safe && !part->safe) {
      write_escaped(out, part->view);
    } else {
      out.add(part->view);
    }
  }
  AERIE_RETURN_IF_ERROR(out.status());
  return safe ? runtime.safe_text(out.take()) : runtime.text(out.take());
}

Expected<Value> add_sequences(Runtime& runtime, const Sequence& a, const Sequence& b) {
  Sequence* sum = runtime.sequence(a.flavour);
  if (a.is_tuple()) sum->flavour = Sequence::Flavour::kTuple;
  AERIE_RETURN_IF_ERROR(runtime.spend((a.items.size() + b.items.size()) / 4));
  for (const Sequence* part : {&a, &b}) {
    for (const Value& item : part->items) runtime.push(sum, item);
  }
  AERIE_RETURN_IF_ERROR(runtime.spend());
  return Value::of(sum);
}

// 'ab' * 3 and [1] * 3.
Expected<Value> repeat(Runtime& runtime, const Value& value, Int count) {
  if (count < 0) count = 0;
  if (value.is_text()) {
    const std::string_view text = value.view();
    AERIE_RETURN_IF_ERROR(runtime.claim(text.empty() ? Int{0} : count, text.size()));
    TextBuilder out(runtime);
    for (Int i = 0; !text.empty() && i < count; ++i) out.add(text);
    AERIE_RETURN_IF_ERROR(out.status());
    return value.text->safe ? runtime.safe_text(out.take()) : runtime.text(out.take());
  }
  const auto& items = value.sequence->items;
  Sequence* result = runtime.sequence(value.sequence->flavour);
  if (items.empty()) return Value::of(result);
  AERIE_RETURN_IF_ERROR(runtime.claim(count, items.size() * 2 * sizeof(Value)));
  AERIE_RETURN_IF_ERROR(runtime.spend(static_cast<uint64_t>(count) * items.size() / 4));
  for (Int i = 0; i < count; ++i) {
    for (const Value& item : items) runtime.push(result, item);
  }
  return Value::of(result);
}

bool is_repeatable(const Value& value) {
  return value.is_text() ||
         (value.is(Kind::kSequence) &&
          (value.sequence->flavour == Sequence::Flavour::kList || value.sequence->is_tuple()));
}

}  // namespace

Expected<Value> arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kConcatenate) {
    TextBuilder out(runtime);
    write_text(out, runtime, a);
    write_text(out, runtime, b);
    return out.value();
  }
  if (a.is_undefined()) return undefined_error(a);
  if (op == Operator::kModulo && a.is_text()) return format_percent(runtime, a.view(), b);
  if (b.is_undefined()) return undefined_error(b);
  if (a.is_integral() && b.is_integral()) return int_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.as_double(), b.as_double());
  if (op == Operator::kMultiply) {
    if (is_repeatable(a) && b.is_integral()) return repeat(runtime, a, b.as_int());
    if (is_repeatable(b) && a.is_integral()) return repeat(runtime, b, a.as_int());
  }
  if (op == Operator::kAdd) {
    if (a.is_text() && b.is_text()) return add_texts(runtime, *a.text, *b.text);
    if (is_repeatable(a) && is_repeatable(b) && !a.is_text() && !b.is_text() &&
        a.sequence->is_tuple() == b.sequence->is_tuple()) {
      return add_sequences(runtime, *a.sequence, *b.sequence);
    }
  }
  return fail(
      fmt::format("'{}' does not apply to '{}' and '{}'", sign(op), type_name(a), type_name(b)));
}

Expected<Value> negate(const Value& value) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.is(Kind::kFloat)) return Value::of(-value.real);
  if (!value.is_integral())
    return fail(fmt::format("'-' does not apply to '{}'", type_name(value)));
  Int result = 0;
  if (__builtin_sub_overflow(Int{0}, value.as_int(), &result)) return beyond();
  return Value::of(result);
}

}  // namespace aerie::jinja
