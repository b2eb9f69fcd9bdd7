#include "jinja/syntax/parser.h"

#include <fmt/format.h>

#include <initializer_list>

#include "format/text.h"
#include "jinja/syntax/expression_parser.h"
#include "jinja/syntax/token_stream.h"

namespace aerie::jinja {
namespace {

using What = Statement::Kind;
using Type = Token::Type;

class Parser {
 public:
  explicit Parser(TokenStream& tokens) : tokens_(tokens), expressions_(tokens) {}

  // All statements until a tag that begins with one of `ends`, which is not read; with no ends,
  // until the end of the template.
  Expected<Block> block(std::initializer_list<std::string_view> ends);

 private:
  Expected<Statement> tag();
  Expected<Statement> if_tag(Statement result);
  Expected<Statement> for_tag(Statement result);
  Expected<Statement> set_tag(Statement result);
  Expected<Statement> macro_tag(Statement result);
  Expected<Statement> call_tag(Statement result);
  Expected<Statement> filter_tag(Statement result);
  Expected<Statement> with_tag(Statement result);
  Expected<Statement> generation_tag(Statement result);
  Expected<Statement> loop_control(Statement result, What kind);
  Status signature(Macro& macro);
  // The rest of the opening tag, the block and the name of the tag that ends it.
  Expected<Block> body(std::initializer_list<std::string_view> ends);
  Expected<Block> body_until(std::string_view end);
  // A block that is a function of its own: break and continue do not reach out of it.
  Status macro_body(Macro& macro, std::string_view end);

  TokenStream& tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

Expected<Block> Parser::block(std::initializer_list<std::string_view> ends) {
  const TokenStream::Level level(tokens_);
  if (level.too_deep()) return tokens_.too_deep();
  Block result;
  for (;;) {
    switch (tokens_.peek().type) {
      case Type::kText: {
        Token token = tokens_.take();
        Statement text;
        text.kind = What::kText;
        text.place = token.place;
        text.text = std::move(token.text);
        result.push_back(std::move(text));
        break;
      }
      case Type::kOutputBegin: {
        Statement output;
        output.kind = What::kOutput;
        output.place = tokens_.take().place;
        AERIE_ASSIGN_OR_RETURN(output.expression, expressions_.tuple({}));
        AERIE_RETURN_IF_ERROR(tokens_.expect(Type::kOutputEnd));
        result.push_back(std::move(output));
        break;
      }
      case Type::kTagBegin: {
        for (const std::string_view end : ends) {
          if (tokens_.is_name(end, 1)) {
            tokens_.take();
            return result;
          }
        }
        AERIE_ASSIGN_OR_RETURN(Statement statement, tag());
        AERIE_RETURN_IF_ERROR(tokens_.expect(Type::kTagEnd));
        result.push_back(std::move(statement));
        break;
      }
      default:
        if (ends.size() == 0) return result;
        return tokens_.unexpected(fmt::format("a tag '{}'", *(ends.end() - 1)));
    }
  }
}

Expected<Block> Parser::body(std::initializer_list<std::string_view> ends) {
  tokens_.skip_operator(":");
  AERIE_RETURN_IF_ERROR(tokens_.expect(Type::kTagEnd));
  return block(ends);
}

Expected<Block> Parser::body_until(std::string_view end) {
  AERIE_ASSIGN_OR_RETURN(Block result, body({end}));
  tokens_.take();
  return result;
}

Status Parser::macro_body(Macro& macro, std::string_view end) {
  const int outer_loops = std::exchange(loops_, 0);
  tokens_.macros().push_back(&macro);
  auto parsed = body_until(end);
  tokens_.macros().pop_back();
  loops_ = outer_loops;
  if (!parsed.ok()) return parsed.status();
  macro.body = std::move(parsed).value();
  return {};
}

Expected<Statement> Parser::tag() {
  Statement result;
  result.place = tokens_.take().place;
  AERIE_ASSIGN_OR_RETURN(const Token token, tokens_.expect_any_name());
  const std::string& name = token.text;
  if (name == "if") return if_tag(std::move(result));
  if (name == "for") return for_tag(std::move(result));
  if (name == "set") return set_tag(std::move(result));
  if (name == "macro") return macro_tag(std::move(result));
  if (name == "call") return call_tag(std::move(result));
  if (name == "filter") return filter_tag(std::move(result));
  if (name == "with") return with_tag(std::move(result));
  if (name == "generation") return generation_tag(std::move(result));
  if (name == "break") return loop_control(std::move(result), What::kBreak);
  if (name == "continue") return loop_control(std::move(result), What::kContinue);
  if (name == "print") {
    result.kind = What::kOutput;
    AERIE_ASSIGN_OR_RETURN(result.expression, expressions_.expression());
    return result;
  }
  if (name.starts_with("end") || name == "else" || name == "elif") {
    return syntax_error(token.place, fmt::format("'{}' without its beginning", printable(name)));
  }
  return at_place(token.place, {StatusCode::kUnsupported,
                                fmt::format("the tag '{}' is not supported", printable(name))});
}

Expected<Statement> Parser::if_tag(Statement result) {
  result.kind = What::kIf;
  for (bool more = true; more;) {
    Branch branch;
    AERIE_ASSIGN_OR_RETURN(branch.condition, expressions_.tuple({false, false, ""}));
    AERIE_ASSIGN_OR_RETURN(branch.body, body({"elif", "else", "endif"}));
    result.branches.push_back(std::move(branch));
    const std::string end = tokens_.take().text;
    more = end == "elif";
    if (end == "else") {
      Branch otherwise;
      AERIE_ASSIGN_OR_RETURN(otherwise.body, body_until("endif"));
      result.branches.push_back(std::move(otherwise));
    }
  }
  return result;
}

Expected<Statement> Parser::for_tag(Statement result) {
  result.kind = What::kFor;
  AERIE_ASSIGN_OR_RETURN(result.target, expressions_.target(false));
  AERIE_RETURN_IF_ERROR(tokens_.expect_name("in"));
  AERIE_ASSIGN_OR_RETURN(result.expression, expressions_.tuple({false, false, "recursive"}));
  if (tokens_.skip_name("if")) {
    AERIE_ASSIGN_OR_RETURN(result.filter, expressions_.expression());
  }
  result.recursive = tokens_.skip_name("recursive");
  ++loops_;
  auto loop_body = body({"endfor", "else"});
  --loops_;
  if (!loop_body.ok()) return loop_body.status();
  result.body = std::move(loop_body).value();
  if (tokens_.take().text == "else") {
    AERIE_ASSIGN_OR_RETURN(result.otherwise, body_until("endfor"));
  }
  return result;
}

Expected<Statement> Parser::set_tag(Statement result) {
  AERIE_ASSIGN_OR_RETURN(result.target, expressions_.target(true));
  if (tokens_.skip_operator("=")) {
    result.kind = What::kSet;
    AERIE_ASSIGN_OR_RETURN(result.expression, expressions_.tuple({}));
    return result;
  }
  result.kind = What::kSetBlock;
  AERIE_ASSIGN_OR_RETURN(result.expression, expressions_.filters(nullptr, false));
  AERIE_ASSIGN_OR_RETURN(result.body, body_until("endset"));
  return result;
}

Status Parser::signature(Macro& macro) {
  AERIE_RETURN_IF_ERROR(tokens_.expect_operator("("));
  bool has_default = false;
  while (!tokens_.is_operator(")")) {
    if (!macro.parameters.empty()) AERIE_RETURN_IF_ERROR(tokens_.expect_operator(","));
    AERIE_ASSIGN_OR_RETURN(const Token token, tokens_.expect_any_name());
    Parameter parameter;
    parameter.name = tokens_.number_of(token.text);
    parameter.spelled = token.text;
    if (tokens_.skip_operator("=")) {
      AERIE_ASSIGN_OR_RETURN(parameter.otherwise, expressions_.expression());
      has_default = true;
    } else if (has_default) {
      return tokens_.error("a parameter without a default after one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  return tokens_.expect_operator(")");
}

Expected<Statement> Parser::macro_tag(Statement result) {
  result.kind = What::kMacro;
  result.macro = std::make_unique<Macro>();
  AERIE_ASSIGN_OR_RETURN(const Token name, tokens_.expect_any_name());
  result.macro->name = name.text;
  result.target.name = tokens_.number_of(name.text);
  AERIE_RETURN_IF_ERROR(signature(*result.macro));
  AERIE_RETURN_IF_ERROR(macro_body(*result.macro, "endmacro"));
  return result;
}

Expected<Statement> Parser::call_tag(Statement result) {
  result.kind = What::kCall;
  result.macro = std::make_unique<Macro>();
  if (tokens_.is_operator("(")) AERIE_RETURN_IF_ERROR(signature(*result.macro));
  AERIE_ASSIGN_OR_RETURN(result.expression, expressions_.expression());
  if (result.expression->kind != Expression::Kind::kCall) {
    return syntax_error(result.place, "a call block without a call");
  }
  AERIE_RETURN_IF_ERROR(macro_body(*result.macro, "endcall"));
  return result;
}

Expected<Statement> Parser::filter_tag(Statement result) {
  result.kind = What::kFilter;
  AERIE_ASSIGN_OR_RETURN(result.expression, expressions_.filters(nullptr, true));
  AERIE_ASSIGN_OR_RETURN(result.body, body_until("endfilter"));
  return result;
}

Expected<Statement> Parser::with_tag(Statement result) {
  result.kind = What::kWith;
  while (!tokens_.is(Type::kTagEnd) && !tokens_.is_operator(":")) {
    if (!result.bindings.empty()) AERIE_RETURN_IF_ERROR(tokens_.expect_operator(","));
    AERIE_ASSIGN_OR_RETURN(Target target, expressions_.target(false));
    AERIE_RETURN_IF_ERROR(tokens_.expect_operator("="));
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.expression());
    result.bindings.emplace_back(std::move(target), std::move(value));
  }
  AERIE_ASSIGN_OR_RETURN(result.body, body_until("endwith"));
  return result;
}

Expected<Statement> Parser::generation_tag(Statement result) {
  result.kind = What::kScope;
  const int outer_loops = std::exchange(loops_, 0);
  auto parsed = body_until("endgeneration");
  loops_ = outer_loops;
  if (!parsed.ok()) return parsed.status();
  result.body = std::move(parsed).value();
  return result;
}

Expected<Statement> Parser::loop_control(Statement result, What kind) {
  if (loops_ == 0) return syntax_error(result.place, "break or continue outside of a loop");
  result.kind = kind;
  return result;
}

}  // namespace

Expected<std::shared_ptr<const Program>> parse_program(std::string_view source,
                                                       const Limits& limits) {
  auto program = std::make_shared<Program>();
  program->limits = limits;
  program->names = {{"loop", kLoopName},
                    {"caller", kCallerName},
                    {"varargs", kVarargsName},
                    {"kwargs", kKwargsName}};
  AERIE_ASSIGN_OR_RETURN(std::vector<Token> tokens, lex(source, limits));
  TokenStream stream(std::move(tokens), *program);
  AERIE_ASSIGN_OR_RETURN(program->body, Parser(stream).block({}));
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace aerie::jinja
