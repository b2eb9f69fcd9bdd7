// The functions that a template can call by name, and the methods of what they give.
#include <fmt/format.h>

#include <array>

#include "format/text.h"
#include "jinja/builtins/native.h"
#include "jinja/values/dicts.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

constexpr Int kMostOfRange = 100000;  // Jinja's sandbox has the same limit

Expected<Value> range(Runtime& runtime, const Value&, const Bound& arguments) {
  Int start = 0, stop = 0, step = 1;
  AERIE_ASSIGN_OR_RETURN(stop, int_argument(arguments, 0, 0));
  if (arguments[0].is_none()) return fail("range() needs integers");
  if (arguments.has(1)) {
    start = stop;
    AERIE_ASSIGN_OR_RETURN(stop, int_argument(arguments, 1, 0));
  }
  if (arguments.has(2)) {
    AERIE_ASSIGN_OR_RETURN(step, int_argument(arguments, 2, 1));
  }
  if (step == 0) return fail("range() with a step of zero");
  const Int span = step > 0 ? stop - start : start - stop;
  const Int stride = step > 0 ? step : -step;
  const Int count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > kMostOfRange) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("range() of {} items; {} are the most", count, kMostOfRange));
  }
  Sequence* result = runtime.sequence(Sequence::Flavour::kRange);
  AERIE_RETURN_IF_ERROR(runtime.spend(static_cast<uint64_t>(count) / 4));
  for (Int i = 0; i < count; ++i) runtime.push(result, Value::of(start + i * step));
  result->label = step == 1 ? fmt::format("range({}, {})", start, stop)
                            : fmt::format("range({}, {}, {})", start, stop, step);
  return Value::of(result);
}

Expected<Value> make_dict(Runtime& runtime, const Value&, const Bound& arguments) {
  Dict* dict = runtime.dict();
  AERIE_RETURN_IF_ERROR(update_dict(runtime, dict, *arguments.all));
  return Value::of(dict);
}

Expected<Value> make_namespace(Runtime& runtime, const Value&, const Bound& arguments) {
  Dict* dict = runtime.dict();
  AERIE_RETURN_IF_ERROR(update_dict(runtime, dict, *arguments.all));
  return Value::of_namespace(dict);
}

Expected<Value> make_cycler(Runtime& runtime, const Value&, const Bound& arguments) {
  if (arguments.all->positional.empty()) return fail("cycler() needs items");
  Cycler* cycler = runtime.cycler();
  cycler->items = arguments.all->positional;
  return Value::of(cycler);
}

Expected<Value> make_joiner(Runtime& runtime, const Value&, const Bound& arguments) {
  Callable* joiner = runtime.callable(Callable::What::kJoiner);
  joiner->separator = ", ";
  if (arguments.has(0)) {
    AERIE_ASSIGN_OR_RETURN(const Text* separator, text_argument(arguments, 0));
    joiner->separator = separator->view;
  }
  return Value::of(joiner);
}

Expected<Value> raise_exception(Runtime& runtime, const Value&, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Value message, to_text(runtime, arguments[0]));
  return fail("the template refuses this: " + printable(message.view(), 500));
}

// One conversion of strftime, such as "%d" or "%-d".
Status append_time(TextBuilder& out, const std::tm& time, std::string_view conversion) {
  const char type = conversion.back();
  // A time that knows no zone, as Python's datetime.now().
  if (type == 'Z' || type == 'z') return {};
  if (type == 'f') {
    out.add("000000");
    return {};
  }
  constexpr std::string_view kKnown = "aAbBcCdDeFgGhHIjmMnprRsStTuUVwWxXyY%";
  if (kKnown.find(type) == kKnown.npos) {
    return fail(fmt::format("strftime_now() does not know '{}'", printable(conversion)));
  }
  std::array<char, 128> buffer;
  const std::string format(conversion);
  // NOLINTNEXTLINE: the format was checked.
  const size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &time);
  out.add(std::string_view(buffer.data(), length));
  return {};
}

Expected<Value> strftime_now(Runtime& runtime, const Value&, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Text* format, text_argument(arguments, 0));
  const std::tm now = runtime.now();
  TextBuilder out(runtime);
  std::string_view rest = format->view;
  while (!rest.empty()) {
    const size_t percent = std::min(rest.find('%'), rest.size());
    out.add(rest.substr(0, percent));
    rest.remove_prefix(percent);
    if (rest.empty()) break;
    const bool flag = rest.size() > 1 && std::string_view("-_0^#").find(rest[1]) != rest.npos;
    const size_t length = flag ? 3 : 2;
    if (rest.size() < length) return fail("strftime_now() with a format that ends after %");
    AERIE_RETURN_IF_ERROR(append_time(out, now, rest.substr(0, length)));
    AERIE_RETURN_IF_ERROR(runtime.spend());
    rest.remove_prefix(length);
  }
  return out.value();
}

Expected<Value> cycler_next(Runtime&, const Value& subject, const Bound&) {
  Cycler& cycler = *subject.cycler;
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Expected<Value> cycler_reset(Runtime&, const Value& subject, const Bound&) {
  subject.cycler->position = 0;
  return Value::none();
}

Expected<Value> loop_cycle(Runtime&, const Value& subject, const Bound& arguments) {
  const auto& items = arguments.all->positional;
  if (items.empty()) return fail("loop.cycle() needs items");
  return items[subject.loop->index % items.size()];
}

Expected<Value> loop_changed(Runtime& runtime, const Value& subject, const Bound& arguments) {
  Loop& loop = *subject.loop;
  const auto& values = arguments.all->positional;
  bool same = loop.has_changed_before && loop.last_values.size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) {
    AERIE_ASSIGN_OR_RETURN(same, equal(runtime, loop.last_values[i], values[i]));
  }
  loop.has_changed_before = true;
  loop.last_values = values;
  return Value::of(!same);
}

constexpr Native kFunctions[] = {
    {"cycler", make_cycler, {}, 0, true},
    {"dict", make_dict, {}, 0, true},
    {"joiner", make_joiner, {"sep"}},
    {"namespace", make_namespace, {}, 0, true},
    {"raise_exception", raise_exception, {"message"}, 1},
    {"range", range, {"start", "stop", "step"}, 1},
    {"strftime_now", strftime_now, {"format"}, 1},
};

constexpr Native kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

constexpr Native kLoopMethods[] = {
    {"changed", loop_changed, {}, 0, true},
    {"cycle", loop_cycle, {}, 0, true},
};

}  // namespace

std::span<const Native> functions() {
  return kFunctions;
}

std::span<const Native> cycler_methods() {
  return kCyclerMethods;
}

std::span<const Native> loop_methods() {
  return kLoopMethods;
}

}  // namespace aerie::jinja
