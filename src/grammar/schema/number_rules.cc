#include "grammar/schema/number_rules.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace aerie::grammar {
namespace {

constexpr int kMaxRuleDigits = 18;
constexpr int kMaxRealDigits = 15;

Decimal power_of_ten(int exponent) {
  Decimal value = 1;
  for (int i = 0; i < exponent; ++i) value *= 10;
  return value;
}

Decimal floor_divide(Decimal value, Decimal by) {
  return value / by - (value % by < 0 ? 1 : 0);
}

Decimal ceil_divide(Decimal value, Decimal by) {
  return -floor_divide(-value, by);
}

int digit_count(Decimal value) {
  int count = 1;
  for (value = value < 0 ? -value : value; value >= 10; value /= 10) ++count;
  return count;
}

std::string digits_of(Decimal value, int width) {
  std::string digits(static_cast<size_t>(width), '0');
  for (size_t i = digits.size(); i-- > 0; value /= 10) {
    digits[i] = static_cast<char>('0' + static_cast<int>(value % 10));
  }
  return digits;
}

// Numbers without sign, digit by digit: how many are left, whether all so far are a bound's, and
// what is left when they are divided. What follows once no bound matters any more is shared by
// numbers of all lengths.
class DigitRules {
 public:
  // The multiple is in units of the last place.
  DigitRules(int behind, int64_t multiple_of, bool fraction, RuleSet& rules)
      : behind_(behind), multiple_of_(multiple_of), fraction_(fraction), rules_(rules) {}

  // Integers of `before` digits or more. Their number is not limited, or each would have rules of
  // its own.
  ExprId longer(int before) {
    open_ = true;
    std::vector<ExprId> ways;
    for (char c = '1'; c <= '9'; ++c) {
      const ExprId tail = rest({before - 1, false, false, false, (c - '0') % multiple_of_});
      ways.push_back(rules_.sequence({rules_.bytes(std::string_view(&c, 1)), tail}));
    }
    write_rules();
    return rules_.alternatives(std::move(ways));
  }

  // Those with `before` digits before the point and up to `behind` behind it.
  ExprId between(Decimal low, Decimal high, int before) {
    low_ = digits_of(low, before + behind_);
    high_ = digits_of(high, before + behind_);
    tight_.clear();
    const ExprId all = rest({before + behind_, true, true, false, 0});
    write_rules();
    return all;
  }

 private:
  struct Place {
    int left;
    bool low_tight, high_tight;
    bool fraction;  // a digit that makes it one was there; if that matters
    int64_t remainder;
    auto operator<=>(const Place&) const = default;
  };

  bool is_free(const Place& place) const { return !place.low_tight && !place.high_tight; }
  size_t at(const Place& place) const { return low_.size() - static_cast<size_t>(place.left); }

  // Digits that are left out are zeros.
  bool may_end(const Place& place) const {
    if (place.left > behind_ || place.fraction != fraction_) return false;
    int64_t whole = place.remainder;
    for (int i = 0; i < place.left; ++i) whole = whole * 10 % multiple_of_;
    if (whole != 0) return false;
    return !place.low_tight || low_.find_first_not_of('0', at(place)) == std::string::npos;
  }

  // What may follow there; its rule is written later, since one may lead to the next as often as
  // there are remainders.
  ExprId rest(const Place& place) {
    auto& known = is_free(place) ? free_ : tight_;
    const auto [entry, added] = known.try_emplace(place, 0);
    if (added) {
      entry->second = rules_.add_rule("number");
      todo_.emplace_back(place, entry->second);
    }
    return rules_.rule(entry->second);
  }

  void write_rules() {
    while (!todo_.empty() && !rules_.spent()) {
      const auto [place, rule] = todo_.back();
      todo_.pop_back();
      std::vector<ExprId> ways;
      if (may_end(place)) ways.push_back(rules_.bytes(""));
      if (place.left > 0 || open_) {
        ExprId more = digit(place);
        if (place.left == behind_ && behind_ > 0) more = rules_.sequence({rules_.bytes("."), more});
        ways.push_back(more);
      }
      rules_.set_body(rule, rules_.alternatives(std::move(ways)));
    }
  }

  ExprId digit(const Place& place) {
    const char first = place.low_tight ? low_[at(place)] : '0';
    const char last = place.high_tight ? high_[at(place)] : '9';
    std::map<Place, std::vector<CodePointRange>> digits;
    for (char c = first; c <= last; ++c) {
      const bool fraction = fraction_ && (place.fraction || (place.left <= behind_ && c != '0'));
      const Place next{std::max(place.left - 1, 0), place.low_tight && c == first,
                       place.high_tight && c == last, fraction,
                       (place.remainder * 10 + (c - '0')) % multiple_of_};
      digits[next].push_back({static_cast<uint32_t>(c), static_cast<uint32_t>(c)});
    }
    std::vector<ExprId> ways;
    for (const auto& [next, ranges] : digits) {
      const ExprId part = rules_.char_class(CodePointSet(ranges));
      ways.push_back(rules_.sequence({part, rest(next)}));
    }
    return rules_.alternatives(std::move(ways));
  }

  const int behind_;
  const int64_t multiple_of_;
  const bool fraction_;
  RuleSet& rules_;
  std::string low_, high_;
  bool open_ = false;
  std::map<Place, RuleId> free_, tight_;
  std::vector<std::pair<Place, RuleId>> todo_;
};

struct Form {
  int before = kMaxRuleDigits;
  int behind = 0;
  int64_t multiple_of = 1;  // in units of the last place
};

// From `low`, which is not negative, on.
ExprId multiples_from(Decimal low, int64_t multiple_of, RuleSet& rules) {
  // "0" has the length of others, and none begins with it.
  const int digits = digit_count(low);
  DigitRules bounded(0, multiple_of, false, rules);
  const ExprId first = bounded.between(low, power_of_ten(digits) - 1, digits);
  return rules.alternatives({first, DigitRules(0, multiple_of, false, rules).longer(digits + 1)});
}

// From `low` to `high`, neither negative, in units of the last place.
ExprId unsigned_between(Decimal low, Decimal high, const Form& form, bool fraction,
                        RuleSet& rules) {
  std::vector<ExprId> ways;
  const Decimal unit = power_of_ten(form.behind);
  DigitRules digits(form.behind, form.multiple_of, fraction, rules);
  for (int before = 1; before <= form.before; ++before) {
    const Decimal first = before == 1 ? 0 : power_of_ten(before - 1) * unit;
    const Decimal last = power_of_ten(before) * unit - 1;
    const Decimal from = std::max(low, first);
    const Decimal to = std::min(high, last);
    if (from > to) continue;
    ways.push_back(digits.between(from, to, before));
  }
  return rules.alternatives(std::move(ways));
}

int places_of(Decimal value) {
  int places = kDecimalPlaces;
  for (; places > 0 && value % 10 == 0; value /= 10) --places;
  return places;
}

// How many digits numbers get, so that all are told apart when they are read.
std::optional<Form> form_of(const NumberRange& range) {
  Form form;
  constexpr Decimal kMostRemainders = 10000;
  const Decimal multiple = range.integer && range.multiple_of != 0
                               ? common_multiple(range.multiple_of, power_of_ten(kDecimalPlaces))
                               : range.multiple_of;
  if (multiple != 0) form.behind = places_of(multiple);
  const Decimal remainders = multiple / power_of_ten(kDecimalPlaces - form.behind);
  if (remainders > kMostRemainders) return std::nullopt;
  if (multiple != 0) form.multiple_of = static_cast<int64_t>(remainders);
  if (range.integer || (multiple != 0 && form.behind == 0)) return form;
  constexpr int kUsualBefore = 9;
  constexpr int kUsualBehind = 6;
  form.before = range.min && range.max ? 1 : kUsualBefore;
  int places = 0;
  for (const auto& bound : {range.min, range.max}) {
    if (!bound) continue;
    form.before = std::max(form.before, digit_count(*bound / power_of_ten(kDecimalPlaces)));
    // An exclusive bound is a unit away from its number.
    const int near = std::min({places_of(*bound), places_of(*bound - 1), places_of(*bound + 1)});
    places = std::max(places, near);
  }
  if (multiple != 0) {
    // A bound may lie between two multiples.
    if (form.before + form.behind > kMaxRealDigits) return std::nullopt;
    return form;
  }
  form.behind = std::min(std::max(places + 1, kUsualBehind), kMaxRealDigits - form.before);
  if (form.behind < places) return std::nullopt;
  return form;
}

}  // namespace

std::optional<Decimal> parse_decimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  constexpr int kMaxPower = 21;
  std::string digits;
  int exponent = 0;
  size_t at = 0;
  for (bool fraction = false; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      fraction = true;
    } else {
      digits += text[at];
      if (fraction) --exponent;
    }
  }
  if (at < text.size()) {
    const std::string power(text.substr(text[at + 1] == '+' ? at + 2 : at + 1));
    exponent += std::stoi(power);
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return Decimal{0};
  for (; digits.back() == '0'; digits.pop_back()) ++exponent;
  if (exponent < -kDecimalPlaces) return std::nullopt;
  Decimal value = power_of_ten(kMaxPower + kDecimalPlaces);
  if (static_cast<int>(digits.size()) + exponent <= kMaxPower) {
    value = 0;
    for (const char c : digits) value = value * 10 + (c - '0');
    value *= power_of_ten(exponent + kDecimalPlaces);
  }
  return negative ? -value : value;
}

Decimal common_multiple(Decimal a, Decimal b) {
  if (a == 0 || b == 0) return a == 0 ? b : a;
  Decimal divisor = a;
  for (Decimal rest = b; rest != 0;) {
    const Decimal next = divisor % rest;
    divisor = rest;
    rest = next;
  }
  return a / divisor > kHugeMultiple / b ? kHugeMultiple : a / divisor * b;
}

bool is_empty(const NumberRange& range) {
  if (!range.min || !range.max) return false;
  const Decimal unit = power_of_ten(range.integer ? kDecimalPlaces : 0);
  return ceil_divide(*range.min, unit) > floor_divide(*range.max, unit);
}

Expected<ExprId> number_in_range(const NumberRange& range, RuleSet& rules) {
  const Status too_precise(StatusCode::kUnsupported,
                           range.multiple_of == 0
                               ? "bounds that need more digits than are written"
                               : "bounds or multiples that need more digits than are told apart");
  const std::optional<Form> form = form_of(range);
  if (!form) return too_precise;
  const Decimal unit = power_of_ten(kDecimalPlaces - form->behind);
  const Decimal largest = power_of_ten(form->before + form->behind) - 1;
  Decimal low = range.min ? ceil_divide(*range.min, unit) : -largest;
  Decimal high = range.max ? floor_divide(*range.max, unit) : largest;
  if (low > high) return rules.nothing();
  if (low > largest || high < -largest) return too_precise;
  low = std::max(low, -largest);
  high = std::min(high, largest);
  const auto unsigned_part = [&](Decimal from, Decimal to, bool bounded) {
    if (form->multiple_of != 1 && form->behind == 0 && !bounded)
      return multiples_from(from, form->multiple_of, rules);
    return unsigned_between(from, to, *form, range.fraction && !range.integer, rules);
  };
  std::vector<ExprId> ways;
  if (high >= 0)
    ways.push_back(unsigned_part(std::max(low, Decimal{0}), high, range.max.has_value()));
  if (low < 0) {
    const Decimal from = std::max(-high, Decimal{1});
    ways.push_back(
        rules.sequence({rules.bytes("-"), unsigned_part(from, -low, range.min.has_value())}));
  }
  return rules.alternatives(std::move(ways));
}

}  // namespace aerie::grammar
