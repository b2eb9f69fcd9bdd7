// Calls of functions, methods and macros.
#include <fmt/format.h>

#include "format/text.h"
#include "jinja/interpreter.h"

namespace aerie::jinja {

Status Interpreter::evaluate_arguments(const Expression& expression, Scope* scope,
                                       Arguments& arguments) {
  for (const Argument& argument : expression.arguments) {
    AERIE_ASSIGN_OR_RETURN(const Value value, evaluate(*argument.value, scope));
    switch (argument.kind) {
      case Argument::Kind::kPositional:
        arguments.positional.push_back(value);
        break;
      case Argument::Kind::kNamed:
        arguments.named.emplace_back(argument.name, value);
        break;
      case Argument::Kind::kSpread: {
        AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime_, value));
        AERIE_RETURN_IF_ERROR(runtime_.claim(static_cast<Int>(items->items.size()), sizeof(Value)));
        AERIE_RETURN_IF_ERROR(runtime_.spend(items->items.size()));
        arguments.positional.insert(arguments.positional.end(), items->items.begin(),
                                    items->items.end());
        break;
      }
      case Argument::Kind::kSpreadNamed:
        if (!value.is(Kind::kDict)) {
          return fail(fmt::format("** needs a dict, not '{}'", type_name(value)));
        }
        for (const auto& [key, item] : value.dict->entries) {
          if (!key.is_text()) return fail("** needs a dict whose keys are strings");
          arguments.named.emplace_back(key.view(), item);
        }
        AERIE_RETURN_IF_ERROR(runtime_.spend(value.dict->entries.size()));
        break;
    }
  }
  for (size_t i = 1; i < arguments.named.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (arguments.named[i].first == arguments.named[k].first) {
        return fail(
            fmt::format("the argument '{}' is given twice", printable(arguments.named[i].first)));
      }
    }
    AERIE_RETURN_IF_ERROR(runtime_.spend(i / 8));
  }
  return {};
}

Expected<Value> Interpreter::evaluate_call(const Expression& expression, Scope* scope,
                                           Callable* caller) {
  const Expression& callee = *expression.operands[0];
  Value function;
  const Native* native = nullptr;
  if (callee.kind == Expression::Kind::kAttribute) {
    // A method is called without making a value of it first.
    AERIE_ASSIGN_OR_RETURN(const Value object, evaluate(*callee.operands[0], scope));
    native = find_method(object, callee.text->view);
    if (native != nullptr) {
      function = object;
    } else {
      AERIE_ASSIGN_OR_RETURN(function, get_attribute(runtime_, object, *callee.text));
    }
  } else {
    AERIE_ASSIGN_OR_RETURN(function, evaluate(callee, scope));
  }
  Arguments arguments;
  AERIE_RETURN_IF_ERROR(evaluate_arguments(expression, scope, arguments));
  if (caller != nullptr) arguments.named.emplace_back("caller", Value::of(caller));
  auto result = native != nullptr ? call_native(runtime_, *native, function, arguments)
                                  : call(function, arguments);
  if (!result.ok()) return located(expression.place, result.status());
  return result;
}

Expected<Value> Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) return undefined_error(callee);
  if (callee.is(Kind::kLoop)) {
    const Loop& loop = *callee.loop;
    if (!loop.statement->recursive) return fail("loop() in a loop that is not 'recursive'");
    if (arguments.positional.size() != 1) return fail("loop() needs one argument");
    TextBuilder out(runtime_);
    AERIE_RETURN_IF_ERROR(
        run_loop(*loop.statement, loop.scope, arguments.positional[0], loop.depth + 1, out));
    return out.value();
  }
  if (!callee.is(Kind::kCallable)) {
    return fail(fmt::format("a value of type '{}' cannot be called", type_name(callee)));
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
  if (std::exchange(callable.used, true)) return runtime_.borrow(callable.separator);
  return runtime_.borrow("");
}

Expected<Value> Interpreter::call_macro(const Callable& callable, const Arguments& arguments) {
  const Macro& macro = *callable.macro;
  const Runtime::Level level(runtime_);
  if (level.too_deep()) return runtime_.too_deep();
  Scope* scope = runtime_.scope(callable.scope);
  AERIE_RETURN_IF_ERROR(bind_macro(macro, arguments, scope));
  TextBuilder out(runtime_);
  const auto flow = run_block(macro.body, scope, out);
  if (!flow.ok()) return flow.status();
  runtime_.release(scope);
  return out.value();
}

Status Interpreter::bind_macro(const Macro& macro, const Arguments& arguments, Scope* scope) {
  AERIE_RETURN_IF_ERROR(runtime_.spend(macro.parameters.size() * (1 + arguments.named.size() / 4)));
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    Value value = Value::absent();
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      for (const auto& [name, given] : arguments.named) {
        if (name == parameter.spelled) value = given;
      }
    }
    if (value.is_absent() && parameter.otherwise != nullptr) {
      // Among the parameters before it, not where the macro is called.
      AERIE_ASSIGN_OR_RETURN(value, evaluate(*parameter.otherwise, scope));
    }
    if (value.is_absent()) value = Value::undefined(runtime_.borrow(parameter.spelled).text);
    scope->set(parameter.name, value);
  }
  return bind_extra(macro, arguments, scope);
}

// What no parameter takes goes to varargs, kwargs and caller, if the macro speaks of them.
Status Interpreter::bind_extra(const Macro& macro, const Arguments& arguments, Scope* scope) {
  const size_t count = macro.parameters.size();
  const size_t taken = std::min(count, arguments.positional.size());
  if (arguments.positional.size() > count && !macro.takes_more) {
    return fail(fmt::format("the macro '{}' takes at most {} arguments, not {}",
                            printable(macro.name), count, arguments.positional.size()));
  }
  if (macro.takes_more) {
    Sequence* more = runtime_.sequence(Sequence::Flavour::kTuple);
    for (size_t i = taken; i < arguments.positional.size(); ++i) {
      runtime_.push(more, arguments.positional[i]);
    }
    scope->set(kVarargsName, Value::of(more));
  }
  Dict* named = macro.takes_more_named ? runtime_.dict() : nullptr;
  bool has_caller = false;
  for (size_t i = 0; i < count; ++i) has_caller |= macro.parameters[i].name == kCallerName;
  Value caller = Value::undefined();
  for (const auto& [name, value] : arguments.named) {
    bool bound = false;
    for (size_t i = taken; i < count; ++i) bound |= macro.parameters[i].spelled == name;
    if (bound) continue;
    if (name == "caller" && macro.takes_caller && !has_caller) {
      caller = value;
    } else if (named != nullptr) {
      AERIE_RETURN_IF_ERROR(runtime_.put(named, runtime_.text(std::string(name)), value));
    } else {
      return fail(fmt::format("the macro '{}' has no parameter '{}'", printable(macro.name),
                              printable(name)));
    }
  }
  if (macro.takes_caller && !has_caller) scope->set(kCallerName, caller);
  if (named != nullptr) scope->set(kKwargsName, Value::of(named));
  return {};
}

}  // namespace aerie::jinja
