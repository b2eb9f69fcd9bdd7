#include "tests/tokenizer/vocabularies.h"

#include <gtest/gtest.h>

#include <sstream>

#include "format/gguf/gguf.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/pieces/byte_alphabet.h"

namespace aerie::test {

std::string spelled(std::string_view bytes) {
  std::string name;
  for (const char c : bytes) append_byte_name(static_cast<uint8_t>(c), name);
  return name;
}

int32_t add_token(BpeData& data, std::string_view name, TokenType type) {
  data.tokens.emplace_back(name);
  data.types.push_back(static_cast<int64_t>(type));
  return static_cast<int32_t>(data.tokens.size()) - 1;
}

BpeData byte_vocabulary() {
  BpeData data;
  for (int byte = 0; byte < 256; ++byte) {
    add_token(data, spelled(std::string(1, static_cast<char>(byte))), TokenType::kNormal);
  }
  return data;
}

int32_t add_merge(BpeData& data, std::string_view left, std::string_view right) {
  data.merges.push_back(spelled(left) + " " + spelled(right));
  return add_token(data, spelled(left) + spelled(right), TokenType::kNormal);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<nlohmann::json> read_rows(const std::filesystem::path& path) {
  std::vector<nlohmann::json> rows;
  std::istringstream file(read_file(path));
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  EXPECT_FALSE(rows.empty()) << path;
  return rows;
}

BpeData gpt2_data() {
  BpeData data;
  const auto vocab = nlohmann::json::parse(read_file(kShared / "tokenizers/gpt2/vocab.json"));
  data.tokens.resize(vocab.size());
  data.types.assign(vocab.size(), static_cast<int64_t>(TokenType::kNormal));
  for (const auto& [name, id] : vocab.items()) data.tokens.at(id.get<size_t>()) = name;
  data.bos = data.eos = vocab.at("<|endoftext|>").get<int64_t>();
  data.types.at(static_cast<size_t>(*data.bos)) = static_cast<int64_t>(TokenType::kControl);
  std::istringstream merges(read_file(kShared / "tokenizers/gpt2/merges.txt"));
  for (std::string line; std::getline(merges, line);) {
    if (!line.empty() && !line.starts_with("#version")) data.merges.push_back(line);
  }
  return data;
}

std::unique_ptr<Tokenizer> create(const BpeData& data) {
  auto tokenizer = tokenizer_of(data);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::unique_ptr<Tokenizer> load_gguf(const std::filesystem::path& path) {
  auto file = GgufFile::open(path.string());
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return nullptr;
  auto tokenizer = Tokenizer::from_gguf(**file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::string english() {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(kShared / "gutenberg")) {
    if (entry.path().extension() == ".txt") text += read_file(entry.path());
  }
  EXPECT_GT(text.size(), 1'000'000u);
  return text;
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text,
                            EncodeOptions options) {
  std::vector<int32_t> ids;
  const Status status = tokenizer.encode(text, options, ids);
  EXPECT_TRUE(status.ok()) << status.message();
  return ids;
}

std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += tokenizer.piece(id);
  return text;
}

std::string decode_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(tokenizer, true, DetokenizeFrom::kBeginning);
  std::string text;
  for (const int32_t id : ids) detokenizer.push(id, text);
  detokenizer.finish(text);
  return text;
}

std::string without_missing(const Tokenizer& tokenizer, std::string_view text) {
  std::string left;
  for (const char c : text) {
    if (tokenizer.missing_bytes().find(c) == std::string_view::npos) left += c;
  }
  return left;
}

std::string random_bytes(std::mt19937& random, size_t length) {
  static constexpr std::string_view kCharacters[] = {
      "a", "Q",  "7",    " ",      "  ", "\n",     "'s",     "'",   ".",   "é",         "ß",
      "Ж", "中", "🦙", "\u0301", "½",  "\u00a0", "\u2003", "the", " of", "<|im_end|>"};
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::string bytes;
  while (bytes.size() < length) {
    const size_t run = 1 + below(12);
    const size_t mood = below(4);
    const char same = static_cast<char>(below(256));
    for (size_t i = 0; i < run; ++i) {
      if (mood == 0) bytes += static_cast<char>(below(256));
      if (mood == 1) bytes += static_cast<char>(below(128));
      if (mood == 2) bytes += kCharacters[below(std::size(kCharacters))];
      if (mood == 3) bytes += same;
    }
  }
  return bytes;
}

}  // namespace aerie::test
