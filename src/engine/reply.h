// A reply while it arrives: tokens to text, the end of it, and what may be shown already.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/constraint.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_strings.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// Watches the tokens of one sequence for end tokens and stop strings. Text that may still become a
// stop string is held back.
class Reply final : public StopCondition {
 public:
  // `stop_tokens` must outlive it.
  Reply(const Tokenizer& tokenizer, const std::vector<std::string>& stops, bool ignore_eos,
        std::span<const int32_t> stop_tokens = {});

  bool stops_after(int32_t token) override;

  // All text so far that is final. Only grows.
  const std::string& text() const { return text_; }
  // No more tokens come: what was held back becomes final, unless a stop string ended the reply.
  void finish();

 private:
  const Tokenizer& tokenizer_;
  Detokenizer detokenizer_;
  StopStrings stop_strings_;
  bool ignore_eos_;
  std::span<const int32_t> stop_tokens_;
  bool stopped_ = false;
  std::string piece_;  // scratch
  std::string text_;
};

}  // namespace aerie
