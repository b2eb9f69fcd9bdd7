#include "engine/reply.h"

#include <algorithm>

namespace aerie {

Reply::Reply(const Tokenizer& tokenizer, const Request& request)
    : tokenizer_(tokenizer),
      detokenizer_(tokenizer, request.shown_tokens),
      stop_strings_(request.stop),
      ignore_eos_(request.ignore_eos),
      stop_tokens_(request.stop_tokens) {}

bool Reply::stops_after(int32_t token) {
  // Logits may be wider than the vocabulary; such an id has no text.
  const bool is_known = token < tokenizer_.vocab_size();
  if (is_known && tokenizer_.is_end(token) && !ignore_eos_) return true;
  if (std::ranges::find(stop_tokens_, token) != stop_tokens_.end()) return true;
  piece_.clear();
  if (is_known) detokenizer_.push(token, piece_);
  stopped_ = stop_strings_.push(piece_, text_);
  return stopped_;
}

void Reply::finish() {
  if (stopped_) return;
  piece_.clear();
  detokenizer_.finish(piece_);
  stopped_ = stop_strings_.push(piece_, text_);
  if (!stopped_) stop_strings_.finish(text_);
  stopped_ = true;
}

}  // namespace aerie
