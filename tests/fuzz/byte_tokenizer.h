// The least that a grammar needs of a tokenizer: a token for each byte, and an end.
#pragma once

#include <array>

#include "tokenizer/tokenizer.h"

namespace aerie::test {

class ByteTokenizer : public Tokenizer {
 public:
  static constexpr int kVocab = 257;

  ByteTokenizer() {
    for (int byte = 0; byte < 256; ++byte) bytes_[byte] = static_cast<char>(byte);
  }

  int vocab_size() const override { return kVocab; }
  Status encode(std::string_view text, const EncodeOptions&,
                std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return Status();
  }
  std::string_view piece(int32_t id) const override {
    return id < 256 ? std::string_view(&bytes_[id], 1) : std::string_view("<end>");
  }
  std::string_view missing_bytes() const override { return {}; }
  bool strips_leading_space() const override { return false; }
  bool is_control(int32_t id) const override { return id == 256; }
  bool is_end(int32_t id) const override { return id == 256; }
  int32_t bos() const override { return -1; }
  int32_t eos() const override { return 256; }
  int32_t unk() const override { return -1; }
  int32_t pad() const override { return -1; }
  int32_t find(std::string_view) const override { return -1; }
  Expected<GgufTokenizerMetadata> gguf_metadata() const override {
    return Status(StatusCode::kUnsupported, "a tokenizer of tests");
  }

 private:
  std::array<char, 256> bytes_{};
};

}  // namespace aerie::test
