#include "draft/lookup/recycling.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "draft/draft_host.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"
#include "draft/tenant_drafter.h"
#include "draft/tree/static_tree.h"

namespace aerie {

extern const Method kRecyclingMethod;

namespace {

constexpr int32_t kNoSuccessor = -1;
constexpr int kMaxTokens = 1024;
// Of all tenants' tables together, if that holds one that is full.
constexpr int64_t kMostBytes = int64_t{64} << 20;

// How often the successor of each rank was the next token, over the 8734 tokens of 56 answers of
// SmolLM2-135M-Instruct (summaries, code, questions, sums; half of them greedy, half at temperature
// 0.8), the table filled by them and their prompts one after another. Ranked by counts instead, the
// first were right less often (0.28).
constexpr double kRankProbability[] = {0.336, 0.109, 0.051, 0.025, 0.017, 0.011, 0.009, 0.005};

// Each token's successors: rows of so many for those tokens that have any.
class SuccessorTable {
 public:
  SuccessorTable(int vocab, int successors)
      : width_(static_cast<size_t>(successors)),
        rows_of_(static_cast<size_t>(vocab), kNoSuccessor) {}

  // Room for the successors of so many more tokens.
  void reserve(int tokens) {
    const size_t most = rows_of_.size() * width_;
    const size_t wanted = std::min(most, rows_.size() + static_cast<size_t>(tokens) * width_);
    if (wanted > rows_.capacity())
      rows_.reserve(std::min(most, std::max(wanted, 2 * rows_.size())));
  }
  // Empty for a token that has none, and for one outside the vocabulary.
  std::span<int32_t> find(int32_t token) {
    if (!knows(token)) return {};
    const int32_t row = rows_of_[static_cast<size_t>(token)];
    if (row == kNoSuccessor) return {};
    return std::span(rows_).subspan(static_cast<size_t>(row) * width_, width_);
  }
  // A new row if need be. Empty for a token outside the vocabulary, and where memory runs out.
  std::span<int32_t> row(int32_t token) {
    const std::span<int32_t> known = find(token);
    if (!known.empty() || !knows(token)) return known;
    const auto row = static_cast<int32_t>(rows_.size() / width_);
    try {
      rows_.resize(rows_.size() + width_, kNoSuccessor);
    } catch (const std::bad_alloc&) {
      return {};
    }
    rows_of_[static_cast<size_t>(token)] = row;
    return find(token);
  }
  bool knows(int32_t token) const {
    return token >= 0 && static_cast<size_t>(token) < rows_of_.size();
  }
  int64_t bytes() const {
    return static_cast<int64_t>((rows_of_.capacity() + rows_.capacity()) * sizeof(int32_t));
  }

 private:
  size_t width_;
  std::vector<int32_t> rows_of_;  // [token]: its row; kNoSuccessor: none
  std::vector<int32_t> rows_;     // [row][width], the latest first; kNoSuccessor: no more
};

class RecyclingDrafter final : public LearningDrafter {
 public:
  explicit RecyclingDrafter(const RecyclingOptions& options)
      : options_(options),
        shape_(StaticTree::grown(
            options.num_tokens,
            std::span(kRankProbability).first(static_cast<size_t>(options.successors)),
            options.num_tokens)),
        table_(options.vocab, options.successors),
        placed_(shape_.nodes().size()) {
    if (options.refresh == 0) return;
    needs_.top_tokens = options.successors;
    needs_.top_refusals = options.refresh - 1;
  }

  std::string_view method() const override { return kRecyclingMethod.name; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override {
    return learnt_.open(sequence, [&] {
      table_.reserve(sequence.max_tokens);
      return size_t{0};
    });
  }
  void close(SequenceId id) override { learnt_.close(id); }
  void forget() override { table_ = SuccessorTable(options_.vocab, options_.successors); }
  int64_t learnt_bytes() const override { return table_.bytes(); }

  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  void learn(size_t& from, std::span<const int32_t> tokens);
  void refresh(const DraftCommit& commit);
  void fill(DraftRequest& request);

  RecyclingOptions options_;
  DrafterNeeds needs_;
  StaticTree shape_;  // of all trees
  SuccessorTable table_;
  std::vector<int32_t>
      placed_;  // scratch: where the shape's nodes are in the tree; kNoSuccessor: not
  SequenceStates<size_t> learnt_{kRecyclingMethod.name};  // tokens whose successor is in the table
};

void RecyclingDrafter::learn(size_t& from, std::span<const int32_t> tokens) {
  for (; from + 1 < tokens.size(); ++from) {
    const int32_t next = tokens[from + 1];
    if (!table_.knows(next)) continue;
    const std::span<int32_t> successors = table_.row(tokens[from]);
    if (successors.empty()) continue;
    auto place = std::ranges::find(successors, next);
    if (place == successors.end()) --place;
    std::copy_backward(successors.begin(), place, place + 1);
    successors[0] = next;
  }
}

void RecyclingDrafter::refresh(const DraftCommit& commit) {
  const TokenTree& tree = *commit.tree;
  const auto set = [&](int32_t token, int32_t node) {
    const auto likeliest = commit.top_tokens_after(node);
    // None are known behind a row whose logits nobody wanted.
    if (likeliest[0] == kNoSuccessor) return;
    const std::span<int32_t> successors = table_.row(token);
    std::copy_n(likeliest.begin(), std::min(successors.size(), likeliest.size()),
                successors.begin());
  };
  for (int32_t node = 0; node < tree.size(); ++node) {
    set(tree.nodes[static_cast<size_t>(node)].token, node);
  }
  // Last, so that where a token stands more than once, what was accepted is what counts.
  set(commit.tokens[static_cast<size_t>(commit.first)], -1);
  for (const int32_t node : commit.accepted) {
    set(tree.nodes[static_cast<size_t>(node)].token, node);
  }
}

void RecyclingDrafter::fill(DraftRequest& request) {
  TokenTree& tree = *request.tree;
  if (request.tokens.empty()) return;
  for (size_t i = 0; i < placed_.size() && tree.size() < request.max_nodes; ++i) {
    const StaticTree::Node& node = shape_.nodes()[i];
    placed_[i] = kNoSuccessor;
    int32_t parent = -1, token = request.tokens.back();
    if (node.parent >= 0) {
      parent = placed_[static_cast<size_t>(node.parent)];
      if (parent == kNoSuccessor) continue;
      token = tree.nodes[static_cast<size_t>(parent)].token;
    }
    const std::span<const int32_t> successors = table_.find(token);
    if (successors.empty()) continue;
    const int32_t next = successors[static_cast<size_t>(node.rank)];
    if (next != kNoSuccessor) placed_[i] = tree.add(next, parent, nullptr, node.probability);
  }
}

Status RecyclingDrafter::propose(std::span<DraftRequest> requests) {
  AERIE_RETURN_IF_ERROR(learnt_.check(requests));
  for (DraftRequest& request : requests) {
    assert(request.tree != nullptr);
    learn(learnt_.use(request), request.tokens);
    fill(request);
  }
  return {};
}

Status RecyclingDrafter::observe(std::span<const DraftCommit> commits) {
  AERIE_RETURN_IF_ERROR(learnt_.check(commits));
  for (const DraftCommit& commit : commits) {
    learn(learnt_.use(commit), commit.tokens);
    if (options_.refresh > 0 && commit.tree != nullptr && !commit.top_tokens.empty())
      refresh(commit);
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<Drafter>> make_recycling_drafter(const RecyclingOptions& options) {
  const auto fail = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "recycling drafter: " + what);
  };
  constexpr int kRanks = std::size(kRankProbability);
  if (options.vocab < 1) return fail("vocab must be at least 1");
  if (options.num_tokens < 1 || options.num_tokens > kMaxTokens) {
    return fail("num_tokens must be 1 to " + std::to_string(kMaxTokens));
  }
  if (options.refresh < 0) return fail("refresh must not be negative");
  if (options.successors < 1 || options.successors > kRanks) {
    return fail("successors must be 1 to " + std::to_string(kRanks));
  }
  try {
    const int64_t full = int64_t{options.vocab} * (1 + 2 * options.successors) * 4;
    return make_tenant_drafter(std::max(kMostBytes, full),
                               [options] { return std::make_unique<RecyclingDrafter>(options); });
  } catch (const std::exception&) {
    return Status(StatusCode::kResourceExhausted,
                  "recycling drafter: no memory for the successors of " +
                      std::to_string(options.vocab) + " tokens");
  }
}

namespace {

constexpr std::array kRecyclingOptions = {
    option_key("num_successors", &RecyclingOptions::successors, 1, std::size(kRankProbability),
               "successors kept for each token"),
    option_key("refresh", &RecyclingOptions::refresh, 0, kMostOfMethods,
               "rows of a round, beside accepted ones, whose likeliest tokens are kept; 0: none"),
    tokens_key(&RecyclingOptions::num_tokens),
};
constexpr auto kRecyclingKeys = keys_of(kRecyclingOptions);

constexpr AutoUse::Number kRecyclingInAuto[] = {{"refresh", 0}, {kTokensKey, 32}};

Expected<std::unique_ptr<Drafter>> make_recycling(const MethodConfig& config, DraftHost& host) {
  RecyclingOptions options;
  read_options(config, kRecyclingOptions, options);
  options.vocab = host.target().vocab;
  return make_recycling_drafter(options);
}

}  // namespace

constinit const Method kRecyclingMethod = {
    .name = "recycling",
    .what = "each token's successors of late",
    .keys = kRecyclingKeys,
    .make = make_recycling,
    .in_auto = {4, kRecyclingInAuto},
};

}  // namespace aerie
