#include "engine/learning/tap_keeper.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/errors.h"
#include "model/model.h"
#include "tensor/dtype.h"

namespace aerie {

Expected<std::unique_ptr<TapKeeper>> TapKeeper::make(Drafter& inner, std::vector<int32_t> layers,
                                                     size_t most_tokens, size_t most_bytes) {
  std::unique_ptr<TapKeeper> keeper(
      new TapKeeper(inner, std::move(layers), most_tokens, most_bytes));
  AERIE_RETURN_IF_ERROR(keeper->refresh());
  return keeper;
}

Status TapKeeper::refresh() {
  DrafterNeeds needs = inner_.needs();
  std::vector<size_t> places;
  for (const int32_t layer : layers_) {
    auto at = std::ranges::find(needs.tap_layers, layer);
    if (at == needs.tap_layers.end()) at = needs.tap_layers.insert(at, layer);
    places.push_back(static_cast<size_t>(at - needs.tap_layers.begin()));
  }
  const auto most = static_cast<size_t>(ModelOptions().max_taps);
  if (needs.tap_layers.size() > most) {
    return not_supported(
        "hidden states of {} layers are wanted by drafters and for learning, and there are {}",
        needs.tap_layers.size(), most);
  }
  needs_ = std::move(needs);
  places_ = std::move(places);
  own_taps_ = OwnTaps(needs_.tap_layers);
  return {};
}

Status TapKeeper::open(const DraftSequence& sequence) {
  AERIE_RETURN_IF_ERROR(inner_.open(sequence));
  if (!sequence.learn) return {};
  // One that goes on after a suspension is there already.
  const auto [at, is_new] = kept_.try_emplace(sequence.id);
  if (is_new) at->second.tokens.assign(sequence.tokens.begin(), sequence.tokens.end());
  return {};
}

void TapKeeper::lose(Kept& kept) {
  bytes_ -= kept.taps.values.size() * sizeof(uint16_t);
  kept.taps.values = std::vector<uint16_t>();  // its memory, too
  kept.lost = true;
}

// What comes before its own rows, of another that begins with the same tokens: whoever computed
// them got the bits that all get.
void TapKeeper::borrow(Kept& kept, size_t width) const {
  const auto end = static_cast<size_t>(kept.taps.first_row);
  if (end > kept.tokens.size()) return;
  const auto begin_of = [](const Kept& one) { return static_cast<size_t>(one.taps.first_row); };
  const Kept* from = &kept;
  for (const auto& [id, other] : kept_) {
    if (begin_of(other) < begin_of(*from) &&
        begin_of(other) + other.taps.values.size() / width >= end && other.tokens.size() >= end &&
        std::equal(kept.tokens.begin(), kept.tokens.begin() + static_cast<ptrdiff_t>(end),
                   other.tokens.begin())) {
      from = &other;
    }
  }
  const size_t values = (end - begin_of(*from)) * width;
  // Own rows come first: what is left out here may be found when the sequence has ended.
  if (bytes_ + values * sizeof(uint16_t) > most_bytes_ / 2) return;
  kept.taps.values.assign(from->taps.values.begin(),
                          from->taps.values.begin() + static_cast<ptrdiff_t>(values));
  kept.taps.first_row = from->taps.first_row;
}

// Rows may come again after a suspension, and it may have taken others from the prefix cache.
void TapKeeper::keep_rows(const DraftCommit& commit, Kept& kept) {
  const auto first = static_cast<size_t>(commit.first);
  if (kept.lost || commit.rows == 0 || first >= most_tokens_) return;
  const size_t all = commit.taps.size() / static_cast<size_t>(commit.rows);
  const size_t hidden = all / needs_.tap_layers.size(), width = hidden * places_.size();
  std::vector<uint16_t>& values = kept.taps.values;
  if (values.empty() || commit.first < kept.taps.first_row) {
    bytes_ -= values.size() * sizeof(uint16_t);
    values.clear();
    kept.taps.first_row = commit.first;
    borrow(kept, width);
    bytes_ += values.size() * sizeof(uint16_t);
  }
  const auto begin = static_cast<size_t>(commit.first - kept.taps.first_row);
  if (begin * width > values.size()) return lose(kept);
  const size_t rows = std::min(static_cast<size_t>(commit.rows), most_tokens_ - first);
  const size_t before = values.size(), after = std::max(before, (begin + rows) * width);
  if (bytes_ + (after - before) * sizeof(uint16_t) > most_bytes_) return lose(kept);
  values.resize(after);
  bytes_ += (after - before) * sizeof(uint16_t);
  auto out = values.begin() + static_cast<ptrdiff_t>(begin * width);
  for (size_t row = 0; row < rows; ++row) {
    for (const size_t place : places_) {
      const auto from = commit.taps.subspan(row * all + place * hidden, hidden);
      out = std::ranges::transform(from, out, f32_to_bf16).out;
    }
  }
}

Status TapKeeper::observe(std::span<const DraftCommit> commits) {
  for (const DraftCommit& commit : commits) {
    const auto found = kept_.find(commit.id);
    if (found == kept_.end()) continue;
    try {
      keep_rows(commit, found->second);
    } catch (const std::bad_alloc&) {
      lose(found->second);
    }
  }
  return inner_.observe(own_taps_.of(inner_, commits));
}

std::optional<TapKeeper::Taps> TapKeeper::take(SequenceId id) {
  const auto found = kept_.find(id);
  if (found == kept_.end()) return std::nullopt;
  Taps taps = std::move(found->second.taps);
  bytes_ -= taps.values.size() * sizeof(uint16_t);
  kept_.erase(found);
  return taps;
}

}  // namespace aerie
