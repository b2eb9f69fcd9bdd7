#include "grammar/grammar.h"

#include <fmt/format.h>

#include "grammar/automaton/grammar_program.h"
#include "grammar/builtin_rules.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_constraint.h"
#include "grammar/grammar_rules.h"
#include "grammar/regex_rules.h"
#include "grammar/schema/schema.h"

namespace aerie {
namespace {

using grammar::ExprId;
using grammar::RuleId;
using grammar::RuleSet;

Expected<RuleId> add_choice(const std::vector<std::string>& choices, RuleSet& rules) {
  constexpr size_t kMaxChoices = 10000;
  if (choices.empty()) {
    return Status(StatusCode::kInvalidArgument, "choice: there is nothing to choose from");
  }
  if (choices.size() > kMaxChoices) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("choice: {} choices; at most {} are taken", choices.size(), kMaxChoices));
  }
  std::vector<ExprId> ways;
  ways.reserve(choices.size());
  for (const std::string& choice : choices) ways.push_back(rules.bytes(choice));
  return rules.define("root", rules.alternatives(std::move(ways)));
}

Expected<RuleId> add_rules(const GrammarSpec& spec, RuleSet& rules) {
  switch (spec.kind) {
    case GrammarKind::kJsonObject:
      return rules.define("root", grammar::JsonRules(rules).object());
    case GrammarKind::kJsonSchema:
      return grammar::parse_schema(spec.text, rules);
    case GrammarKind::kGbnf:
      return grammar::parse_gbnf(spec.text, rules);
    case GrammarKind::kRegex: {
      AERIE_ASSIGN_OR_RETURN(const ExprId body,
                             grammar::parse_regex(spec.text, grammar::RegexMatch::kWhole, rules));
      return rules.define("root", body);
    }
    case GrammarKind::kChoice:
      return add_choice(spec.choices, rules);
  }
  return Status(StatusCode::kInvalidArgument, "the kind of grammar is not known");
}

}  // namespace

Expected<std::shared_ptr<const Grammar>> compile_grammar(const GrammarSpec& spec,
                                                         std::shared_ptr<const TokenTrie> trie) {
  if (trie->end_tokens().empty()) {
    return Status(StatusCode::kUnsupported,
                  "the model's vocabulary names no end token: a constrained output could not end");
  }
  RuleSet rules;
  AERIE_ASSIGN_OR_RETURN(const RuleId root, add_rules(spec, rules));
  grammar::ProgramOptions options;
  options.root = root;
  options.every_rule_matches = spec.kind == GrammarKind::kGbnf;
  options.spellable = trie->spellable();
  AERIE_ASSIGN_OR_RETURN(grammar::Program program, grammar::build_program(rules, options));
  return std::shared_ptr<const Grammar>(
      std::make_shared<const Grammar>(std::move(program), std::move(trie)));
}

}  // namespace aerie
