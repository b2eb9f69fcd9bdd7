#include <fmt/format.h>

#include <algorithm>

#include "draft/draft_model.h"
#include "format/text.h"

namespace aerie {

Status check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  constexpr int kShown = 5;
  constexpr size_t kShownBytes = 40;  // of a piece
  const int common = std::min(target.vocab_size(), draft.vocab_size());
  int differing = 0;
  std::string examples;
  for (int id = 0; id < common; ++id) {
    const bool same = target.piece(id) == draft.piece(id) &&
                      target.is_control(id) == draft.is_control(id) &&
                      target.is_end(id) == draft.is_end(id);
    if (same) continue;
    if (differing++ >= kShown) continue;
    examples += fmt::format(
        "{} {} is '{}' in the target and '{}' in the draft", examples.empty() ? "" : ";", id,
        printable(target.piece(id), kShownBytes), printable(draft.piece(id), kShownBytes));
  }
  if (differing > 0) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("the draft model has another tokenizer: {} of {} ids differ:{}; use a draft "
                    "model of the target's family",
                    differing, common, examples)};
  }
  const Tokenizer& larger = target.vocab_size() > draft.vocab_size() ? target : draft;
  for (int id = common; id < larger.vocab_size(); ++id) {
    // Ids that fill up an embedding stand for nothing: one of two files of a model may have them.
    if (larger.piece(id).empty() && !larger.is_control(id) && !larger.is_end(id)) continue;
    return {StatusCode::kInvalidArgument,
            fmt::format("the draft model has another tokenizer: {} tokens against the target's {}; "
                        "id {} is '{}' in one only",
                        draft.vocab_size(), target.vocab_size(), id,
                        printable(larger.piece(id), kShownBytes))};
  }
  return {};
}

}  // namespace aerie
