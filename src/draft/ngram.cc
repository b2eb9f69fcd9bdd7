#include "draft/ngram.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <exception>
#include <string>
#include <unordered_map>
#include <utility>

namespace aerie {
namespace {

// The finaliser of SplitMix64: every input bit reaches every output bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

// Longer n-grams than the text allows would only cost memory.
NgramIndex::NgramIndex(int min_n, int max_n, int max_tokens)
    : min_n_(min_n),
      max_n_(std::max(min_n, std::min(max_n, max_tokens))),
      max_tokens_(max_tokens),
      mask_(std::bit_ceil(2 * static_cast<size_t>(max_tokens)) - 1),
      slots_(static_cast<size_t>(max_n_ - min_n_ + 1) * (mask_ + 1), 0),
      hashes_(static_cast<size_t>(max_n_)) {
  assert(1 <= min_n && min_n <= max_n && max_tokens >= 1);
}

int NgramIndex::hash_suffixes(std::span<const int32_t> text, int end) {
  const int longest = std::min(max_n_, end + 1);
  uint64_t hash = 0;
  for (int n = 1; n <= longest; ++n) {
    // Growing to the left, so that one pass gives the hashes of all n.
    const auto begin = static_cast<size_t>(end) + 1 - static_cast<size_t>(n);
    hash = mix(hash + static_cast<uint32_t>(text[begin]) + 1);
    hashes_[static_cast<size_t>(n - 1)] = hash;
  }
  return longest;
}

int32_t& NgramIndex::slot(std::span<const int32_t> text, int n, int end) {
  int32_t* table = slots_.data() + static_cast<size_t>(n - min_n_) * (mask_ + 1);
  const int32_t* last = text.data() + end;
  // Ends at the latest at a free slot: a table has twice as many slots as there can be n-grams.
  for (size_t i = hashes_[static_cast<size_t>(n - 1)] & mask_;; i = (i + 1) & mask_) {
    ++probes_;
    if (table[i] == 0) return table[i];
    const int32_t* held = text.data() + table[i] - 1;
    if (std::equal(held - n + 1, held + 1, last - n + 1)) return table[i];
  }
}

void NgramIndex::extend(std::span<const int32_t> text) {
  assert(static_cast<int>(text.size()) >= length_ && static_cast<int>(text.size()) <= max_tokens_);
  // One token behind, so that the suffix of the text never finds itself.
  for (int end = std::max(0, length_ - 1); end + 1 < static_cast<int>(text.size()); ++end) {
    const int longest = hash_suffixes(text, end);
    for (int n = min_n_; n <= longest; ++n) slot(text, n, end) = end + 1;
  }
  length_ = static_cast<int>(text.size());
}

int32_t NgramIndex::find(std::span<const int32_t> text) {
  assert(static_cast<int>(text.size()) == length_);
  if (length_ == 0) return -1;
  for (int n = hash_suffixes(text, length_ - 1); n >= min_n_; --n) {
    if (const int32_t next = slot(text, n, length_ - 1); next != 0) return next;
  }
  return -1;
}

namespace {

class NgramDrafter : public Drafter {
 public:
  explicit NgramDrafter(const NgramOptions& options) : options_(options) {}

  std::string_view method() const override { return "ngram"; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override { indexes_.erase(id); }

  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  Status check(SequenceId id, std::span<const int32_t> tokens) const;

  NgramOptions options_;
  DrafterNeeds needs_;
  std::unordered_map<SequenceId, NgramIndex> indexes_;
};

Status NgramDrafter::open(const DraftSequence& sequence) {
  const std::string name = "ngram drafter: sequence " + std::to_string(sequence.id);
  if (sequence.max_tokens < 1) {
    return {StatusCode::kInvalidArgument, name + ": max_tokens must be at least 1"};
  }
  if (indexes_.contains(sequence.id)) {
    return {StatusCode::kInvalidArgument, name + " is open already"};
  }
  try {
    indexes_.try_emplace(sequence.id, options_.min_n, options_.max_n, sequence.max_tokens);
  } catch (const std::exception&) {
    return {StatusCode::kResourceExhausted,
            name + ": no memory to index " + std::to_string(sequence.max_tokens) + " tokens"};
  }
  return {};
}

Status NgramDrafter::check(SequenceId id, std::span<const int32_t> tokens) const {
  const auto found = indexes_.find(id);
  const auto fail = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument,
                  "ngram drafter: sequence " + std::to_string(id) + what);
  };
  if (found == indexes_.end()) return fail(" is not open");
  const NgramIndex& index = found->second;
  if (tokens.size() > static_cast<size_t>(index.max_tokens())) {
    return fail(" has " + std::to_string(tokens.size()) + " tokens, it was opened for " +
                std::to_string(index.max_tokens()));
  }
  if (tokens.size() < static_cast<size_t>(index.length())) {
    return fail(" has shrunk from " + std::to_string(index.length()) + " to " +
                std::to_string(tokens.size()) + " tokens");
  }
  return {};
}

Status NgramDrafter::propose(std::span<DraftRequest> requests) {
  // All are checked before any tree is touched.
  for (const DraftRequest& request : requests) {
    assert(request.tree != nullptr);
    AERIE_RETURN_IF_ERROR(check(request.id, request.tokens));
  }
  for (DraftRequest& request : requests) {
    NgramIndex& index = indexes_.find(request.id)->second;
    index.extend(request.tokens);
    int32_t next = index.find(request.tokens);
    if (next < 0) continue;
    const int wanted = std::min(options_.num_tokens, request.max_nodes);
    for (int i = 0; i < wanted && next < index.length(); ++i, ++next) {
      request.tree->add(request.tokens[static_cast<size_t>(next)], i - 1);
    }
  }
  return {};
}

Status NgramDrafter::observe(std::span<const DraftCommit> commits) {
  for (const DraftCommit& commit : commits) {
    AERIE_RETURN_IF_ERROR(check(commit.id, commit.tokens));
  }
  for (const DraftCommit& commit : commits) {
    indexes_.find(commit.id)->second.extend(commit.tokens);
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<Drafter>> make_ngram_drafter(const NgramOptions& options) {
  const auto fail = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "ngram drafter: " + what);
  };
  if (options.min_n < 1) return fail("min_n must be at least 1");
  if (options.max_n < options.min_n) return fail("max_n must not be below min_n");
  if (options.num_tokens < 1) return fail("num_tokens must be at least 1");
  return std::unique_ptr<Drafter>(std::make_unique<NgramDrafter>(options));
}

}  // namespace aerie
