// The functions that a template can call by name, and the methods of what they give.
#include <fmt/format.h>

#include <array>

#include "format/text.h"
#include "jinja/builtins/native.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

constexpr Int kMostOfRange = 100000;  // Jinja's sandbox has the same limit

Value range(Call& call) {
  const Int first = call.integer(0), start = call.has(1) ? first : 0;
  const Int stop = call.has(1) ? call.integer(1) : first, step = call.integer(2, 1);
  if (call[0].is_none()) return call.runtime.fail("range() needs integers");
  if (step == 0) return call.runtime.fail("range() with a step of zero");
  const Int span = step > 0 ? stop - start : start - stop;
  const Int stride = step > 0 ? step : -step;
  const Int count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > kMostOfRange) {
    return call.runtime.fail(
        resource_exhausted("range() of {} items; {} are the most", count, kMostOfRange));
  }
  Sequence* result = call.runtime.sequence(Sequence::Flavour::kRange);
  if (!call.runtime.spend(static_cast<uint64_t>(count) / 4)) return {};
  for (Int i = 0; i < count; ++i) call.runtime.push(result, Value::of(start + i * step));
  result->label = step == 1 ? fmt::format("range({}, {})", start, stop)
                            : fmt::format("range({}, {}, {})", start, stop, step);
  return Value::of(result);
}

Dict* dict_of_arguments(Call& call) {
  Dict* dict = call.runtime.dict();
  update_dict(call.runtime, dict, call.all);
  return dict;
}

Value make_cycler(Call& call) {
  if (call.all.positional.empty()) return call.runtime.fail("cycler() needs items");
  Cycler* cycler = call.runtime.cycler();
  cycler->items = call.all.positional;
  return Value::of(cycler);
}

Value make_joiner(Call& call) {
  Callable* joiner = call.runtime.callable(Callable::What::kJoiner);
  joiner->separator = call.string(0, ", ");
  return Value::of(joiner);
}

Value raise_exception(Call& call) {
  const Value message = to_text(call.runtime, call[0]);
  return call.runtime.fail("the template refuses this: " + printable(message.view(), 500));
}

// One conversion of strftime, such as "%d" or "%-d".
void append_time(TextBuilder& out, const std::tm& time, std::string_view conversion) {
  const char type = conversion.back();
  // A time that knows no zone, as Python's datetime.now().
  if (type == 'Z' || type == 'z') return;
  if (type == 'f') return out.add("000000");
  constexpr std::string_view kKnown = "aAbBcCdDeFgGhHIjmMnprRsStTuUVwWxXyY%";
  if (kKnown.find(type) == kKnown.npos) {
    out.runtime().fail("strftime_now() does not know '{}'", printable(conversion));
    return;
  }
  std::array<char, 128> buffer;
  const std::string format(conversion);
  // NOLINTNEXTLINE: the format was checked.
  const size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &time);
  out.add(std::string_view(buffer.data(), length));
}

Value strftime_now(Call& call) {
  const std::tm now = call.runtime.now();
  TextBuilder out(call.runtime);
  for (std::string_view rest = call.string(0); call.runtime.spend();) {
    out.add(take_until(rest, "%"));
    if (rest.empty()) break;
    const bool flag = rest.size() > 1 && std::string_view("-_0^#").find(rest[1]) != rest.npos;
    const size_t length = flag ? 3 : 2;
    if (rest.size() < length) {
      return call.runtime.fail("strftime_now() with a format that ends after %");
    }
    append_time(out, now, rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return out.value();
}

Value cycler_next(Call& call) {
  Cycler& cycler = *call.subject.cycler;
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(Call& call) {
  call.subject.cycler->position = 0;
  return Value::none();
}

Value loop_cycle(Call& call) {
  const auto& items = call.all.positional;
  if (items.empty()) return call.runtime.fail("loop.cycle() needs items");
  return items[call.subject.loop->index % items.size()];
}

Value loop_changed(Call& call) {
  Value& last = call.subject.loop->last_values;
  const Value values = call.runtime.tuple(call.all.positional);
  return Value::of(!equal(call.runtime, std::exchange(last, values), values));
}

constexpr Native kAllFunctions[] = {
    {"cycler", make_cycler, {}, 0, true},
    {"dict", [](Call& c) { return Value::of(dict_of_arguments(c)); }, {}, 0, true},
    {"joiner", make_joiner, {"sep"}},
    {"namespace", [](Call& c) { return Value::of_namespace(dict_of_arguments(c)); }, {}, 0, true},
    {"raise_exception", raise_exception, {"message"}, 1},
    {"range", range, {"start", "stop", "step"}, 1},
    {"strftime_now", strftime_now, {"format"}, 1},
};

constexpr Native kAllCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

constexpr Native kAllLoopMethods[] = {
    {"changed", loop_changed, {}, 0, true},
    {"cycle", loop_cycle, {}, 0, true},
};

}  // namespace

const Table kFunctions(kAllFunctions);
const Table kCyclerMethods(kAllCyclerMethods);
const Table kLoopMethods(kAllLoopMethods);

}  // namespace aerie::jinja
