// N-gram prompt lookup (Saxena 2023, "Prompt lookup decoding"): the tokens that followed the most
// recent earlier occurrences of the longest suffix of the text so far.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "draft/drafter.h"

namespace aerie {

struct NgramOptions {
  int max_n = 3;        // >= min_n
  int min_n = 1;        // >= 1
  int num_tokens = 10;  // the nodes of a draft; >= 1
  int num_matches = 1;  // earlier occurrences that a draft is made of; >= 1
};

// Where the n-grams of one growing text occurred. Not thread-safe. Memory: 8 to 16 bytes for each
// token of `max_tokens` and each n, 4 more with `links`, taken at construction; nothing is
// allocated later.
class NgramIndex {
 public:
  // Requires 1 <= min_n <= max_n and max_tokens >= 1. Throws when memory runs out. `links`: find()
  // can be followed by older().
  NgramIndex(int min_n, int max_n, int max_tokens, bool links = false);

  // Takes in the tokens that came since the last call: max_n steps for each of them. Requires
  // `text` to be the text of the last call or a continuation of it, no longer than max_tokens.
  void extend(std::span<const int32_t> text);

  // The position that follows the most recent earlier occurrence of the longest suffix of n tokens,
  // min_n <= n <= max_n; -1 if no suffix occurred before. Requires the `text` of the last extend().
  int32_t find(std::span<const int32_t> text);
  // The n of the last find() that found something.
  int matched() const { return matched_; }
  // `next` is what that find() or the last older() returned: the same for the occurrence before
  // that one; -1 if there is none. Requires `links`.
  int32_t older(int32_t next) const;

  int max_tokens() const { return max_tokens_; }
  // The length of the text in the last extend().
  int length() const { return length_; }
  // Table slots looked at since construction: what the index has cost so far.
  int64_t probes() const { return probes_; }

 private:
  // Hashes of the n-grams that end at position `end`, hashes_[n - 1] for each n that fits.
  int hash_suffixes(std::span<const int32_t> text, int end);
  // The slot of the n-gram that ends at `end`: it holds an equal n-gram's end, or is free.
  int32_t& slot(std::span<const int32_t> text, int n, int end);

  // Where links_ holds what came before the n-gram that ends at `end`.
  size_t link_of(int n, int end) const;

  int min_n_;
  int max_n_;
  int max_tokens_;
  int length_ = 0;
  int matched_ = 0;
  int64_t probes_ = 0;
  size_t mask_;                   // slots of one table, less one
  std::vector<int32_t> slots_;    // [n - min_n][mask_ + 1]: the latest end + 1; 0: free
  std::vector<int32_t> links_;    // [n - min_n][end]: the end + 1 of the n-gram before; 0: none
  std::vector<uint64_t> hashes_;  // scratch
};

// A draft of up to num_tokens point-mass nodes: longest n first, then the most recent earlier
// occurrence; the suffix itself is no match; the continuation is cut at the end of the text. With
// one match it is a chain. With more, the most recent occurrences with different continuations
// (they are looked for among the latest 8 * num_matches) become a tree, merged by prefix and cut to
// its best nodes, by estimates that go by n, depth and how many matches were more recent. The cost
// of a round depends on the tokens committed since the last one, on max_n, num_matches and
// num_tokens, not on the length of the text. open() takes an NgramIndex for max_tokens.
Expected<std::unique_ptr<Drafter>> make_ngram_drafter(const NgramOptions& options);

}  // namespace aerie
