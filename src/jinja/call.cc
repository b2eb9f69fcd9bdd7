// Calls of functions, methods and macros.
#include <fmt/format.h>

#include <algorithm>

#include "format/text.h"
#include "jinja/interpreter.h"

namespace aerie::jinja {

void Interpreter::add_argument(const Argument& argument, const Value& value, Arguments& arguments) {
  switch (argument.kind) {
    case Argument::Kind::kPositional:
      arguments.positional.push_back(value);
      return;
    case Argument::Kind::kNamed:
      arguments.named.emplace_back(argument.name, value);
      return;
    case Argument::Kind::kSpread: {
      const auto& items = iterate(runtime_, value)->items;
      if (!runtime_.claim(static_cast<Int>(items.size()), sizeof(Value))) return;
      if (!runtime_.spend(items.size())) return;
      arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
      return;
    }
    case Argument::Kind::kSpreadNamed:
      if (!value.is(Kind::kDict)) {
        runtime_.fail(fmt::format("** needs a dict, not '{}'", type_name(value)));
        return;
      }
      runtime_.spend(value.dict->entries.size());
      for (const auto& [key, item] : value.dict->entries) {
        if (!key.is_text()) runtime_.fail("** needs a dict whose keys are strings");
        if (runtime_.failed()) return;
        arguments.named.emplace_back(key.view(), item);
      }
  }
}

Arguments Interpreter::evaluate_arguments(const Expression& expression, Scope* scope) {
  Arguments arguments;
  for (const Argument& argument : expression.arguments) {
    add_argument(argument, evaluate(*argument.value, scope), arguments);
  }
  const auto& named = arguments.named;
  for (auto it = named.begin(); it != named.end(); ++it) {
    const auto same = [&](const auto& other) { return other.first == it->first; };
    if (std::any_of(named.begin(), it, same)) {
      runtime_.fail(fmt::format("the argument '{}' is given twice", printable(it->first)));
    }
    if (!runtime_.spend(static_cast<uint64_t>(it - named.begin()) / 8)) break;
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expression& expression, Scope* scope, Callable* caller) {
  const Expression& callee = *expression.operands[0];
  const bool attribute = callee.kind == Expression::Kind::kAttribute;
  Value function = evaluate(attribute ? *callee.operands[0] : callee, scope);
  // A method is called without making a value of it first.
  const Native* method = attribute ? find_method(function, callee.text->view) : nullptr;
  if (attribute && method == nullptr) function = get_attribute(runtime_, function, *callee.text);
  Arguments arguments = evaluate_arguments(expression, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", Value::of(caller));
  if (runtime_.failed()) return {};
  return method != nullptr ? call_native(runtime_, *method, function, arguments)
                           : call(function, arguments);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) return undefined_error(runtime_, callee);
  if (callee.is(Kind::kLoop)) return call_loop(*callee.loop, arguments);
  if (!callee.is(Kind::kCallable)) {
    return runtime_.fail(fmt::format("a value of type '{}' cannot be called", type_name(callee)));
  }
  Callable& callable = *callee.callable;
  switch (callable.what) {
    case Callable::What::kMacro:
      return call_macro(callable, arguments);
    case Callable::What::kNative:
      return call_native(runtime_, *callable.native, callable.self, arguments);
    case Callable::What::kJoiner:
      break;
  }
  return runtime_.borrow(std::exchange(callable.used, true) ? callable.separator : "");
}

Value Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  if (!loop.statement->recursive) {
    return runtime_.fail("loop() in a loop that is not 'recursive'");
  }
  if (arguments.positional.size() != 1) return runtime_.fail("loop() needs one argument");
  TextBuilder out(runtime_);
  run_loop(*loop.statement, loop.scope, arguments.positional[0], loop.depth + 1, out);
  return out.value();
}

Value Interpreter::call_macro(const Callable& callable, const Arguments& arguments) {
  const Runtime::Level level(runtime_);
  if (runtime_.failed()) return {};
  Scope* scope = runtime_.scope(callable.scope);
  bind_macro(*callable.macro, arguments, scope);
  TextBuilder out(runtime_);
  if (!runtime_.failed()) run_block(callable.macro->body, scope, out);
  runtime_.release(scope);
  return out.value();
}

void Interpreter::bind_macro(const Macro& macro, const Arguments& arguments, Scope* scope) {
  runtime_.spend(macro.parameters.size() * (1 + arguments.named.size() / 4));
  for (size_t i = 0; i < macro.parameters.size() && !runtime_.failed(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    Value value = i < arguments.positional.size() ? arguments.positional[i]
                                                  : arguments.find(parameter.spelled);
    if (value.is_absent() && parameter.otherwise != nullptr) {
      // Among the parameters before it, not where the macro is called.
      value = evaluate(*parameter.otherwise, scope);
    }
    if (value.is_absent()) value = Value::undefined(runtime_.borrow(parameter.spelled).text);
    scope->set(parameter.name, value);
  }
  bind_extra(macro, arguments, scope);
}

// What no parameter takes goes to varargs, kwargs and caller, if the macro speaks of them.
void Interpreter::bind_extra(const Macro& macro, const Arguments& arguments, Scope* scope) {
  const auto& positional = arguments.positional;
  const size_t count = macro.parameters.size(), taken = std::min(count, positional.size());
  if (positional.size() > count && !macro.takes_more) {
    runtime_.fail(fmt::format("the macro '{}' takes at most {} arguments, not {}",
                              printable(macro.name), count, positional.size()));
  }
  Sequence* more = runtime_.sequence(Sequence::Flavour::kTuple);
  for (size_t i = taken; i < positional.size(); ++i) runtime_.push(more, positional[i]);
  Dict* named = runtime_.dict();
  const auto& parameters = macro.parameters;
  const bool has_caller = std::any_of(parameters.begin(), parameters.end(),
                                      [](const auto& it) { return it.name == kCallerName; });
  Value caller = Value::undefined();
  for (const auto& [name, value] : arguments.named) {
    if (runtime_.failed()) return;
    const auto spelled_so = [&name = name](const auto& it) { return it.spelled == name; };
    const auto unbound = parameters.begin() + static_cast<std::ptrdiff_t>(taken);
    if (std::any_of(unbound, parameters.end(), spelled_so)) continue;
    if (name == "caller" && macro.takes_caller && !has_caller) {
      caller = value;
    } else if (macro.takes_more_named) {
      runtime_.put(named, runtime_.text(name), value);
    } else {
      runtime_.fail(fmt::format("the macro '{}' has no parameter '{}'", printable(macro.name),
                                printable(name)));
    }
  }
  if (macro.takes_more) scope->set(kVarargsName, Value::of(more));
  if (macro.takes_caller && !has_caller) scope->set(kCallerName, caller);
  if (macro.takes_more_named) scope->set(kKwargsName, Value::of(named));
}

}  // namespace aerie::jinja
