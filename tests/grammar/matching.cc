#include "tests/grammar/matching.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "tests/testing/tiny_model.h"

namespace aerie::test {

const Tokenizer& byte_tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = kByteVocab;
    static const TinyFile file(spec);
    auto made = Tokenizer::from_gguf(file.gguf());
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }();
  return *tokenizer;
}

std::shared_ptr<const TokenTrie> byte_trie() {
  static const std::shared_ptr<const TokenTrie> trie = make_token_trie(byte_tokenizer());
  return trie;
}

Expected<std::shared_ptr<const Grammar>> compile(GrammarKind kind, const std::string& text) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = text;
  return compile_grammar(spec, byte_trie());
}

std::shared_ptr<const Grammar> must_compile(GrammarKind kind, const std::string& text) {
  const auto grammar = compile(kind, text);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return grammar.ok() ? *grammar : nullptr;
}

namespace {

// The token of each byte.
const std::vector<int32_t>& byte_tokens() {
  static const std::vector<int32_t> tokens = [] {
    std::vector<int32_t> made(256, -1);
    const Tokenizer& tokenizer = byte_tokenizer();
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const std::string_view piece = tokenizer.piece(id);
      if (tokenizer.is_control(id) || piece.size() != 1) continue;
      made[static_cast<uint8_t>(piece[0])] = id;
    }
    return made;
  }();
  return tokens;
}

std::vector<uint8_t> allowed_bytes(const TokenConstraint& constraint) {
  const int vocab = byte_tokenizer().vocab_size();
  const auto mask = std::make_unique<bool[]>(vocab);
  constraint.mask({mask.get(), static_cast<size_t>(vocab)});
  std::vector<uint8_t> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    if (mask[byte_tokens()[byte]]) bytes.push_back(static_cast<uint8_t>(byte));
  }
  return bytes;
}

// The shortest way to the end, or what was found of `limit` states.
std::string shortest_end(const TokenConstraint& from, size_t limit) {
  std::deque<std::pair<std::unique_ptr<TokenConstraint>, std::string>> todo;
  todo.emplace_back(from.fork(), "");
  for (size_t seen = 0; seen < limit && !todo.empty(); ++seen) {
    auto [state, text] = std::move(todo.front());
    todo.pop_front();
    if (state->allows(kTurnEnd)) return text;
    for (const uint8_t byte : allowed_bytes(*state)) {
      // What stands for many others.
      if (byte != 'a' && byte != '1' && std::isalnum(byte) && state->allows('a') &&
          state->allows('1')) {
        continue;
      }
      auto next = state->fork();
      next->advance(byte_tokens()[byte]);
      todo.emplace_back(std::move(next), text + static_cast<char>(byte));
    }
  }
  return "\xFF";
}

}  // namespace

bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  const auto constraint = make_constraint(grammar);
  for (const char c : text) {
    const int32_t token = byte_tokens()[static_cast<uint8_t>(c)];
    if (!constraint->allows(token)) return false;
    constraint->advance(token);
  }
  return constraint->allows(kTurnEnd);
}

std::string random_text(const std::shared_ptr<const Grammar>& grammar, uint64_t seed, int length) {
  std::mt19937_64 random(seed);
  const auto constraint = make_constraint(grammar);
  std::string text;
  while (static_cast<int>(text.size()) < length) {
    if (constraint->allows(kTurnEnd) && random() % 4 == 0) return text;
    std::vector<uint8_t> bytes = allowed_bytes(*constraint);
    if (bytes.empty()) return text;
    // What ends things, else texts are one long string.
    std::vector<uint8_t> closing;
    for (const uint8_t byte : bytes) {
      if (byte == '"' || byte == ']' || byte == '}' || byte == ',') closing.push_back(byte);
    }
    if (!closing.empty() && random() % 5 == 0) bytes = closing;
    const uint8_t byte = bytes[random() % bytes.size()];
    constraint->advance(byte_tokens()[byte]);
    text += static_cast<char>(byte);
  }
  // Greedy: a byte that ends something, else the first that leads anywhere.
  for (int steps = 0; steps < 2000; ++steps) {
    if (constraint->allows(kTurnEnd)) return text;
    const std::vector<uint8_t> bytes = allowed_bytes(*constraint);
    uint8_t byte = bytes[random() % bytes.size()];
    for (const char closing : std::string_view("\"}]")) {
      if (constraint->allows(byte_tokens()[static_cast<uint8_t>(closing)])) {
        byte = static_cast<uint8_t>(closing);
        break;
      }
    }
    constraint->advance(byte_tokens()[byte]);
    text += static_cast<char>(byte);
  }
  const std::string rest = shortest_end(*constraint, 3000);
  return rest == "\xFF" ? "" : text + rest;
}

}  // namespace aerie::test
