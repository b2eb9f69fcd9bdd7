#include "jinja/syntax/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "base/errors.h"
#include "format/text.h"
#include "jinja/syntax/expression_parser.h"
#include "jinja/syntax/token_stream.h"

namespace aerie::jinja {
namespace {

// Statements. After a failure (token_stream.h) they are anything.
class Parser {
 public:
  explicit Parser(TokenStream& tokens) : tokens_(tokens), expressions_(tokens) {}

  // All statements until a tag that begins with one of `ends`, which is not read; with no ends,
  // until the end of the template.
  Block block(std::initializer_list<std::string_view> ends) {
    const TokenStream::Level level(tokens_);
    Block result;
    for (;;) {
      for (const std::string_view end : ends) {
        if (!tokens_.is("{%") || !tokens_.is(end, 1)) continue;
        tokens_.take();
        return result;
      }
      if (tokens_.is(Token::Type::kEnd)) {
        if (ends.size() > 0) {
          tokens_.fail_unexpected(fmt::format("a tag '{}'", *(ends.end() - 1)));
        }
        return result;
      }
      result.push_back(statement());
    }
  }

 private:
  using What = Statement::Kind;

  Statement statement() {
    Statement result;
    const Token& token = tokens_.take();
    result.place = token.place;
    if (token.type == Token::Type::kText) {
      result.text = token.text;
    } else if (token.text == "{{") {
      result.kind = What::kOutput;
      result.expression = expressions_.tuple({});
      tokens_.expect("}}");
    } else {
      tag(result);
      tokens_.expect("%}");
    }
    return result;
  }

  void tag(Statement& result) {
    struct Tag {
      std::string_view name;
      void (Parser::*parse)(Statement&);
    };
    constexpr Tag kTags[] = {
        {"if", &Parser::if_tag},
        {"for", &Parser::for_tag},
        {"set", &Parser::set_tag},
        {"macro", &Parser::macro_tag},
        {"call", &Parser::call_tag},
        {"filter", &Parser::filter_tag},
        {"with", &Parser::with_tag},
        {"generation", &Parser::generation_tag},
        {"print", &Parser::print_tag},
        {"break", &Parser::break_tag},
        {"continue", &Parser::continue_tag},
    };
    const Token& token = tokens_.expect_name();
    for (const Tag& known : kTags) {
      if (known.name == token.text) return (this->*known.parse)(result);
    }
    const std::string name = printable(token.text);
    if (name.starts_with("end") || name == "else" || name == "elif") {
      return tokens_.fail(token.place, invalid_data("'{}' without its beginning", name));
    }
    tokens_.fail(token.place, not_supported("the tag '{}' is not supported", name));
  }

  void if_tag(Statement& result) {
    result.kind = What::kIf;
    for (bool more = true; more;) {
      Branch& branch = result.branches.emplace_back();
      branch.condition = expressions_.tuple({false});
      branch.body = body({"elif", "else", "endif"});
      const std::string& end = tokens_.take().text;
      more = end == "elif";
      if (end == "else") result.branches.push_back({nullptr, body_until("endif")});
    }
  }

  void for_tag(Statement& result) {
    result.kind = What::kFor;
    result.target = expressions_.target(false);
    tokens_.expect("in");
    result.expression = expressions_.tuple({false, false, "recursive"});
    if (tokens_.skip("if")) result.filter = expressions_.expression();
    result.recursive = tokens_.skip("recursive");
    ++loops_;
    result.body = body({"endfor", "else"});
    --loops_;
    if (tokens_.take().text == "else") result.otherwise = body_until("endfor");
  }

  void set_tag(Statement& result) {
    result.target = expressions_.target(true);
    if (tokens_.skip("=")) {
      result.kind = What::kSet;
      result.expression = expressions_.tuple({});
      return;
    }
    result.kind = What::kSetBlock;
    result.expression = expressions_.filters(nullptr, false);
    result.body = body_until("endset");
  }

  void macro_tag(Statement& result) {
    result.kind = What::kMacro;
    result.macro = std::make_unique<Macro>();
    result.macro->name = tokens_.expect_name().text;
    result.target.name = tokens_.number_of(result.macro->name);
    signature(*result.macro);
    macro_body(*result.macro, "endmacro");
  }

  void call_tag(Statement& result) {
    auto caller = std::make_unique<Macro>();
    if (tokens_.is("(")) signature(*caller);
    result.kind = What::kOutput;
    result.expression = expressions_.expression();
    if (result.expression->kind != Expression::Kind::kCall) {
      tokens_.fail(result.place, invalid_data("a call block without a call"));
    }
    macro_body(*caller, "endcall");
    result.expression->caller = std::move(caller);
  }

  void filter_tag(Statement& result) {
    result.kind = What::kFilter;
    result.expression = expressions_.filters(nullptr, true);
    result.body = body_until("endfilter");
  }

  // `with a = x, b = y` is a scope that begins with `set (a, b) = (x, y)`.
  void with_tag(Statement& result) {
    Statement set;
    set.kind = What::kSet;
    set.place = result.place;
    set.target.is_tuple = true;
    set.expression = expressions_.empty_tuple();
    while (!tokens_.is("%}") && !tokens_.is(":") && !tokens_.failed()) {
      if (!set.target.parts.empty()) tokens_.expect(",");
      set.target.parts.push_back(expressions_.target(false));
      tokens_.expect("=");
      set.expression->operands.push_back(expressions_.expression());
    }
    result.kind = What::kScope;
    result.body = body_until("endwith");
    result.body.insert(result.body.begin(), std::move(set));
  }

  void generation_tag(Statement& result) {
    result.kind = What::kScope;
    result.body = closed_body("endgeneration");
  }

  void print_tag(Statement& result) {
    result.kind = What::kOutput;
    result.expression = expressions_.expression();
  }

  void break_tag(Statement& result) { loop_control(result, What::kBreak); }
  void continue_tag(Statement& result) { loop_control(result, What::kContinue); }

  void loop_control(Statement& result, What kind) {
    result.kind = kind;
    if (loops_ > 0) return;
    tokens_.fail(result.place, invalid_data("break or continue outside of a loop"));
  }

  void signature(Macro& macro) {
    tokens_.expect("(");
    expressions_.list_until(")", [&] {
      const bool has_default = !macro.parameters.empty() && macro.parameters.back().otherwise;
      Parameter parameter;
      parameter.spelled = tokens_.expect_name().text;
      parameter.name = tokens_.number_of(parameter.spelled);
      if (tokens_.skip("=")) {
        parameter.otherwise = expressions_.expression();
      } else if (has_default) {
        tokens_.fail(tokens_.place(),
                     invalid_data("a parameter without a default after one with a default"));
      }
      macro.parameters.push_back(std::move(parameter));
    });
  }

  // The rest of the opening tag, the block and the "{%" of the tag that ends it.
  Block body(std::initializer_list<std::string_view> ends) {
    tokens_.skip(":");
    tokens_.expect("%}");
    return block(ends);
  }

  // And the name of that tag.
  Block body_until(std::string_view end) {
    Block result = body({end});
    tokens_.take();
    return result;
  }

  // Break and continue do not reach out of it.
  Block closed_body(std::string_view end) {
    const int outer_loops = std::exchange(loops_, 0);
    Block result = body_until(end);
    loops_ = outer_loops;
    return result;
  }

  void macro_body(Macro& macro, std::string_view end) {
    tokens_.macros().push_back(&macro);
    macro.body = closed_body(end);
    tokens_.macros().pop_back();
    const auto is_caller = [](const Parameter& it) { return it.name == kCallerName; };
    if (std::ranges::any_of(macro.parameters, is_caller)) macro.takes_caller = false;
  }

  TokenStream& tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

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
  program->body = Parser(stream).block({});
  if (stream.failed()) return stream.status();
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace aerie::jinja
