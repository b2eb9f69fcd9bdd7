#include "grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "grammar/budget.h"
#include "grammar/builtin_rules.h"
#include "grammar/compiled_grammar.h"
#include "grammar/free_text.h"
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

constexpr int kMaxParts = 20'000;
constexpr int kMaxPartLevels = 16;

// Adds the rules of a specification and of what it is made of.
class SpecRules {
 public:
  SpecRules(const TokenTrie& trie, RuleSet& rules) : trie_(trie), rules_(rules) {}

  Expected<RuleId> add(const GrammarSpec& spec, bool strict, int level = 0);

 private:
  Expected<RuleId> add_parts(const GrammarSpec& spec, bool strict, int level);

  const TokenTrie& trie_;
  RuleSet& rules_;
  int count_ = 0;
};

Expected<RuleId> SpecRules::add_parts(const GrammarSpec& spec, bool strict, int level) {
  if (level >= kMaxPartLevels) {
    return resource_exhausted("parts of a constraint lie in one another at more than {} levels",
                              kMaxPartLevels);
  }
  std::vector<ExprId> parts;
  for (const GrammarSpec& part : spec.parts) {
    if (++count_ > kMaxParts) {
      return resource_exhausted("a constraint has more than {} parts", kMaxParts);
    }
    AERIE_ASSIGN_OR_RETURN(const RuleId rule, add(part, strict, level + 1));
    parts.push_back(rules_.rule(rule));
  }
  if (spec.kind == GrammarKind::kAlternatives) {
    return rules_.define("one of", rules_.alternatives(std::move(parts)));
  }
  ExprId body = parts.empty() ? rules_.bytes("") : rules_.sequence(std::move(parts));
  if (spec.kind == GrammarKind::kRepeat) body = rules_.repeat(body, 0, grammar::kUnbounded);
  return rules_.define("parts", body);
}

Expected<RuleId> SpecRules::add(const GrammarSpec& spec, bool strict, int level) {
  strict = strict || spec.strict;
  RuleSet& rules = rules_;
  switch (spec.kind) {
    case GrammarKind::kText:
      return rules.define("text", rules.bytes(spec.text));
    case GrammarKind::kMarker:
      return rules.define("marker", rules.bytes(trie_.marker_bytes(spec.text)));
    case GrammarKind::kFreeText:
      return grammar::add_free_text(spec.choices, rules);
    case GrammarKind::kSequence:
    case GrammarKind::kAlternatives:
    case GrammarKind::kRepeat:
      return add_parts(spec, strict, level);
    case GrammarKind::kJsonObject:
      return rules.define("root", grammar::JsonRules(rules).object());
    case GrammarKind::kJsonSchema:
      return grammar::parse_schema(spec.text, strict, rules);
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
  AERIE_ASSIGN_OR_RETURN(const RuleId root, SpecRules(trie, rules).add(spec, spec.strict));
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
