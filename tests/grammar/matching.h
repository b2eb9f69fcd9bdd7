// Grammars under test: texts fed to them byte by byte, and texts that they make at random.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "grammar/grammar.h"

namespace aerie::test {

// Of a tokenizer with a token for each byte, and no other tokens of text (tiny_model.h).
const Tokenizer& byte_tokenizer();
std::shared_ptr<const TokenTrie> byte_trie();

Expected<std::shared_ptr<const Grammar>> compile(GrammarKind kind, const std::string& text);
// Fails the test if it does not compile.
std::shared_ptr<const Grammar> must_compile(GrammarKind kind, const std::string& text);

// Whether the grammar allows the whole text and an end behind it.
bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text);

// A text of at most about `length` bytes that the grammar allows token by token: at random up to
// there, then by whatever leads to the end soonest. Empty if no end was found.
std::string random_text(const std::shared_ptr<const Grammar>& grammar, uint64_t seed, int length);

}  // namespace aerie::test
