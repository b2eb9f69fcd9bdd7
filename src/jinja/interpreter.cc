#include "jinja/interpreter.h"

#include <fmt/format.h>

namespace aerie::jinja {

void Interpreter::locate(const Place& place) {
  if (runtime_.failed() && !std::exchange(located_, true)) {
    runtime_.add_context(description(place));
  }
}

void Interpreter::keep(Scope* scope) {
  for (; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
}

Interpreter::Flow Interpreter::run_block(const Block& block, Scope* scope, TextBuilder& out) {
  const Runtime::Level level(runtime_);
  for (const Statement& statement : block) {
    const Flow flow = runtime_.spend() ? run_statement(statement, scope, out) : Flow::kBreak;
    locate(statement.place);
    if (runtime_.failed()) return Flow::kBreak;
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement, Scope* scope,
                                             TextBuilder& out) {
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
      scope->set(statement.target.name, Value::of(make_macro(statement, scope)));
      break;
    case Statement::Kind::kCall:
      run_call(statement, scope, out);
      break;
    case Statement::Kind::kWith:
      return run_with(statement, scope, out);
    case Statement::Kind::kScope:
      return run_inner(statement.body, scope, out);
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement, Scope* scope, TextBuilder& out) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition != nullptr && !truth(evaluate(*branch.condition, scope))) continue;
    return run_block(branch.body, scope, out);
  }
  return Flow::kNext;
}

// Those that the filter of the loop lets through.
Sequence* Interpreter::loop_items(const Statement& statement, Scope* scope, const Value& values) {
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

void Interpreter::run_loop(const Statement& statement, Scope* scope, const Value& values, int depth,
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
    inner->clear();
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

Interpreter::Flow Interpreter::run_inner(const Block& block, Scope* scope, TextBuilder& out) {
  Scope* inner = runtime_.scope(scope);
  const Flow flow = run_block(block, inner, out);
  runtime_.release(inner);
  return flow;
}

// A block whose text goes through filters and is then assigned, or written. Nothing happens to it
// if it is left early.
Interpreter::Flow Interpreter::run_captured(const Statement& statement, Scope* scope,
                                            TextBuilder& out) {
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

Interpreter::Flow Interpreter::run_with(const Statement& statement, Scope* scope,
                                        TextBuilder& out) {
  std::vector<Value> values;
  for (const auto& binding : statement.bindings) values.push_back(evaluate(*binding.second, scope));
  Scope* inner = runtime_.scope(scope);
  for (size_t i = 0; i < values.size(); ++i) {
    assign(statement.bindings[i].first, values[i], inner);
  }
  const Flow flow = run_block(statement.body, inner, out);
  runtime_.release(inner);
  return flow;
}

Callable* Interpreter::make_macro(const Statement& statement, Scope* scope) {
  Callable* macro = runtime_.callable(Callable::What::kMacro);
  macro->macro = statement.macro.get();
  macro->scope = scope;
  keep(scope);
  return macro;
}

void Interpreter::run_call(const Statement& statement, Scope* scope, TextBuilder& out) {
  Callable* caller = make_macro(statement, scope);
  const Value value = evaluate_call(*statement.expression, scope, caller);
  locate(statement.expression->place);
  write_text(out, value);
}

void Interpreter::assign(const Target& target, const Value& value, Scope* scope) {
  if (target.is_tuple) {
    const std::vector<Value> values = iterate(runtime_, value)->items;
    const size_t count = target.parts.size();
    if (values.size() != count) {
      runtime_.fail(fmt::format("{} values for {} names", values.size(), count));
    }
    for (size_t i = 0; i < count && !runtime_.failed(); ++i) {
      assign(target.parts[i], values[i], scope);
    }
  } else if (target.attribute == nullptr) {
    scope->set(target.name, value);
  } else {
    const Value* object = nullptr;
    for (; scope != nullptr && object == nullptr; scope = scope->parent) {
      object = scope->find(target.name);
    }
    if (object != nullptr && object->is(Kind::kNamespace)) {
      runtime_.put(object->dict, Value::of(target.attribute.get()), value);
    } else {
      runtime_.fail(
          fmt::format("'{}' is no namespace, so its attributes cannot be set", target.spelled));
    }
  }
  locate(target.place);
}

}  // namespace aerie::jinja
