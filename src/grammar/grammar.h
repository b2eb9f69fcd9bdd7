// Constraints on the form of an output: JSON schema, grammar, regular expression, choice.
#pragma once

#include <memory>

#include "aerie/grammar.h"
#include "base/status.h"
#include "core/constraint.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// The tokens of a vocabulary by their bytes: what masks are computed from. Immutable, shared by all
// grammars of a model. Control tokens are not in it; end tokens are allowed where a grammar is
// complete.
class TokenTrie;
std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer);

// kInvalidArgument with what is wrong and where (rule, line, JSON pointer); kUnsupported naming the
// keyword or construct that cannot be enforced; kResourceExhausted for what is too large. Nothing
// that is accepted is enforced in part.
Expected<std::shared_ptr<const Grammar>> compile_grammar(const GrammarSpec& spec,
                                                         std::shared_ptr<const TokenTrie> trie);

// At the grammar's start. Its mask() allows a token if its bytes can be followed by something that
// completes the output, an end token if the output is complete.
std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar> grammar);

}  // namespace aerie
