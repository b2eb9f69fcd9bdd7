#include "draft/lookup/corpus_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "draft/lookup/corpus_index.h"
#include "format/input_file.h"
#include "format/json.h"
#include "format/text.h"

namespace aerie {
namespace {

// Tokenizers take a text as a whole; lines are hardly ever one token.
constexpr size_t kPiece = size_t{64} << 10, kLongestPiece = size_t{1} << 20;

Expected<std::string> read_all(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const InputFile file, InputFile::open(path));
  if (file.size() > kMaxCorpusBytes) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{}: the corpus has {} bytes; at most {} are read", path, file.size(),
                              kMaxCorpusBytes));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  AERIE_RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

class CorpusReader {
 public:
  CorpusReader(const Tokenizer& tokenizer, int vocab) : tokenizer_(tokenizer), vocab_(vocab) {}

  // `name` is for messages.
  Status add(std::string_view text, const std::string& name) {
    if (text.find('\0') != std::string_view::npos || !is_valid_utf8(text)) {
      return {StatusCode::kInvalidData, name + ": the corpus is not text in UTF-8"};
    }
    while (!text.empty()) {
      const size_t size = piece(text);
      AERIE_RETURN_IF_ERROR(
          tokenizer_.encode(text.substr(0, size), {.add_special = false}, tokens_));
      text.remove_prefix(size);
    }
    tokens_.push_back(CorpusIndex::kEnd);
    return {};
  }

  Status add_lines(std::string_view lines, const std::string& path) {
    for (int number = 1; !lines.empty(); ++number) {
      const size_t size = std::min(lines.find('\n'), lines.size());
      const std::string_view line = lines.substr(0, size);
      lines.remove_prefix(std::min(size + 1, lines.size()));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string name = fmt::format("{}: line {}", path, number);
      AERIE_ASSIGN_OR_RETURN(const Json json, parse_json(line, name));
      AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(json, name));
      AERIE_ASSIGN_OR_RETURN(const std::string_view text, object.string("text"));
      AERIE_RETURN_IF_ERROR(add(text, name));
    }
    return {};
  }

  std::vector<int32_t> take() {
    for (int32_t& token : tokens_) {
      if (token >= vocab_) token = CorpusIndex::kEnd;
    }
    return std::move(tokens_);
  }

 private:
  // Bytes of the next piece: whole lines if these are not too long.
  static size_t piece(std::string_view text) {
    if (text.size() <= kPiece) return text.size();
    size_t end = std::min(text.find('\n', kPiece), text.size());
    if (end < text.size()) ++end;
    if (end <= kLongestPiece) return end;
    end = kLongestPiece;
    while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return end;
  }

  const Tokenizer& tokenizer_;
  int vocab_;
  std::vector<int32_t> tokens_;
};

}  // namespace

Expected<std::vector<int32_t>> read_corpus(const std::string& path, const Tokenizer& tokenizer,
                                           int vocab) {
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_all(path));
  CorpusReader reader(tokenizer, vocab);
  AERIE_RETURN_IF_ERROR(path.ends_with(".jsonl") ? reader.add_lines(text, path)
                                                 : reader.add(text, path));
  std::vector<int32_t> tokens = reader.take();
  if (std::ranges::all_of(tokens, [](int32_t t) { return t == CorpusIndex::kEnd; })) {
    return Status(StatusCode::kInvalidData, path + ": the corpus is empty");
  }
  return tokens;
}

}  // namespace aerie
