// A reply while it arrives: tokens to text, the end of it, and what may be shown already.
#pragma once

#include <string>
#include <vector>

#include "aerie/request.h"
#include "core/constraint.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_strings.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// Watches the tokens of one sequence for end tokens and stop strings. Text that may still become a
// stop string is held back.
class Reply final : public StopCondition {
 public:
  Reply(const Tokenizer& tokenizer, const Request& request);

  bool stops_after(int32_t token) override;

  // All text so far that is final. Only grows.
  const std::string& text() const { return text_; }
  // The stop string that ended it; empty: none did.
  const std::string& stop_string() const { return stop_strings_.matched(); }
  // No more tokens come: what was held back becomes final, unless a stop string ended the reply.
  void finish();

 private:
  const Tokenizer& tokenizer_;
  Detokenizer detokenizer_;
  StopStrings stop_strings_;
  bool ignore_eos_;
  const std::vector<int32_t> stop_tokens_;
  bool stopped_ = false;
  std::string piece_;  // scratch
  std::string text_;
};

}  // namespace aerie
