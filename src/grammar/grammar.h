// Constraints on the form of an output: JSON schema, GBNF, regular expression, choice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/constraint.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

enum class GrammarKind : uint8_t {
  kJsonObject,  // any JSON object
  kJsonSchema,  // `text`: a schema of draft 2020-12 or 7
  kGbnf,        // `text`: llama.cpp's notation, with a rule "root"
  kRegex,       // `text`: an expression that the whole output matches
  kChoice,      // the output is one of `choices`
};

struct GrammarSpec {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;
  std::vector<std::string> choices;
};

// The tokens of a vocabulary by their bytes: what masks are computed from. Immutable, shared by all
// grammars of a model. Control tokens are not in it; end tokens are allowed where a grammar is
// complete.
class TokenTrie;
std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer);

// A compiled grammar. Safe to share between threads; masks that were computed once are kept with
// it.
class Grammar;

// kInvalidArgument with what is wrong and where (rule, line, JSON pointer); kUnsupported naming the
// keyword or construct that cannot be enforced; kResourceExhausted for what is too large. Nothing
// that is accepted is enforced in part.
Expected<std::shared_ptr<const Grammar>> compile_grammar(const GrammarSpec& spec,
                                                         std::shared_ptr<const TokenTrie> trie);

// At the grammar's start. Its mask() allows a token if its bytes can be followed by something that
// completes the output, an end token if the output is complete.
std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar> grammar);

}  // namespace aerie
