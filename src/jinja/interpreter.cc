#include "jinja/interpreter.h"

#include <fmt/format.h>

namespace aerie::jinja {

Status Interpreter::located(const Place& place, const Status& status) {
  if (status.ok() || located_) return status;
  located_ = true;
  return at_place(place, status);
}

void Interpreter::keep(Scope* scope) {
  for (; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
}

Status Interpreter::run(const Program& program, Scope* scope, TextBuilder& out) {
  const auto flow = run_block(program.body, scope, out);
  return flow.ok() ? out.status() : flow.status();
}

Expected<Interpreter::Flow> Interpreter::run_block(const Block& block, Scope* scope,
                                                   TextBuilder& out) {
  const Runtime::Level level(runtime_);
  for (const Statement& statement : block) {
    if (level.too_deep()) return located(statement.place, runtime_.too_deep());
    if (Status status = runtime_.spend(); !status.ok()) return located(statement.place, status);
    AERIE_ASSIGN_OR_RETURN(const Flow flow, run_statement(statement, scope, out));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Expected<Interpreter::Flow> Interpreter::run_statement(const Statement& statement, Scope* scope,
                                                       TextBuilder& out) {
  Status status;
  switch (statement.kind) {
    case Statement::Kind::kText:
      out.add(statement.text);
      status = located(statement.place, out.status());
      break;
    case Statement::Kind::kOutput:
      status = run_output(*statement.expression, scope, out);
      break;
    case Statement::Kind::kIf:
      return run_if(statement, scope, out);
    case Statement::Kind::kFor:
      status = run_for(statement, scope, out);
      break;
    case Statement::Kind::kSet: {
      AERIE_ASSIGN_OR_RETURN(const Value value, evaluate(*statement.expression, scope));
      status = assign(statement.target, value, scope);
      break;
    }
    case Statement::Kind::kSetBlock:
      return run_set_block(statement, scope);
    case Statement::Kind::kMacro:
      define_macro(statement, scope);
      break;
    case Statement::Kind::kCall:
      status = run_call(statement, scope, out);
      break;
    case Statement::Kind::kFilter:
      return run_filter(statement, scope, out);
    case Statement::Kind::kWith:
      return run_with(statement, scope, out);
    case Statement::Kind::kScope:
      return run_inner(statement.body, scope, out);
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  if (!status.ok()) return status;
  return Flow::kNext;
}

Status Interpreter::run_output(const Expression& expression, Scope* scope, TextBuilder& out) {
  AERIE_ASSIGN_OR_RETURN(const Value value, evaluate(expression, scope));
  write_text(out, runtime_, value);
  return located(expression.place, out.status());
}

Expected<Interpreter::Flow> Interpreter::run_if(const Statement& statement, Scope* scope,
                                                TextBuilder& out) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition != nullptr) {
      AERIE_ASSIGN_OR_RETURN(const Value value, evaluate(*branch.condition, scope));
      if (!truth(value)) continue;
    }
    return run_block(branch.body, scope, out);
  }
  return Flow::kNext;
}

Status Interpreter::run_for(const Statement& statement, Scope* scope, TextBuilder& out) {
  AERIE_ASSIGN_OR_RETURN(const Value values, evaluate(*statement.expression, scope));
  return run_loop(statement, scope, values, 0, out);
}

// Those that the filter of the loop lets through.
Expected<Sequence*> Interpreter::loop_items(const Statement& statement, Scope* scope,
                                            const Value& values) {
  auto all = iterate(runtime_, values);
  if (!all.ok()) return located(statement.expression->place, all.status());
  if (statement.filter == nullptr) return all.value();
  Sequence* kept = runtime_.sequence();
  Scope* inner = runtime_.scope(scope);
  for (size_t i = 0; i < all.value()->items.size(); ++i) {
    const Value item = all.value()->items[i];
    AERIE_RETURN_IF_ERROR(assign(statement.target, item, inner));
    AERIE_ASSIGN_OR_RETURN(const Value passes, evaluate(*statement.filter, inner));
    if (truth(passes)) runtime_.push(kept, item);
  }
  runtime_.release(inner);
  return kept;
}

Status Interpreter::run_loop(const Statement& statement, Scope* scope, const Value& values,
                             int depth, TextBuilder& out) {
  AERIE_ASSIGN_OR_RETURN(Sequence * items, loop_items(statement, scope, values));
  if (statement.recursive) keep(scope);
  Loop* loop = runtime_.loop();
  loop->statement = &statement;
  loop->scope = scope;
  loop->items = items;
  loop->depth = depth;
  Scope* inner = runtime_.scope(scope);
  bool completed = false;
  // The body may make the list longer, or shorter.
  for (; loop->index < items->items.size(); ++loop->index) {
    if (Status status = runtime_.spend(); !status.ok()) return located(statement.place, status);
    if (inner->captured) inner = runtime_.scope(scope);
    inner->clear();
    inner->set(kLoopName, Value::of(loop));
    AERIE_RETURN_IF_ERROR(assign(statement.target, Value(items->items[loop->index]), inner));
    AERIE_ASSIGN_OR_RETURN(const Flow flow, run_block(statement.body, inner, out));
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  runtime_.release(inner);
  // Jinja's `else` is for loops of which no pass came to its end.
  if (completed || statement.otherwise.empty()) return {};
  return run_inner(statement.otherwise, scope, out).status();
}

Expected<Interpreter::Flow> Interpreter::run_inner(const Block& block, Scope* scope,
                                                   TextBuilder& out) {
  Scope* inner = runtime_.scope(scope);
  auto flow = run_block(block, inner, out);
  runtime_.release(inner);
  return flow;
}

Expected<Interpreter::Flow> Interpreter::capture(const Statement& statement, Scope* scope,
                                                 Value& text) {
  TextBuilder inner(runtime_);
  AERIE_ASSIGN_OR_RETURN(const Flow flow, run_inner(statement.body, scope, inner));
  if (flow != Flow::kNext) return flow;
  const auto body = inner.value();
  if (!body.ok()) return located(statement.place, body.status());
  text = body.value();
  if (statement.expression == nullptr) return flow;
  const Value* outer = std::exchange(block_text_, &body.value());
  const auto filtered = evaluate(*statement.expression, scope);
  block_text_ = outer;
  if (!filtered.ok()) return filtered.status();
  text = filtered.value();
  return flow;
}

Expected<Interpreter::Flow> Interpreter::run_set_block(const Statement& statement, Scope* scope) {
  Value value;
  AERIE_ASSIGN_OR_RETURN(const Flow flow, capture(statement, scope, value));
  if (flow == Flow::kNext) AERIE_RETURN_IF_ERROR(assign(statement.target, value, scope));
  return flow;
}

Expected<Interpreter::Flow> Interpreter::run_filter(const Statement& statement, Scope* scope,
                                                    TextBuilder& out) {
  Value value;
  AERIE_ASSIGN_OR_RETURN(const Flow flow, capture(statement, scope, value));
  if (flow != Flow::kNext) return flow;
  write_text(out, runtime_, value);
  AERIE_RETURN_IF_ERROR(located(statement.place, out.status()));
  return flow;
}

Expected<Interpreter::Flow> Interpreter::run_with(const Statement& statement, Scope* scope,
                                                  TextBuilder& out) {
  std::vector<Value> values;
  for (const auto& binding : statement.bindings) {
    AERIE_ASSIGN_OR_RETURN(const Value value, evaluate(*binding.second, scope));
    values.push_back(value);
  }
  Scope* inner = runtime_.scope(scope);
  for (size_t i = 0; i < values.size(); ++i) {
    AERIE_RETURN_IF_ERROR(assign(statement.bindings[i].first, values[i], inner));
  }
  auto flow = run_block(statement.body, inner, out);
  runtime_.release(inner);
  return flow;
}

void Interpreter::define_macro(const Statement& statement, Scope* scope) {
  Callable* macro = runtime_.callable(Callable::What::kMacro);
  macro->macro = statement.macro.get();
  macro->scope = scope;
  keep(scope);
  scope->set(statement.target.name, Value::of(macro));
}

Status Interpreter::run_call(const Statement& statement, Scope* scope, TextBuilder& out) {
  Callable* caller = runtime_.callable(Callable::What::kMacro);
  caller->macro = statement.macro.get();
  caller->scope = scope;
  keep(scope);
  AERIE_ASSIGN_OR_RETURN(const Value value, evaluate_call(*statement.expression, scope, caller));
  write_text(out, runtime_, value);
  return located(statement.place, out.status());
}

Status Interpreter::assign(const Target& target, const Value& value, Scope* scope) {
  if (target.is_tuple) {
    auto items = iterate(runtime_, value);
    if (!items.ok()) return located(target.place, items.status());
    const size_t count = items.value()->items.size();
    if (count != target.parts.size()) {
      return located(target.place,
                     fail(fmt::format("{} values for {} names", count, target.parts.size())));
    }
    const std::vector<Value> values = items.value()->items;
    for (size_t i = 0; i < count; ++i) {
      AERIE_RETURN_IF_ERROR(assign(target.parts[i], values[i], scope));
    }
    return {};
  }
  if (target.attribute == nullptr) {
    scope->set(target.name, value);
    return {};
  }
  const Value* object = nullptr;
  for (const Scope* around = scope; around != nullptr && object == nullptr;
       around = around->parent) {
    object = around->find(target.name);
  }
  if (object == nullptr || !object->is(Kind::kNamespace)) {
    return located(target.place, fail(fmt::format("'{}' is no namespace, so its attributes cannot "
                                                  "be set",
                                                  target.spelled->view)));
  }
  return located(target.place,
                 runtime_.put(object->dict, Value::of(target.attribute.get()), value));
}

}  // namespace aerie::jinja
