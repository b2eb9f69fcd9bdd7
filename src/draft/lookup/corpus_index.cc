#include "draft/lookup/corpus_index.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace aerie {

CorpusIndex::CorpusIndex(std::vector<int32_t> tokens, int vocab, int max_depth)
    : max_depth_(max_depth), tokens_(std::move(tokens)) {
  tokens_.push_back(kEnd);
  // By the first token, which is all that most comparisons would look at.
  first_.resize(static_cast<size_t>(vocab) + 1);
  for (const int32_t token : tokens_) {
    assert(token < vocab);
    if (token != kEnd) ++first_[static_cast<size_t>(token)];
  }
  int32_t count = 0;
  for (int32_t& first : first_) count += std::exchange(first, count);
  suffixes_.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] == kEnd) continue;
    int32_t& next = first_[static_cast<size_t>(tokens_[i])];
    suffixes_[static_cast<size_t>(next++)] = static_cast<int32_t>(i);
  }
  // Each has become the next one's.
  for (size_t token = first_.size() - 1; token > 0; --token) first_[token] = first_[token - 1];
  first_[0] = 0;
  for (size_t token = 0; token + 1 < first_.size(); ++token) {
    std::sort(suffixes_.begin() + first_[token], suffixes_.begin() + first_[token + 1],
              [this](int32_t a, int32_t b) { return before(a, b); });
  }
}

// Of two suffixes that begin with the same token.
bool CorpusIndex::before(int32_t a, int32_t b) const {
  for (int32_t depth = 1; depth < max_depth_; ++depth) {
    const int32_t of_a = tokens_[static_cast<size_t>(a + depth)];
    const int32_t of_b = tokens_[static_cast<size_t>(b + depth)];
    if (of_a != of_b) return of_a < of_b;
    if (of_a == kEnd) break;
  }
  return a < b;
}

CorpusIndex::Range CorpusIndex::step(const Range& range, int32_t token) const {
  const auto next = [&](int32_t suffix) {
    return tokens_[static_cast<size_t>(suffix + range.depth)];
  };
  const auto begin = suffixes_.begin() + range.begin, end = suffixes_.begin() + range.end;
  const auto low = std::partition_point(begin, end, [&](int32_t s) { return next(s) < token; });
  const auto high = std::partition_point(low, end, [&](int32_t s) { return next(s) == token; });
  return {static_cast<int32_t>(low - suffixes_.begin()),
          static_cast<int32_t>(high - suffixes_.begin()), range.depth + 1};
}

CorpusIndex::Range CorpusIndex::find(std::span<const int32_t> string) const {
  const auto token = static_cast<size_t>(string[0]);
  if (string[0] < 0 || token + 1 >= first_.size()) return {};
  Range range = {first_[token], first_[token + 1], 1};
  for (size_t i = 1; i < string.size() && range.size() > 0; ++i) range = step(range, string[i]);
  return range;
}

CorpusIndex::Range CorpusIndex::find_longest(std::span<const int32_t> text, int least,
                                             int most) const {
  // Where a suffix occurs, so do the shorter ones.
  const int limit = std::min(most, max_depth_);
  int present = least - 1;
  int absent = static_cast<int>(std::min(text.size(), static_cast<size_t>(limit))) + 1;
  Range longest;
  while (absent - present > 1) {
    const int length = present + (absent - present) / 2;
    const Range range = find(text.last(static_cast<size_t>(length)));
    if (range.size() > 0) {
      longest = range;
      present = length;
    } else {
      absent = length;
    }
  }
  return longest;
}

void CorpusIndex::continuations(const Range& range, double least,
                                std::vector<Continuation>& out) const {
  out.clear();
  if (range.depth >= max_depth_) return;
  const int32_t samples = std::min(range.size(), kSamples);
  const auto place = [&](int32_t sample) {
    return range.begin + static_cast<int32_t>(int64_t{range.size()} * sample / samples);
  };
  int32_t ended = 0;  // kEnd comes first
  for (int32_t i = 0; i < samples;) {
    const int32_t token = next_token(range, place(i));
    int32_t end = i + 1;
    while (end < samples && next_token(range, place(end)) == token) ++end;
    if (token == kEnd) ended = end;
    const double share = 1.0 * (end - i) / (samples - (token == kEnd ? 0 : ended));
    if (token != kEnd && share >= least) {
      const Range around = {i == 0 ? range.begin : place(i - 1) + 1,
                            end == samples ? range.end : place(end), range.depth};
      out.push_back({token, share, step(around, token)});
    }
    i = end;
  }
}

}  // namespace aerie
