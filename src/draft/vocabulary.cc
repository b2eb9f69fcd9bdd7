#include <fmt/format.h>

#include <algorithm>

#include "draft/draft_model.h"

namespace aerie {
namespace {

std::string shown(std::string_view piece) {
  std::string text = "'";
  for (const char c : piece.substr(0, 40)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text + "'";
}

}  // namespace

Status check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  constexpr int kShown = 5;
  const int common = std::min(target.vocab_size(), draft.vocab_size());
  int differing = 0;
  std::string examples;
  for (int id = 0; id < common; ++id) {
    const bool same = target.piece(id) == draft.piece(id) &&
                      target.is_control(id) == draft.is_control(id) &&
                      target.is_end(id) == draft.is_end(id);
    if (same) continue;
    if (differing++ >= kShown) continue;
    examples +=
        fmt::format("{} {} is {} in the target and {} in the draft", examples.empty() ? "" : ";",
                    id, shown(target.piece(id)), shown(draft.piece(id)));
  }
  if (differing > 0) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("the draft model has another tokenizer: {} of {} ids differ:{}; use a draft "
                    "model of the target's family",
                    differing, common, examples)};
  }
  if (target.vocab_size() != draft.vocab_size()) {
    const Tokenizer& larger = target.vocab_size() > draft.vocab_size() ? target : draft;
    return {
        StatusCode::kInvalidArgument,
        fmt::format("the draft model has another tokenizer: {} tokens against the target's {}; "
                    "id {} is {} in one only",
                    draft.vocab_size(), target.vocab_size(), common, shown(larger.piece(common)))};
  }
  return {};
}

}  // namespace aerie
