// Runs a program.
#pragma once

#include "jinja/builtins/native.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/operations.h"
#include "jinja/values/runtime.h"

namespace aerie::jinja {

// One rendering. The program outlives it.
class Interpreter {
 public:
  explicit Interpreter(Runtime& runtime) : runtime_(runtime) {}

  // Appends what the program gives with the variables of `scope` to `out`. The message of a failure
  // says where it came about.
  void run(const Program& program, Scope* scope, TextBuilder& out) {
    run_block(program.body, scope, out);
  }

 private:
  // A failure leaves as a break does.
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements.
  Flow run_block(const Block& block, Scope* scope, TextBuilder& out);
  Flow run_statement(const Statement& statement, Scope* scope, TextBuilder& out);
  Flow run_if(const Statement& statement, Scope* scope, TextBuilder& out);
  Flow run_captured(const Statement& statement, Scope* scope, TextBuilder& out);
  void run_call(const Statement& statement, Scope* scope, TextBuilder& out);
  Flow run_with(const Statement& statement, Scope* scope, TextBuilder& out);
  // A macro of the statement, or the body of its call block, which remembers the scope.
  Callable* make_macro(const Statement& statement, Scope* scope);
  // A block with variables of its own.
  Flow run_inner(const Block& block, Scope* scope, TextBuilder& out);
  // `values` is what to go through; `depth` counts recursive loops.
  void run_loop(const Statement& statement, Scope* scope, const Value& values, int depth,
                TextBuilder& out);
  Sequence* loop_items(const Statement& statement, Scope* scope, const Value& values);
  void assign(const Target& target, const Value& value, Scope* scope);

  // Expressions.
  Value evaluate(const Expression& expression, Scope* scope);
  Value evaluate_kind(const Expression& expression, Scope* scope);
  Value look_up(const Expression& name, const Scope* scope);
  Value evaluate_sequence(const Expression& expression, Scope* scope);
  Value evaluate_dict(const Expression& expression, Scope* scope);
  Value evaluate_logic(const Expression& expression, Scope* scope);
  Value evaluate_sign(const Expression& expression, Scope* scope);
  Value evaluate_comparison(const Expression& expression, Scope* scope);
  Value evaluate_slice(const Expression& expression, Scope* scope);
  Value evaluate_native(const Expression& expression, Scope* scope);

  // Calls.
  // `caller` is the body of a call block; may be null.
  Value evaluate_call(const Expression& expression, Scope* scope, Callable* caller);
  Arguments evaluate_arguments(const Expression& expression, Scope* scope);
  void add_argument(const Argument& argument, const Value& value, Arguments& arguments);
  Value call(const Value& callee, const Arguments& arguments);
  Value call_loop(const Loop& loop, const Arguments& arguments);
  Value call_macro(const Callable& callable, const Arguments& arguments);
  void bind_macro(const Macro& macro, const Arguments& arguments, Scope* scope);
  void bind_extra(const Macro& macro, const Arguments& arguments, Scope* scope);

  // Says where a failure came about, unless that was said already.
  void locate(const Place& place);
  // So that the scope and those around it outlive their blocks.
  static void keep(Scope* scope);

  Runtime& runtime_;
  Value block_text_;  // what the filters of a filter block apply to
  bool located_ = false;
};

}  // namespace aerie::jinja
