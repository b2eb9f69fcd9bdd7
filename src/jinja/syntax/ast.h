// A parsed template. Immutable, so that many renderings can share it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "jinja/builtins/native.h"
#include "jinja/limits.h"
#include "jinja/syntax/lexer.h"
#include "jinja/values/operations.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

struct Expression;
struct Macro;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  enum class Kind : uint8_t { kPositional, kNamed, kSpread, kSpreadNamed };  // the latter: * and **
  Kind kind = Kind::kPositional;
  std::string name;
  ExpressionPtr value;
};

struct Expression {
  enum class Kind : uint8_t {
    kLiteral,      // literal; of a string: `text`
    kName,         // name, text
    kList,         // operands
    kTuple,        // operands
    kDict,         // operands: key, value, key, value, ...
    kAnd,          // operands[0], [1]
    kOr,           // operands[0], [1]
    kNot,          // operands[0]
    kSign,         // operators[0] operands[0]
    kArithmetic,   // operands[0] operators[0] operands[1]
    kCompare,      // operands[0] operators[0] operands[1] operators[1] ...
    kConditional,  // operands: condition, then, else (may be null)
    kAttribute,    // operands[0].text
    kItem,         // operands[0][operands[1]]
    kSlice,        // operands[0][operands[1]:operands[2]:operands[3]], each may be null
    kCall,         // operands[0](arguments), caller
    kFilter,       // operands[0] | native(arguments); operands[0] is null in a filter block
    kTest,         // operands[0] is native(arguments)
  };
  Kind kind = Kind::kLiteral;
  Place place;
  int height = 1;  // of the tree
  Value literal;
  std::unique_ptr<Text> text;
  int name = -1;
  const Native* native = nullptr;  // kName: the function of that name, if there is one
  std::vector<Operator> operators;
  std::vector<ExpressionPtr> operands;
  std::vector<Argument> arguments;
  std::unique_ptr<Macro> caller;  // the body of a call block; else null
};

// What is assigned to: a name, an attribute of a namespace, or several targets.
struct Target {
  int name = -1;
  std::unique_ptr<Text> attribute;
  std::string spelled;  // the name
  std::vector<Target> parts;
  bool is_tuple = false;
  Place place;
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  int name = -1;
  std::string spelled;
  ExpressionPtr otherwise;  // may be null
};

struct Macro {
  std::string name;  // empty for the body of a call block
  std::vector<Parameter> parameters;
  Block body;
  bool takes_more = false;        // uses varargs
  bool takes_more_named = false;  // uses kwargs
  bool takes_caller = false;      // uses caller, which is no parameter
};

struct Branch {
  ExpressionPtr condition;  // null: else
  Block body;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,      // text
    kOutput,    // expression
    kIf,        // branches
    kFor,       // target, expression, filter, body, otherwise, recursive
    kSet,       // target, expression
    kSetBlock,  // target, body, expression (filters; may be null)
    kMacro,     // target.name, macro
    kFilter,    // expression (filters), body
    kScope,     // body, with variables of its own
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  Place place;
  std::string text;
  Target target;
  ExpressionPtr expression;
  ExpressionPtr filter;
  bool recursive = false;
  std::vector<Branch> branches;
  Block body;
  Block otherwise;
  std::unique_ptr<Macro> macro;
};

// Names that mean something to the evaluator have fixed numbers.
enum : int { kLoopName, kCallerName, kVarargsName, kKwargsName, kFixedNames };

struct Program {
  Limits limits;
  Block body;
  std::map<std::string, int, std::less<>> names;
};

}  // namespace aerie::jinja
