#include "grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "grammar/budget.h"
#include "grammar/builtin_rules.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar_rules.h"
#include "grammar/notation.h"
#include "grammar/regex_rules.h"
#include "grammar/schema/schema.h"

namespace aerie {

using grammar::ExprId;
using grammar::RuleId;
using grammar::RuleSet;

namespace {

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
  return rules.define("root", rules.one_of(choices));
}

Expected<RuleId> add_rules(const GrammarSpec& spec, RuleSet& rules) {
  switch (spec.kind) {
    case GrammarKind::kJsonObject:
      return rules.define("root", grammar::JsonRules(rules).object());
    case GrammarKind::kJsonSchema:
      return grammar::parse_schema(spec.text, spec.strict, rules);
    case GrammarKind::kGrammar:
      return grammar::parse_grammar(spec.text, rules);
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

// What stands between the text and the program is gone when this returns.
Expected<grammar::Program> build(const GrammarSpec& spec, const TokenTrie& trie,
                                 grammar::Budget& budget) {
  RuleSet rules(budget);
  AERIE_ASSIGN_OR_RETURN(const RuleId root, add_rules(spec, rules));
  AERIE_RETURN_IF_ERROR(budget.status());
  grammar::ProgramOptions program_options;
  program_options.root = root;
  program_options.every_rule_matches = spec.kind == GrammarKind::kGrammar;
  program_options.spellable = trie.spellable();
  return grammar::build_program(rules, program_options);
}

}  // namespace

std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer) {
  return std::make_shared<const TokenTrie>(tokenizer);
}

Expected<std::shared_ptr<const Grammar>> compile_grammar(const GrammarSpec& spec,
                                                         std::shared_ptr<const TokenTrie> trie,
                                                         const CompileOptions& options) {
  if (trie->end_tokens().empty()) {
    return Status(StatusCode::kUnsupported,
                  "the model's vocabulary names no end token: a constrained output could not end");
  }
  grammar::Budget budget(grammar::Budget::kMaxBytes,
                         std::min(options.max_steps, grammar::Budget::kMaxSteps),
                         options.is_stopped);
  auto built = build(spec, *trie, budget);
  if (options.pool != nullptr) options.pool->note_freed(budget.bytes());
  AERIE_ASSIGN_OR_RETURN(grammar::Program program, std::move(built));
  const auto compiled =
      std::make_shared<Grammar>(spec, std::move(program), std::move(trie), options.pool);
  grammar::Effort effort(std::min(options.max_steps, Grammar::kMaxSteps), true, options.is_stopped);
  AERIE_RETURN_IF_ERROR(compiled->open(effort));
  return std::shared_ptr<const Grammar>(compiled);
}

const GrammarSpec& grammar_spec(const Grammar& grammar) {
  return grammar.spec();
}

size_t grammar_bytes(const Grammar& grammar) {
  return grammar.bytes();
}

}  // namespace aerie
