#include "jinja/interpreter.h"

#include <algorithm>
#include <span>

#include "format/text.h"

namespace aerie::jinja {
namespace {

class Interpreter {
 public:
  explicit Interpreter(Runtime& runtime) : runtime_(runtime) {}

  // A failure leaves as a break does.
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  Flow run_block(const Block& block, Scope* scope, TextBuilder& out) {
    const Runtime::Level level(runtime_);
    for (const Statement& statement : block) {
      const Flow flow = runtime_.spend() ? run_statement(statement, scope, out) : Flow::kBreak;
      locate(statement.place);
      if (runtime_.failed()) return Flow::kBreak;
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

 private:
  // Statements.

  Flow run_statement(const Statement& statement, Scope* scope, TextBuilder& out) {
    switch (statement.kind) {
      case Statement::Kind::kText:
        out.add(statement.text);
        break;
      case Statement::Kind::kOutput:
        write_text(out, evaluate(*statement.expression, scope));
        locate(statement.expression->place);
        break;
      case Statement::Kind::kIf:
        return run_if(statement, scope, out);
      case Statement::Kind::kFor:
        run_loop(statement, scope, evaluate(*statement.expression, scope), 0, out);
        break;
      case Statement::Kind::kSet:
        assign(statement.target, evaluate(*statement.expression, scope), scope);
        break;
      case Statement::Kind::kSetBlock:
      case Statement::Kind::kFilter:
        return run_captured(statement, scope, out);
      case Statement::Kind::kMacro:
        scope->set(statement.target.name, make_macro(*statement.macro, scope));
        break;
      case Statement::Kind::kScope:
        return run_inner(statement.body, scope, out);
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  Flow run_if(const Statement& statement, Scope* scope, TextBuilder& out) {
    for (const Branch& branch : statement.branches) {
      if (branch.condition != nullptr && !truth(evaluate(*branch.condition, scope))) continue;
      return run_block(branch.body, scope, out);
    }
    return Flow::kNext;
  }

  // A block whose text goes through filters and is then assigned, or written. Nothing happens to it
  // if it is left early.
  Flow run_captured(const Statement& statement, Scope* scope, TextBuilder& out) {
    TextBuilder inner(runtime_);
    const Flow flow = run_inner(statement.body, scope, inner);
    if (flow != Flow::kNext) return flow;
    Value text = inner.value();
    if (statement.expression != nullptr) {
      const Value outer = std::exchange(block_text_, text);
      text = evaluate(*statement.expression, scope);
      block_text_ = outer;
    }
    if (statement.kind == Statement::Kind::kFilter) {
      write_text(out, text);
    } else {
      assign(statement.target, text, scope);
    }
    return flow;
  }

  // It remembers the scope.
  Value make_macro(const Macro& macro, Scope* scope) {
    Callable* callable = runtime_.callable(Callable::What::kMacro);
    callable->macro = &macro;
    callable->scope = scope;
    keep(scope);
    return Value::of(callable);
  }

  // A block with variables of its own.
  Flow run_inner(const Block& block, Scope* scope, TextBuilder& out) {
    Scope* inner = runtime_.scope(scope);
    const Flow flow = run_block(block, inner, out);
    runtime_.release(inner);
    return flow;
  }

  // `values` is what to go through; `depth` counts recursive loops.
  void run_loop(const Statement& statement, Scope* scope, const Value& values, int depth,
                TextBuilder& out) {
    if (statement.recursive) keep(scope);
    Loop* loop = runtime_.loop();
    loop->statement = &statement;
    loop->scope = scope;
    loop->items = loop_items(statement, scope, values);
    loop->depth = depth;
    Scope* inner = runtime_.scope(scope);
    bool completed = false;
    // The body may make the list longer, or shorter.
    for (; loop->index < loop->items->items.size() && runtime_.spend(); ++loop->index) {
      if (inner->captured) inner = runtime_.scope(scope);
      inner->variables.clear();
      inner->set(kLoopName, Value::of(loop));
      assign(statement.target, Value(loop->items->items[loop->index]), inner);
      const Flow flow = run_block(statement.body, inner, out);
      if (flow == Flow::kBreak) break;
      completed = completed || flow == Flow::kNext;
    }
    locate(statement.place);
    runtime_.release(inner);
    // Jinja's `else` is for loops of which no pass came to its end.
    if (!completed && !runtime_.failed()) run_inner(statement.otherwise, scope, out);
  }

  // Those that the filter of the loop lets through.
  Sequence* loop_items(const Statement& statement, Scope* scope, const Value& values) {
    Sequence* all = iterate(runtime_, values);
    locate(statement.expression->place);
    if (statement.filter == nullptr) return all;
    Sequence* kept = runtime_.sequence();
    Scope* inner = runtime_.scope(scope);
    for (size_t i = 0; i < all->items.size() && !runtime_.failed(); ++i) {
      const Value item = all->items[i];
      assign(statement.target, item, inner);
      if (truth(evaluate(*statement.filter, inner))) runtime_.push(kept, item);
    }
    runtime_.release(inner);
    return kept;
  }

  void assign(const Target& target, const Value& value, Scope* scope) {
    if (target.is_tuple) {
      const std::vector<Value> values = iterate(runtime_, value)->items;
      const size_t count = target.parts.size();
      if (values.size() != count) {
        runtime_.fail("{} values for {} names", values.size(), count);
      }
      for (size_t i = 0; i < count && !runtime_.failed(); ++i) {
        assign(target.parts[i], values[i], scope);
      }
    } else if (target.attribute == nullptr) {
      scope->set(target.name, value);
    } else {
      const Value* object = scope->look_up(target.name);
      if (object != nullptr && object->is(Kind::kNamespace)) {
        runtime_.put(object->dict, Value::of(target.attribute.get()), value);
      } else {
        runtime_.fail("'{}' is no namespace, so its attributes cannot be set", target.spelled);
      }
    }
    locate(target.place);
  }

  // Expressions.
  Value evaluate(const Expression& expression, Scope* scope) {
    const Runtime::Level level(runtime_);
    Value value;
    if (runtime_.spend()) value = evaluate_kind(expression, scope);
    if (runtime_.failed()) locate(expression.place);
    return value;
  }

  Value evaluate_kind(const Expression& expression, Scope* scope) {
    using What = Expression::Kind;
    const auto operand = [&](size_t i) { return evaluate(*expression.operands[i], scope); };
    switch (expression.kind) {
      case What::kLiteral:
        return expression.literal;
      case What::kName:
        return look_up(expression, scope);
      case What::kList:
      case What::kTuple:
        return evaluate_sequence(expression, scope);
      case What::kDict:
        return evaluate_dict(expression, scope);
      case What::kAnd:
      case What::kOr:
        return evaluate_logic(expression, scope);
      case What::kNot:
        return Value::of(!truth(operand(0)));
      case What::kSign:
        return with_sign(runtime_, expression.operators[0], operand(0));
      case What::kArithmetic: {
        const Value left = operand(0);
        return arithmetic(runtime_, expression.operators[0], left, operand(1));
      }
      case What::kCompare:
        return evaluate_comparison(expression, scope);
      case What::kConditional:
        if (truth(operand(0))) return operand(1);
        return expression.operands[2] == nullptr ? Value() : operand(2);
      case What::kAttribute:
        return get_attribute(runtime_, operand(0), *expression.text);
      case What::kItem: {
        const Value object = operand(0);
        return get_item(runtime_, object, operand(1));
      }
      case What::kSlice:
        return evaluate_slice(expression, scope);
      case What::kCall:
        return evaluate_call(expression, scope);
      case What::kFilter:
      case What::kTest:
        return evaluate_native(expression, scope);
    }
    return Value();
  }

  Value look_up(const Expression& name, const Scope* scope) {
    if (const Value* value = scope->look_up(name.name)) return *value;
    if (name.native == nullptr) return Value::undefined(name.text.get());
    Callable* function = runtime_.callable(Callable::What::kNative);
    function->native = name.native;
    return Value::of(function);
  }

  Value evaluate_sequence(const Expression& expression, Scope* scope) {
    Sequence* sequence =
        runtime_.sequence(expression.kind == Expression::Kind::kTuple ? Sequence::Flavour::kTuple
                                                                      : Sequence::Flavour::kList);
    for (const auto& operand : expression.operands) {
      runtime_.push(sequence, evaluate(*operand, scope));
    }
    return Value::of(sequence);
  }

  Value evaluate_dict(const Expression& expression, Scope* scope) {
    Dict* dict = runtime_.dict();
    for (size_t i = 0; i < expression.operands.size(); i += 2) {
      const Value key = evaluate(*expression.operands[i], scope);
      runtime_.put(dict, key, evaluate(*expression.operands[i + 1], scope));
    }
    return Value::of(dict);
  }

  Value evaluate_logic(const Expression& expression, Scope* scope) {
    const Value left = evaluate(*expression.operands[0], scope);
    if (truth(left) == (expression.kind == Expression::Kind::kOr)) return left;
    return evaluate(*expression.operands[1], scope);
  }

  Value evaluate_comparison(const Expression& expression, Scope* scope) {
    Value left = evaluate(*expression.operands[0], scope);
    bool holds = true;
    for (size_t i = 0; i < expression.operators.size() && holds; ++i) {
      const Value right = evaluate(*expression.operands[i + 1], scope);
      holds = compare(runtime_, expression.operators[i], left, right);
      left = right;
    }
    return Value::of(holds);
  }

  Value evaluate_slice(const Expression& expression, Scope* scope) {
    const auto part = [&](size_t i) {
      const auto& operand = expression.operands[i];
      return operand == nullptr ? Value::none() : evaluate(*operand, scope);
    };
    const Value object = part(0);
    const Slice slice{part(1), part(2), part(3)};
    return get_slice(runtime_, object, slice);
  }

  Value evaluate_native(const Expression& expression, Scope* scope) {
    const auto& operand = expression.operands[0];
    const Value subject = operand == nullptr ? block_text_ : evaluate(*operand, scope);
    const Arguments arguments = evaluate_arguments(expression, scope);
    if (runtime_.failed()) return {};
    return call_native(runtime_, *expression.native, subject, arguments);
  }

  // Calls.

  Value evaluate_call(const Expression& expression, Scope* scope) {
    const Expression& callee = *expression.operands[0];
    const bool attribute = callee.kind == Expression::Kind::kAttribute;
    Value function = evaluate(attribute ? *callee.operands[0] : callee, scope);
    // A method is called without making a value of it first.
    const Native* method = attribute ? find_method(function, callee.text->view) : nullptr;
    if (attribute && method == nullptr) function = get_attribute(runtime_, function, *callee.text);
    Arguments arguments = evaluate_arguments(expression, scope);
    if (const Macro* caller = expression.caller.get()) {
      add_named("caller", make_macro(*caller, scope), arguments);
    }
    if (runtime_.failed()) return {};
    return method != nullptr ? call_native(runtime_, *method, function, arguments)
                             : call(function, arguments);
  }

  Arguments evaluate_arguments(const Expression& expression, Scope* scope) {
    Arguments arguments;
    for (const Argument& argument : expression.arguments) {
      add_argument(argument, evaluate(*argument.value, scope), arguments);
    }
    return arguments;
  }

  void add_argument(const Argument& argument, const Value& value, Arguments& arguments) {
    switch (argument.kind) {
      case Argument::Kind::kPositional:
        arguments.positional.push_back(value);
        return;
      case Argument::Kind::kNamed:
        return add_named(argument.name, value, arguments);
      case Argument::Kind::kSpread: {
        const auto& items = iterate(runtime_, value)->items;
        if (!runtime_.claim(items.size(), sizeof(Value)) || !runtime_.spend(items.size())) return;
        arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
        return;
      }
      case Argument::Kind::kSpreadNamed:
        if (!value.is(Kind::kDict)) type_error(runtime_, "** needs a dict", value);
        if (runtime_.failed()) return;
        for (const auto& [key, item] : value.dict->entries) {
          if (!key.is_text()) type_error(runtime_, "** needs a dict whose keys are strings", key);
          if (runtime_.failed()) return;
          add_named(key.view(), item, arguments);
        }
    }
  }

  void add_named(std::string_view name, const Value& value, Arguments& arguments) {
    if (!arguments.find(name).is_absent()) {
      runtime_.fail("the argument '{}' is given twice", printable(name));
    }
    if (runtime_.spend(1 + arguments.named.size() / 8)) arguments.named.emplace_back(name, value);
  }

  Value call(const Value& callee, const Arguments& arguments) {
    if (callee.is(Kind::kLoop)) return call_loop(*callee.loop, arguments);
    if (callee.is_undefined()) return undefined_error(runtime_, callee);
    if (!callee.is(Kind::kCallable)) {
      return runtime_.fail("a value of type '{}' cannot be called", type_name(callee));
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

  Value call_loop(const Loop& loop, const Arguments& arguments) {
    if (!loop.statement->recursive) return runtime_.fail("loop() of a loop without 'recursive'");
    if (arguments.positional.size() != 1) return runtime_.fail("loop() needs one argument");
    TextBuilder out(runtime_);
    run_loop(*loop.statement, loop.scope, arguments.positional[0], loop.depth + 1, out);
    return out.value();
  }

  Value call_macro(const Callable& callable, const Arguments& arguments) {
    const Runtime::Level level(runtime_);
    if (runtime_.failed()) return {};
    Scope* scope = runtime_.scope(callable.scope);
    bind_macro(*callable.macro, arguments, scope);
    TextBuilder out(runtime_);
    if (!runtime_.failed()) run_block(callable.macro->body, scope, out);
    runtime_.release(scope);
    return out.value();
  }

  void bind_macro(const Macro& macro, const Arguments& arguments, Scope* scope) {
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
  void bind_extra(const Macro& macro, const Arguments& arguments, Scope* scope) {
    const auto& positional = arguments.positional;
    const size_t count = macro.parameters.size(), taken = std::min(count, positional.size());
    if (positional.size() > count && !macro.takes_more) {
      runtime_.fail("the macro '{}' takes at most {} arguments, not {}", printable(macro.name),
                    count, positional.size());
    }
    Sequence* more = runtime_.sequence(Sequence::Flavour::kTuple);
    for (size_t i = taken; i < positional.size(); ++i) runtime_.push(more, positional[i]);
    Dict* named = runtime_.dict();
    const auto unbound = std::span(macro.parameters).subspan(taken);
    Value caller = Value::undefined();
    for (const auto& [name, value] : arguments.named) {
      if (runtime_.failed()) return;
      const auto spelled_so = [&key = name](const auto& it) { return it.spelled == key; };
      if (std::ranges::any_of(unbound, spelled_so)) continue;
      if (name == "caller" && macro.takes_caller) {
        caller = value;
      } else if (macro.takes_more_named) {
        runtime_.put(named, runtime_.text(name), value);
      } else {
        runtime_.fail("the macro '{}' has no parameter '{}'", printable(macro.name),
                      printable(name));
      }
    }
    if (macro.takes_more) scope->set(kVarargsName, Value::of(more));
    if (macro.takes_caller) scope->set(kCallerName, caller);
    if (macro.takes_more_named) scope->set(kKwargsName, Value::of(named));
  }

  // Says where a failure came about, unless that was said already.
  void locate(const Place& place) {
    if (runtime_.failed() && !std::exchange(located_, true)) {
      runtime_.add_context(description(place));
    }
  }

  // So that the scope and those around it outlive their blocks.
  static void keep(Scope* scope) {
    for (; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  }

  Runtime& runtime_;
  Value block_text_;  // what the filters of a filter block apply to
  bool located_ = false;
};

}  // namespace

void run(Runtime& runtime, const Program& program, Scope* scope, TextBuilder& out) {
  Interpreter(runtime).run_block(program.body, scope, out);
}

}  // namespace aerie::jinja
