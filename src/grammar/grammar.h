// Constraints on the form of an output: JSON schema, grammar, regular expression, choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "aerie/grammar.h"
#include "base/status.h"
#include "core/constraint.h"
#include "grammar/grammar_pool.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// The tokens of a vocabulary by their bytes: what masks are computed from. Immutable, shared by all
// grammars of a model. Control tokens are not in it; end tokens are allowed where a grammar is
// complete.
class TokenTrie;
std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer);

struct CompileOptions {
  // Where it has its memory from; null: as much as one grammar may have.
  std::shared_ptr<GrammarPool> pool = {};
  // Of compiling, and again of what may come first; never more than one grammar may take.
  uint64_t max_steps = std::numeric_limits<uint64_t>::max();
  // Asked now and then whether nobody wants it any more. May be null.
  std::function<bool()> is_stopped = {};
};

// kInvalidArgument with what is wrong and where (rule, line, JSON pointer); kUnsupported naming the
// keyword or construct that cannot be enforced; kResourceExhausted for what is too large, or takes
// too much before its first token; kCancelled once it is stopped. Nothing that is accepted is
// enforced in part.
Expected<std::shared_ptr<const Grammar>> compile_grammar(const GrammarSpec& spec,
                                                         std::shared_ptr<const TokenTrie> trie,
                                                         const CompileOptions& options = {});

// What it was compiled from; lives as long as it.
const GrammarSpec& grammar_spec(const Grammar& grammar);

// What it holds now: states and masks come as they are needed.
size_t grammar_bytes(const Grammar& grammar);

// At the grammar's start. Its mask() allows a token if its bytes can be followed by something that
// completes the output, an end token if the output is complete. With a pool, whose credit it uses,
// it leaves longer work to its threads; else it does all itself, and is ready or has failed.
std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar> grammar,
                                                 std::shared_ptr<GrammarPool> pool = nullptr);

}  // namespace aerie
