// Whatever the text is, it is a grammar of which every state goes on and whose masks agree with
// what is said of single tokens, or it is refused. The first byte says which notation it is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"
#include "tests/grammar/grammars.h"

namespace aerie {
namespace {

// One of the allowed tokens at each step, which the text itself chooses.
void walk(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  const test::ToyTokenizer& tokenizer = test::toy();
  auto constraint = make_constraint(grammar);
  for (size_t step = 0; step < 40; ++step) {
    const auto ids = test::allowed(*constraint, tokenizer.vocab_size());
    require(!ids.empty());
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      require(constraint->allows(id) == std::binary_search(ids.begin(), ids.end(), id));
    }
    const std::string forced = constraint->forced();
    auto ahead = constraint->fork();
    for (const char byte : forced) {
      require(ahead->allows(static_cast<uint8_t>(byte)));
      ahead->advance(static_cast<uint8_t>(byte));
    }
    const size_t choice = static_cast<uint8_t>(text[step % text.size()]) + step;
    constraint->advance(ids[choice % ids.size()]);
  }
}

}  // namespace
}  // namespace aerie

AERIE_FUZZ_TARGET(grammar) {
  using namespace aerie;
  constexpr size_t kLongest = 4096;
  if (size < 2 || size > kLongest) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  GrammarSpec spec;
  switch (text[0]) {
    case 'g':
      spec.kind = GrammarKind::kGrammar;
      break;
    case 'r':
      spec.kind = GrammarKind::kRegex;
      break;
    default:
      spec.kind = GrammarKind::kJsonSchema;
  }
  spec.text = text.substr(1);
  const auto grammar = compile_grammar(spec, test::toy_trie());
  if (grammar.ok()) {
    walk(*grammar, text);
  } else {
    require(grammar.status().code() != StatusCode::kInternal);
    require(!grammar.status().message().empty());
  }
  return 0;
}
