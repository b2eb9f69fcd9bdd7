// Whatever the bytes are, they are a grammar whose walks end or they are refused.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "grammar/grammar.h"
#include "tests/fuzz/byte_tokenizer.h"

namespace aerie {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Goes on by what `text` chooses among what is allowed.
void walk(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  constexpr size_t kVocab = test::ByteTokenizer::kVocab;
  const auto constraint = make_constraint(grammar);
  for (size_t i = 0; i < text.size() && i < 64; ++i) {
    std::array<bool, kVocab + 3> mask{};
    constraint->mask(mask);
    std::array<int32_t, kVocab> allowed{};
    size_t count = 0;
    for (int32_t id = 0; id < static_cast<int32_t>(mask.size()); ++id) {
      require(mask[id] == constraint->allows(id));
      if (mask[id]) allowed[count++] = id;
    }
    require(count > 0);
    const std::string forced = constraint->forced();
    require(forced.empty() || (count == 1 && allowed[0] == static_cast<uint8_t>(forced[0])));
    constraint->advance(allowed[static_cast<uint8_t>(text[i]) % count]);
  }
}

}  // namespace
}  // namespace aerie

// The first byte says which kind of grammar the rest is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace aerie;
  static const auto trie = make_token_trie(test::ByteTokenizer());
  if (size == 0 || size > 4096) return 0;
  GrammarSpec spec;
  constexpr std::array kinds = {GrammarKind::kJsonSchema, GrammarKind::kGbnf, GrammarKind::kRegex,
                                GrammarKind::kChoice};
  spec.kind = kinds[data[0] % kinds.size()];
  spec.text.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  spec.choices = {spec.text};
  const auto grammar = compile_grammar(spec, trie);
  if (grammar.ok()) {
    walk(*grammar, spec.text);
  } else {
    require(!grammar.status().message().empty());
  }
  return 0;
}
