// A vocabulary for tests of chats: every byte, tags as tokens of text, names of control tokens.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "tokenizer/tokenizer.h"

namespace aerie::test {

class MarkedTokenizer final : public Tokenizer {
 public:
  MarkedTokenizer(const std::vector<std::string>& tags, const std::vector<std::string>& controls) {
    for (int byte = 0; byte < 256; ++byte) pieces_.emplace_back(1, static_cast<char>(byte));
    pieces_.insert(pieces_.end(), tags.begin(), tags.end());
    first_control_ = static_cast<int32_t>(pieces_.size());
    pieces_.insert(pieces_.end(), controls.begin(), controls.end());
    end_ = static_cast<int32_t>(pieces_.size());
    pieces_.emplace_back("<end>");
  }

  int vocab_size() const override { return static_cast<int>(pieces_.size()); }
  // Names of tags and control tokens are those tokens.
  Status encode(std::string_view text, const EncodeOptions&,
                std::vector<int32_t>& ids) const override {
    while (!text.empty()) {
      int32_t id = static_cast<uint8_t>(text.front());
      for (size_t i = 256; i < pieces_.size(); ++i) {
        if (text.starts_with(pieces_[i])) id = static_cast<int32_t>(i);
      }
      ids.push_back(id);
      text.remove_prefix(piece(id).size());
    }
    return {};
  }
  std::string_view piece(int32_t id) const override { return pieces_[static_cast<size_t>(id)]; }
  std::string_view missing_bytes() const override { return {}; }
  bool strips_leading_space() const override { return false; }
  bool is_control(int32_t id) const override { return id >= first_control_; }
  bool is_end(int32_t id) const override { return id == end_; }
  int32_t bos() const override { return -1; }
  int32_t eos() const override { return end_; }
  int32_t unk() const override { return -1; }
  int32_t pad() const override { return -1; }
  int32_t find(std::string_view name) const override {
    for (size_t i = 256; i < pieces_.size(); ++i) {
      if (pieces_[i] == name) return static_cast<int32_t>(i);
    }
    return -1;
  }
  Expected<GgufTokenizerMetadata> gguf_metadata() const override {
    return not_supported("no metadata");
  }

 private:
  std::vector<std::string> pieces_;
  int32_t first_control_ = 0;
  int32_t end_ = 0;
};

}  // namespace aerie::test
