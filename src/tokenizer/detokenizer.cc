#include "tokenizer/detokenizer.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/utf8.h"

namespace aerie {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool show_control, DetokenizeFrom from)
    : tokenizer_(&tokenizer),
      show_control_(show_control),
      strip_space_(from == DetokenizeFrom::kBeginning && tokenizer.strips_leading_space()) {}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, std::vector<int32_t> shown)
    : Detokenizer(tokenizer) {
  shown_ = std::move(shown);
}

void Detokenizer::push(int32_t id, std::string& text) {
  assert(id >= 0 && id < tokenizer_->vocab_size());
  if (!show_control_ && tokenizer_->is_control(id) &&
      std::find(shown_.begin(), shown_.end(), id) == shown_.end()) {
    return;
  }
  std::string_view piece = tokenizer_->piece(id);
  if (strip_space_ && !piece.empty()) {
    if (piece.front() == ' ') piece.remove_prefix(1);
    strip_space_ = false;
  }
  pending_ += piece;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const size_t valid = utf8_valid_prefix(rest);
    text += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Unit unit = utf8_next(rest);
    if (unit.kind == Utf8Kind::kIncomplete) break;
    text += kReplacement;
    rest.remove_prefix(unit.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
}

void Detokenizer::finish(std::string& text) {
  if (!pending_.empty()) text += kReplacement;
  pending_.clear();
}

}  // namespace aerie
