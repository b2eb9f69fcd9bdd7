// Runs a program.
#pragma once

#include "base/status.h"
#include "jinja/builtins/native.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/operations.h"
#include "jinja/values/runtime.h"

namespace aerie::jinja {

// One rendering. The program outlives it.
class Interpreter {
 public:
  explicit Interpreter(Runtime& runtime) : runtime_(runtime) {}

  // Appends what the program gives with the variables of `scope` to `out`. Messages say where.
  Status run(const Program& program, Scope* scope, TextBuilder& out);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements (interpreter.cc).
  Expected<Flow> run_block(const Block& block, Scope* scope, TextBuilder& out);
  Expected<Flow> run_statement(const Statement& statement, Scope* scope, TextBuilder& out);
  Expected<Flow> run_if(const Statement& statement, Scope* scope, TextBuilder& out);
  Status run_for(const Statement& statement, Scope* scope, TextBuilder& out);
  Status run_output(const Expression& expression, Scope* scope, TextBuilder& out);
  Expected<Flow> run_set_block(const Statement& statement, Scope* scope);
  Status run_call(const Statement& statement, Scope* scope, TextBuilder& out);
  Expected<Flow> run_filter(const Statement& statement, Scope* scope, TextBuilder& out);
  Expected<Flow> run_with(const Statement& statement, Scope* scope, TextBuilder& out);
  void define_macro(const Statement& statement, Scope* scope);
  // A block with variables of its own.
  Expected<Flow> run_inner(const Block& block, Scope* scope, TextBuilder& out);
  // What such a block gives, through the filters of the statement; nothing if it is left early.
  Expected<Flow> capture(const Statement& statement, Scope* scope, Value& text);
  // `values` is what to go through; `depth` counts recursive loops.
  Status run_loop(const Statement& statement, Scope* scope, const Value& values, int depth,
                  TextBuilder& out);
  Expected<Sequence*> loop_items(const Statement& statement, Scope* scope, const Value& values);
  Status assign(const Target& target, const Value& value, Scope* scope);

  // Expressions (evaluate.cc).
  Expected<Value> evaluate(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_kind(const Expression& expression, Scope* scope);
  Value look_up(const Expression& name, const Scope* scope);
  Expected<Value> evaluate_sequence(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_dict(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_logic(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_sign(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_arithmetic(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_comparison(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_conditional(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_access(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_slice(const Expression& expression, Scope* scope);
  Expected<Value> evaluate_native(const Expression& expression, Scope* scope);

  // Calls (call.cc).
  // `caller` is the body of a call block; may be null.
  Expected<Value> evaluate_call(const Expression& expression, Scope* scope, Callable* caller);
  Status evaluate_arguments(const Expression& expression, Scope* scope, Arguments& arguments);
  Expected<Value> call(const Value& callee, const Arguments& arguments);
  Expected<Value> call_macro(const Callable& callable, const Arguments& arguments);
  Status bind_macro(const Macro& macro, const Arguments& arguments, Scope* scope);
  Status bind_extra(const Macro& macro, const Arguments& arguments, Scope* scope);

  // Says where an error came about, unless that was said already.
  Status located(const Place& place, const Status& status);
  // So that the scope and those around it outlive their blocks.
  static void keep(Scope* scope);

  Runtime& runtime_;
  const Value* block_text_ = nullptr;  // what the filters of a filter block apply to
  bool located_ = false;
};

}  // namespace aerie::jinja
