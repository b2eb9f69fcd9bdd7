#include "tests/grammar/grammars.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace aerie::test {

ToyTokenizer::ToyTokenizer(std::string_view without) : missing_(without) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string piece(1, static_cast<char>(byte));
    pieces_.push_back(without.find(piece) == std::string_view::npos ? piece : std::string());
  }
  for (const char* piece :
       {"aa",   "ab",    "abc",      "b\"",      "{\"",    "\":", "\": ", "\",", "\", \"", "}}",
        "]}",   "[[",    "tr",       "true",     "null",   "12",  "-1",   "0.",  "\n  ",   "  ",
        "name", "value", "\xC3\xA9", "\xE2\x82", "\xAC\"", "\\u", "\\\"", "e+",  "ab\xC3"}) {
    pieces_.emplace_back(piece);
  }
  pieces_.emplace_back("aa");  // twice
  pieces_.emplace_back("<control>");
  pieces_.emplace_back("<end>");
  pieces_.emplace_back("<end of turn>");
  end_ = static_cast<int32_t>(pieces_.size()) - 2;
  pieces_.emplace_back();
}

Status ToyTokenizer::encode(std::string_view, const EncodeOptions&, std::vector<int32_t>&) const {
  return {StatusCode::kUnsupported, "no encoding"};
}

bool ToyTokenizer::is_control(int32_t id) const {
  return id >= end_ - 1 && id <= end_ + 1;
}

Expected<GgufTokenizerMetadata> ToyTokenizer::gguf_metadata() const {
  return Status(StatusCode::kUnsupported, "no metadata");
}

const ToyTokenizer& toy() {
  static const ToyTokenizer tokenizer;
  return tokenizer;
}

std::shared_ptr<const TokenTrie> toy_trie() {
  static const std::shared_ptr<const TokenTrie> trie = make_token_trie(toy());
  return trie;
}

std::shared_ptr<const Grammar> compile(const GrammarSpec& spec,
                                       std::shared_ptr<const TokenTrie> trie) {
  auto grammar = compile_grammar(spec, std::move(trie));
  EXPECT_TRUE(grammar.ok()) << spec.text << "\n" << grammar.status().message();
  return grammar.ok() ? *grammar : nullptr;
}

std::shared_ptr<const Grammar> compile(GrammarKind kind, std::string_view text) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = text;
  return compile(spec, toy_trie());
}

Status refusal(GrammarKind kind, std::string_view text) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = text;
  const auto grammar = compile_grammar(spec, toy_trie());
  EXPECT_FALSE(grammar.ok()) << text;
  return grammar.status();
}

std::unique_ptr<TokenConstraint> after(const std::shared_ptr<const Grammar>& grammar,
                                       std::string_view text) {
  auto constraint = make_constraint(grammar);
  for (const char byte : text) {
    const int32_t token = static_cast<uint8_t>(byte);
    if (!constraint->allows(token)) return nullptr;
    constraint->advance(token);
  }
  return constraint;
}

bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  const auto constraint = after(grammar, text);
  return constraint != nullptr && constraint->allows(toy().eos());
}

std::vector<int32_t> allowed(const TokenConstraint& constraint, int vocab_size) {
  const auto flags = std::make_unique<bool[]>(static_cast<size_t>(vocab_size));
  constraint.mask({flags.get(), static_cast<size_t>(vocab_size)});
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (flags[static_cast<size_t>(id)]) ids.push_back(id);
  }
  return ids;
}

std::optional<std::string> try_random_output(const std::shared_ptr<const Grammar>& grammar,
                                             const Tokenizer& tokenizer, std::mt19937& random) {
  constexpr std::string_view kClosing = "\"}]01:,e";
  std::string text;
  auto constraint = make_constraint(grammar);
  for (int step = 0; step < 6000; ++step) {
    std::vector<int32_t> ids = allowed(*constraint, tokenizer.vocab_size());
    EXPECT_FALSE(ids.empty()) << text;
    if (ids.empty()) return std::nullopt;
    const auto end =
        std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer.is_end(id); });
    const int32_t end_token = end == ids.end() ? -1 : *end;
    const bool hurry = random() % 100 < static_cast<unsigned>(step);
    if (hurry && random() % 4 != 0) {
      std::vector<int32_t> closing;
      for (const int32_t id : ids) {
        const std::string_view piece = tokenizer.piece(id);
        const bool closes = piece.size() == 1 && kClosing.find(piece[0]) != std::string_view::npos;
        if (closes) closing.push_back(id);
      }
      if (!closing.empty()) ids = std::move(closing);
    }
    int32_t token = ids[random() % ids.size()];
    if (end_token >= 0 && (hurry || random() % 4 == 0)) token = end_token;
    EXPECT_TRUE(constraint->allows(token));
    constraint->advance(token);
    if (tokenizer.is_end(token)) return text;
    text += tokenizer.piece(token);
  }
  return std::nullopt;
}

std::string random_output(const std::shared_ptr<const Grammar>& grammar, const Tokenizer& tokenizer,
                          std::mt19937& random) {
  const std::optional<std::string> text = try_random_output(grammar, tokenizer, random);
  EXPECT_TRUE(text.has_value()) << "no end";
  return text.value_or("");
}

}  // namespace aerie::test
