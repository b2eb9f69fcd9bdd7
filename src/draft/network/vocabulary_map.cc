#include "draft/network/vocabulary_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
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
    return invalid_argument(
        "the draft model has another tokenizer: {} tokens against the target's {}; id {} is '{}' "
        "in one only",
        draft.vocab_size(), target.vocab_size(), id, printable(larger.piece(id), kShownBytes));
  }
  return {};
}

Expected<VocabularyMap> VocabularyMap::make(const Tokenizer& target, int target_logits,
                                            const Tokenizer& draft, int draft_logits) {
  VocabularyMap map;
  std::unordered_map<std::string_view, int32_t> texts, controls;
  for (int32_t id = std::min(draft.vocab_size(), draft_logits); id-- > 0;) {
    if (draft.piece(id).empty()) continue;
    (draft.is_control(id) ? controls : texts)[draft.piece(id)] = id;
  }
  AERIE_RETURN_IF_ERROR(draft.encode("", {.add_special = true}, map.beginning_));
  // Some end what they encode, too.
  std::erase_if(map.beginning_, [&](int32_t id) { return id != draft.bos(); });
  map.to_draft_.assign(static_cast<size_t>(target_logits), -1);
  for (int32_t id = 0; id < target_logits; ++id) {
    map.first_.push_back(map.spellings_.size());
    if (id >= target.vocab_size() || target.piece(id).empty()) continue;
    const auto& known = target.is_control(id) ? controls : texts;
    if (const auto found = known.find(target.piece(id)); found != known.end()) {
      map.to_draft_[static_cast<size_t>(id)] = found->second;
      map.spellings_.push_back(found->second);
      ++map.pairs_;
    } else if (!target.is_control(id)) {
      AERIE_RETURN_IF_ERROR(draft.encode(target.piece(id), {.add_special = false}, map.spellings_));
    }
  }
  map.first_.push_back(map.spellings_.size());
  return map;
}

VocabularyMap VocabularyMap::of_ids(std::vector<int32_t> ids, int target_logits, int draft_logits) {
  VocabularyMap map;
  map.pairs_ = static_cast<int>(ids.size());
  map.to_draft_.assign(static_cast<size_t>(target_logits), -1);
  for (int32_t row = 0; row < map.pairs_; ++row) {
    map.to_draft_[static_cast<size_t>(ids[static_cast<size_t>(row)])] = row;
  }
  for (const int32_t row : map.to_draft_) {
    map.first_.push_back(map.spellings_.size());
    if (row >= 0 || map.pairs_ < draft_logits)
      map.spellings_.push_back(row >= 0 ? row : map.pairs_);
  }
  map.first_.push_back(map.spellings_.size());
  map.ids_ = std::move(ids);
  return map;
}

std::span<const int32_t> VocabularyMap::spelling(int32_t target) const {
  const auto id = static_cast<size_t>(target);
  return std::span(spellings_).subspan(first_[id], first_[id + 1] - first_[id]);
}

void VocabularyMap::translate(std::span<const float> draft_logits, std::span<float> out) const {
  for (size_t id = 0; id < to_draft_.size(); ++id) {
    const int32_t draft = to_draft_[id];
    out[id] = draft < 0 ? -std::numeric_limits<float>::infinity()
                        : draft_logits[static_cast<size_t>(draft)];
  }
}

}  // namespace aerie
