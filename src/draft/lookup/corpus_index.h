// Where the strings of a fixed text of tokens occur, and what follows them: a suffix array.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aerie {

// Immutable: safe to share between threads. Memory: 8 bytes for each token, 4 for each of the
// vocabulary.
class CorpusIndex {
 public:
  // Stands between texts: no string goes across it.
  static constexpr int32_t kEnd = -1;

  // The occurrences of a string, among all suffixes in their order.
  struct Range {
    int32_t begin = 0, end = 0;
    int32_t depth = 0;  // the string's length

    int32_t size() const { return end - begin; }
  };
  struct Continuation {
    int32_t token = 0;
    double share = 0.0;  // of the string's occurrences that are followed by anything
    Range range;         // of the string with this token
  };

  // Tokens are below `vocab`, or kEnd; there are less than 2^31. Strings of up to max_depth tokens
  // are told apart. Takes n log n comparisons of as many tokens. Throws when memory runs out.
  CorpusIndex(std::vector<int32_t> tokens, int vocab, int max_depth);

  // Of the longest suffix of the text that occurs, of `least` to `most` tokens, at least 1 and at
  // most max_depth; empty if there is none.
  Range find_longest(std::span<const int32_t> text, int least, int most) const;

  // What follows the string in at least `least` of the cases, by ascending token. Of more than
  // kSamples occurrences it is counted in so many, evenly spread. Nothing at max_depth.
  static constexpr int32_t kSamples = 64;
  void continuations(const Range& range, double least, std::vector<Continuation>& out) const;

 private:
  bool before(int32_t a, int32_t b) const;
  // The token behind the string in its `i`-th occurrence of all suffixes.
  int32_t next_token(const Range& range, int32_t i) const {
    return tokens_[static_cast<size_t>(suffixes_[static_cast<size_t>(i)] + range.depth)];
  }
  // The string with a token more.
  Range step(const Range& range, int32_t token) const;
  Range find(std::span<const int32_t> string) const;

  int32_t max_depth_;
  std::vector<int32_t> tokens_;    // kEnd behind them
  std::vector<int32_t> suffixes_;  // where each begins
  std::vector<int32_t> first_;  // [token]: the first suffix that begins with it; [vocab]: the end
};

}  // namespace aerie
