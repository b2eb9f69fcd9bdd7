#include "draft/lookup/suffix.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "draft/lookup/lookup_keys.h"
#include "draft/lookup/suffix_trie.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"
#include "draft/tenant_drafter.h"
#include "draft/tree/tree_growth.h"

namespace aerie {

extern const Method kSuffixMethod;

namespace {

constexpr int kMaxDepth = 256;
constexpr double kLeastProbability = 0.001;
constexpr int64_t kBytesPerToken = 140;  // of a trie, at most
// There is room for so many past tokens from the start, and for twice as many whenever it is full.
constexpr int kFirstTokens = 256;

// One sequence: its text, and where the suffixes of that text are among past outputs.
class History {
 public:
  History(const SuffixOptions& options, int max_tokens) : text(options.max_depth, max_tokens) {
    places_.resize(static_cast<size_t>(options.max_depth));
  }

  void set_output_begin(int begin) {
    if (!drafting) output_begin = begin;
  }
  void take_in(std::span<const int32_t> tokens) {
    for (auto i = static_cast<size_t>(text.text_size()); i < tokens.size(); ++i) {
      text.append(tokens[i]);
    }
  }
  // `version` changes with `past`.
  void find_places(const SuffixTrie& past, int64_t version);
  // Where the last `length` tokens are in `past`; nullptr: nowhere.
  const SuffixTrie::Point* place(int length) const {
    const SuffixTrie::Point& point = places_[static_cast<size_t>(length)];
    return point.depth == length ? &point : nullptr;
  }

  SuffixTrie text;
  int output_begin = 0;
  bool drafting = false;

 private:
  std::vector<SuffixTrie::Point> places_;  // [length]; of another depth: none
  int64_t version_ = -1;
  int known_ = 0;  // tokens that places_ are about
};

void History::find_places(const SuffixTrie& past, int64_t version) {
  const int size = text.text_size();
  const int longest = static_cast<int>(places_.size()) - 1;
  if (version != version_ || size - known_ > longest) {
    std::ranges::fill(places_, SuffixTrie::Point());
    known_ = std::max(0, size - longest);
    version_ = version;
  }
  for (; known_ < size; ++known_) {
    for (int length = longest; length > 0; --length) {
      SuffixTrie::Point& point = places_[static_cast<size_t>(length)];
      point = places_[static_cast<size_t>(length) - 1];
      if (point.depth != length - 1 || !past.step(point, text.text_token(known_))) point = {};
    }
  }
}

class SuffixDrafter final : public LearningDrafter {
 public:
  explicit SuffixDrafter(const SuffixOptions& options)
      : options_(options), past_(options.max_depth, first_tokens()) {
    // Nodes of one depth have a probability of 1 together, and each of them the least or more.
    const double wide = 1 / options.min_probability + 1;
    const auto most = static_cast<int>(wide * options.max_depth);
    const int nodes = std::min(options.num_tokens, most);
    next_.reserve(static_cast<size_t>(wide));
    points_.reserve(static_cast<size_t>(most));
    tree_.nodes.reserve(static_cast<size_t>(nodes));
    growth_.reserve(nodes, static_cast<int>(2 * wide));
  }

  std::string_view method() const override { return kSuffixMethod.name; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override {
    return histories_.open(sequence, [&] { return History(options_, sequence.max_tokens); });
  }
  void close(SequenceId id) override;

  void forget() override {
    past_ = SuffixTrie(options_.max_depth, first_tokens());
    ++version_;
  }
  int64_t learnt_bytes() const override {
    return kBytesPerToken * std::max(past_.size(), first_tokens());
  }
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  int first_tokens() const { return std::clamp(options_.cached_tokens, 1, kFirstTokens); }
  // In the past for so many more, as far as cached_tokens and memory go; whether they fit now.
  bool make_room(int tokens);
  void remember(const History& history);
  void draft(const History& history, int max_nodes, TokenTree& best);
  // A draft into tree_ that goes on from `point`; returns its score.
  double follow_chain(const SuffixTrie& trie, SuffixTrie::Point point, int budget);
  double grow_tree(const SuffixTrie& trie, SuffixTrie::Point point, int budget);
  void offer(const SuffixTrie& trie, SuffixTrie::Point point, int32_t parent, double probability);

  SuffixOptions options_;
  DrafterNeeds needs_;
  SequenceStates<History> histories_{kSuffixMethod.name};
  SuffixTrie past_;
  int64_t version_ = 0;

  // Scratch.
  TokenTree tree_;
  TreeGrowth growth_;
  std::vector<SuffixTrie::Point> points_;  // by tag
  std::vector<SuffixTrie::Continuation> next_;
};

void SuffixDrafter::close(SequenceId id) {
  if (const History* history = histories_.find(id)) remember(*history);
  histories_.close(id);
}

bool SuffixDrafter::make_room(int tokens) {
  const int most = options_.cached_tokens;
  if (past_.size() + tokens <= past_.max_tokens()) return true;
  if (past_.max_tokens() >= most) return false;
  try {
    past_.reserve(std::min(most, std::max(past_.size() + tokens, 2 * past_.max_tokens())));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return past_.size() + tokens <= past_.max_tokens();
}

void SuffixDrafter::remember(const History& history) {
  const int size = history.text.text_size();
  if (options_.cached_tokens == 0 || history.output_begin >= size) return;
  const bool fits = make_room(size - history.output_begin);
  const int begin = std::max(history.output_begin, size - past_.max_tokens());
  while (!fits && past_.size() + size - begin > past_.max_tokens()) past_.drop_oldest();
  for (int i = begin; i < size; ++i) past_.append(history.text.text_token(i));
  past_.end_text();
  ++version_;
}

double SuffixDrafter::follow_chain(const SuffixTrie& trie, SuffixTrie::Point point, int budget) {
  double score = 0, probability = 1;
  while (tree_.size() < budget) {
    trie.continuations(point, options_.min_probability / probability, next_);
    if (next_.empty()) break;
    point = next_[0].point;
    probability *= next_[0].share;
    score += probability;
    tree_.add(next_[0].token, tree_.size() - 1, nullptr, static_cast<float>(probability));
  }
  return score;
}

void SuffixDrafter::offer(const SuffixTrie& trie, SuffixTrie::Point point, int32_t parent,
                          double probability) {
  trie.continuations(point, options_.min_probability / probability, next_);
  for (const SuffixTrie::Continuation& next : next_) {
    growth_.offer(next.token, parent, probability * next.share,
                  static_cast<int32_t>(points_.size()));
    points_.push_back(next.point);
  }
}

double SuffixDrafter::grow_tree(const SuffixTrie& trie, SuffixTrie::Point point, int budget) {
  points_.clear();
  growth_.start(tree_, {.max_nodes = budget});
  offer(trie, point, -1, 1.0);
  double score = 0;
  while (const auto grown = growth_.grow()) {
    score += grown->probability;
    if (tree_.size() == budget) break;
    offer(trie, points_[static_cast<size_t>(grown->tag)], grown->node, grown->probability);
  }
  return score;
}

void SuffixDrafter::draft(const History& history, int max_nodes, TokenTree& best) {
  const int cap = std::min(options_.num_tokens, max_nodes);
  double best_score = 0;
  int best_m = 0;
  for (int m = std::min(options_.max_depth - 1, history.text.text_size()); m > 0; --m) {
    // Rounded down, but not for want of a last bit.
    const double wanted = options_.factor * m + options_.offset + 1e-6;
    const int budget = static_cast<int>(std::min<double>(cap, wanted));
    // Nodes of one depth have a probability of 1 together.
    if (std::min(budget, options_.max_depth - m) <= best_score) continue;
    const SuffixTrie::Point own = history.text.suffix(m);
    const std::pair<const SuffixTrie*, const SuffixTrie::Point*> sources[] = {
        {&history.text, &own}, {&past_, history.place(m)}};
    for (const auto& [trie, point] : sources) {
      if (point == nullptr) continue;
      tree_.clear();
      const double score =
          options_.tree ? grow_tree(*trie, *point, budget) : follow_chain(*trie, *point, budget);
      if (score <= best_score) continue;
      best_score = score;
      best_m = m;
      best.nodes.assign(tree_.nodes.begin(), tree_.nodes.end());
    }
  }
  for (TokenTree::Node& node : best.nodes) {
    node.probability *= static_cast<float>(lookup_trust(best_m, node.depth));
  }
}

Status SuffixDrafter::propose(std::span<DraftRequest> requests) {
  AERIE_RETURN_IF_ERROR(histories_.check(requests));
  for (DraftRequest& request : requests) {
    assert(request.tree != nullptr);
    History& history = histories_.use(request);
    history.drafting = true;
    history.take_in(request.tokens);
    history.find_places(past_, version_);
    draft(history, request.max_nodes, *request.tree);
  }
  return {};
}

Status SuffixDrafter::observe(std::span<const DraftCommit> commits) {
  AERIE_RETURN_IF_ERROR(histories_.check(commits));
  for (const DraftCommit& commit : commits) {
    History& history = histories_.use(commit);
    history.set_output_begin(commit.first + commit.rows);
    history.take_in(commit.tokens);
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<Drafter>> make_suffix_drafter(const SuffixOptions& options) {
  const auto fail = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "suffix drafter: " + what);
  };
  if (options.num_tokens < 1) return fail("num_tokens must be at least 1");
  if (options.max_depth < 2 || options.max_depth > kMaxDepth) {
    return fail("max_depth must be 2 to " + std::to_string(kMaxDepth));
  }
  if (!(options.factor >= 0)) return fail("factor must not be negative");
  if (!(std::abs(options.offset) <= kMaxDepth)) {
    return fail("offset must be between -" + std::to_string(kMaxDepth) + " and " +
                std::to_string(kMaxDepth));
  }
  if (!(options.min_probability >= kLeastProbability && options.min_probability <= 1)) {
    return fail("min_probability must be 0.001 to 1");
  }
  if (options.cached_tokens < 0) return fail("cached_tokens must not be negative");
  try {
    return make_tenant_drafter(kBytesPerToken * std::max(1, options.cached_tokens),
                               [options] { return std::make_unique<SuffixDrafter>(options); });
  } catch (const std::exception&) {
    return Status(StatusCode::kResourceExhausted, "suffix drafter: no memory for its drafts");
  }
}

namespace {

// The first three as in vLLM.
constexpr std::array kSuffixOptions = {
    option_key("suffix_decoding_max_tree_depth", &SuffixOptions::max_depth, 2, kMaxDepth,
               "tokens of a match and its draft together"),
    option_key("suffix_decoding_max_spec_factor", &SuffixOptions::factor, 0, 100,
               "tokens drafted for each token that matched"),
    option_key("suffix_decoding_min_token_prob", &SuffixOptions::min_probability, kLeastProbability,
               1, "the least probability of a path, by the counts"),
    option_key("suffix_decoding_spec_offset", &SuffixOptions::offset, 0, 100,
               "tokens drafted beyond that"),
    option_key("suffix_decoding_max_cached_tokens", &SuffixOptions::cached_tokens, 0, 1 << 26,
               "tokens of past outputs"),
    option_key("suffix_decoding_tree", &SuffixOptions::tree,
               "1: the likeliest nodes rather than the likeliest chain"),
    tokens_key(&SuffixOptions::num_tokens),
};
constexpr auto kSuffixKeys = keys_of(kSuffixOptions);

constexpr AutoUse::Number kSuffixInAuto[] = {
    {"suffix_decoding_tree", 1}, {"suffix_decoding_spec_offset", 4}, {kTokensKey, 32}};

Expected<std::unique_ptr<Drafter>> make_suffix(const MethodConfig& config, DraftHost& /*host*/) {
  SuffixOptions options;
  read_options(config, kSuffixOptions, options);
  return make_suffix_drafter(options);
}

}  // namespace

constinit const Method kSuffixMethod = {
    .name = "suffix",
    .what = "what followed the same words here and in past outputs",
    .keys = kSuffixKeys,
    .make = make_suffix,
    .in_auto = {2, kSuffixInAuto},
};

}  // namespace aerie
