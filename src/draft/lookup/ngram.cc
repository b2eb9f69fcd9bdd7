#include "draft/lookup/ngram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <iterator>
#include <string>

#include "draft/lookup/lookup_keys.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"
#include "draft/tree/tree_growth.h"

namespace aerie {

extern const Method kNgramMethod;

namespace {

// The finaliser of SplitMix64: every input bit reaches every output bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

// Longer n-grams than the text allows would only cost memory.
NgramIndex::NgramIndex(int min_n, int max_n, int max_tokens, bool links)
    : min_n_(min_n),
      max_n_(std::max(min_n, std::min(max_n, max_tokens))),
      max_tokens_(max_tokens),
      mask_(std::bit_ceil(2 * static_cast<size_t>(max_tokens)) - 1),
      slots_(static_cast<size_t>(max_n_ - min_n_ + 1) * (mask_ + 1), 0),
      links_(links ? static_cast<size_t>(max_n_ - min_n_ + 1) * static_cast<size_t>(max_tokens)
                   : 0),
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
    for (int n = min_n_; n <= longest; ++n) {
      int32_t& latest = slot(text, n, end);
      if (!links_.empty()) links_[link_of(n, end)] = latest;
      latest = end + 1;
    }
  }
  length_ = static_cast<int>(text.size());
}

int32_t NgramIndex::find(std::span<const int32_t> text) {
  assert(static_cast<int>(text.size()) == length_);
  if (length_ == 0) return -1;
  for (int n = hash_suffixes(text, length_ - 1); n >= min_n_; --n) {
    if (const int32_t next = slot(text, n, length_ - 1); next != 0) {
      matched_ = n;
      return next;
    }
  }
  return -1;
}

size_t NgramIndex::link_of(int n, int end) const {
  return static_cast<size_t>(n - min_n_) * static_cast<size_t>(max_tokens_) +
         static_cast<size_t>(end);
}

int32_t NgramIndex::older(int32_t next) const {
  assert(!links_.empty());
  const int32_t before = links_[link_of(matched_, next - 1)];
  return before == 0 ? -1 : before;
}

namespace {

// How often what followed an n-gram was right, and each further token once the ones before it were.
// Counted over 56 answers of SmolLM2-135M-Instruct (summaries, code, questions, sums; half of them
// greedy, half at temperature 0.8); n = 3 stands for all longer ones.
struct Trust {
  double first;
  double next;
};
constexpr Trust kTrust[] = {{0.23, 0.55}, {0.46, 0.68}, {0.73, 0.86}};
// What another match is worth, compared with the one that is more recent: 0.3 to 0.6 there.
constexpr double kOlder = 0.35;
// Estimates stay above 0 however long the draft.
constexpr double kLeast = 1e-30;
// Occurrences looked at for each match wanted.
constexpr int kPatience = 8;

class NgramDrafter : public Drafter {
 public:
  explicit NgramDrafter(const NgramOptions& options) : options_(options) {
    if (options.num_matches == 1) return;
    // Beyond that, memory comes when it is needed.
    const auto most = static_cast<int>(
        std::min<int64_t>(4096, int64_t{options.num_tokens} * options.num_matches));
    editor_.reserve(most);
    chain_.nodes.reserve(static_cast<size_t>(most));
    merged_.nodes.reserve(static_cast<size_t>(most));
  }

  std::string_view method() const override { return kNgramMethod.name; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override { indexes_.close(id); }

  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  void propose_tree(const NgramIndex& index, int32_t next, int wanted, DraftRequest& request);

  NgramOptions options_;
  DrafterNeeds needs_;
  SequenceStates<NgramIndex> indexes_{kNgramMethod.name};
  TreeEditor editor_;
  TokenTree chain_, merged_;
};

Status NgramDrafter::open(const DraftSequence& sequence) {
  return indexes_.open(sequence, [&] {
    return NgramIndex(options_.min_n, options_.max_n, sequence.max_tokens,
                      options_.num_matches > 1);
  });
}

// The continuation from position `next` on, as a chain from the root.
void add_continuation(const NgramIndex& index, std::span<const int32_t> text, int32_t next,
                      int length, double worth, TokenTree& tree) {
  const Trust& trust =
      kTrust[std::min<size_t>(static_cast<size_t>(index.matched()), std::size(kTrust)) - 1];
  double probability = worth * trust.first;
  for (int i = 0; i < length && next < index.length(); ++i, ++next) {
    tree.add(text[static_cast<size_t>(next)], i - 1, nullptr, static_cast<float>(probability));
    probability = std::max(kLeast, probability * trust.next);
  }
}

void NgramDrafter::propose_tree(const NgramIndex& index, int32_t next, int wanted,
                                DraftRequest& request) {
  merged_.clear();
  double worth = 1.0;
  int matches = 0;
  for (int looks = 0; next >= 0 && looks / kPatience < options_.num_matches; ++looks) {
    chain_.clear();
    add_continuation(index, request.tokens, next, wanted, worth, chain_);
    if (editor_.merge(merged_, chain_) > 0) {
      worth *= kOlder;
      if (++matches == options_.num_matches) break;
    }
    next = index.older(next);
  }
  editor_.keep_best(merged_, {.max_nodes = wanted});
  request.tree->nodes.assign(merged_.nodes.begin(), merged_.nodes.end());
}

Status NgramDrafter::propose(std::span<DraftRequest> requests) {
  AERIE_RETURN_IF_ERROR(indexes_.check(requests));
  for (DraftRequest& request : requests) {
    assert(request.tree != nullptr);
    NgramIndex& index = indexes_.use(request);
    index.extend(request.tokens);
    const int32_t next = index.find(request.tokens);
    const int wanted = std::min(options_.num_tokens, request.max_nodes);
    if (next < 0 || wanted <= 0) continue;
    if (options_.num_matches > 1) {
      propose_tree(index, next, wanted, request);
    } else {
      add_continuation(index, request.tokens, next, wanted, 1.0, *request.tree);
    }
  }
  return {};
}

Status NgramDrafter::observe(std::span<const DraftCommit> commits) {
  AERIE_RETURN_IF_ERROR(indexes_.check(commits));
  for (const DraftCommit& commit : commits) indexes_.use(commit).extend(commit.tokens);
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
  if (options.num_matches < 1) return fail("num_matches must be at least 1");
  return std::unique_ptr<Drafter>(std::make_unique<NgramDrafter>(options));
}

namespace {

constexpr std::array kNgramOptions = {
    option_key(kLongestKey, &NgramOptions::max_n, 1, kMostOfMethods, "the longest n"),
    option_key(kShortestKey, &NgramOptions::min_n, 1, kMostOfMethods, "the shortest n"),
    option_key("num_matches", &NgramOptions::num_matches, 1, 16,
               "occurrences that go into a draft"),
    tokens_key(&NgramOptions::num_tokens),
};
constexpr auto kNgramKeys = keys_of(kNgramOptions);

constexpr AutoUse::Number kNgramInAuto[] = {{"num_matches", 3}, {kTokensKey, 32}};

Expected<std::unique_ptr<Drafter>> make_ngram(const MethodConfig& config, DraftHost& /*host*/) {
  NgramOptions options;
  read_options(config, kNgramOptions, options);
  return make_ngram_drafter(options);
}

}  // namespace

constinit const Method kNgramMethod = {
    .name = "ngram",
    .what = "what followed the last words where they stood before",
    .keys = kNgramKeys,
    .check = check_lookup,
    .make = make_ngram,
    .in_auto = {3, kNgramInAuto},
    .offered = true,
    .model_word = "[ngram]",
};

}  // namespace aerie
