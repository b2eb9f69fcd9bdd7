#include "draft/lookup/lookahead.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <exception>
#include <span>
#include <string>

#include "base/philox.h"
#include "draft/draft_host.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"
#include "draft/tenant_drafter.h"
#include "draft/tree/tree_growth.h"

namespace aerie {

extern const Method kLookaheadMethod;

namespace {

// Of all tenants' pools together.
constexpr int64_t kMostPoolBytes = int64_t{64} << 20;

// The n-grams behind each first token, the latest first.
class NgramPool {
 public:
  NgramPool(int guesses, int length)
      : guesses_(static_cast<size_t>(guesses)),
        length_(static_cast<size_t>(length)),
        sets_(kSets),
        tokens_(kSets * guesses_ * length_) {}

  void clear() { std::ranges::fill(sets_, Set()); }
  int64_t bytes() const {
    return static_cast<int64_t>(sets_.size() * sizeof(Set) + tokens_.size() * sizeof(int32_t));
  }
  int size(int32_t key) const {
    const Set& set = sets_[index(key)];
    return set.key == key ? set.count : 0;
  }
  // Requires rank < size(key).
  std::span<const int32_t> entry(int32_t key, int rank) const {
    return std::span(tokens_).subspan(place(key, static_cast<size_t>(rank)), length_);
  }

  void add(int32_t key, std::span<const int32_t> rest) {
    Set& set = sets_[index(key)];
    if (set.key != key) set = {key, 0};
    const auto same = [&](int rank) { return std::ranges::equal(entry(key, rank), rest); };
    int rank = 0;
    while (rank < set.count && !same(rank)) ++rank;
    if (rank == set.count) {
      if (set.count < static_cast<int>(guesses_)) {
        ++set.count;
      } else {
        --rank;
      }
    }
    const auto first = tokens_.begin() + static_cast<std::ptrdiff_t>(place(key, 0));
    const auto end = first + static_cast<std::ptrdiff_t>(static_cast<size_t>(rank) * length_);
    std::copy_backward(first, end, end + static_cast<std::ptrdiff_t>(length_));
    std::ranges::copy(rest, first);
  }

 private:
  static constexpr size_t kSets = 8192;
  struct Set {
    int32_t key = -1;
    int32_t count = 0;
  };
  static size_t index(int32_t key) { return static_cast<uint32_t>(key) % kSets; }
  size_t place(int32_t key, size_t rank) const { return (index(key) * guesses_ + rank) * length_; }

  size_t guesses_, length_;
  std::vector<Set> sets_;
  std::vector<int32_t> tokens_;  // [sets][guesses][length]
};

struct Window {
  int rows = 0;  // so far; 0: not begun
  int columns = 0;
  std::vector<int32_t> tokens;  // [rows][columns]; the first is the root
  std::vector<int32_t> next;    // scratch: what comes after the last row
  PhiloxKey key{};
  uint32_t drawn = 0;
  bool chains = false;  // whether drafts may not branch

  int nodes() const { return rows * columns - 1; }
  int32_t& at(int row, int column) { return tokens[static_cast<size_t>(row * columns + column)]; }
  // The node of a place in a tree where the window's nodes begin at `first`; -1 is the root.
  int node(int first, int row, int column) const {
    return row == 0 && column == 0 ? -1 : first + row * columns + column - 1;
  }
  int parent(int first, int row, int column) const {
    return row == 0 ? node(first, 0, column - 1) : node(first, row - 1, column);
  }
  NodeRole role(int row) const { return row + 1 == rows ? NodeRole::kProbe : NodeRole::kWindow; }
};

// How often something came true, as if it had been tried before.
struct Rate {
  double judged = 0.0, stood = 0.0;

  void take(bool stands) {
    judged += 1.0;
    stood += stands ? 1.0 : 0.0;
  }
  double value() const { return stood / judged; }
};

// Never accepted: whoever cuts a tree to its likeliest nodes drops them first.
constexpr float kWindowProbability = 1e-6f;

class LookaheadDrafter final : public LearningDrafter {
 public:
  explicit LookaheadDrafter(const LookaheadOptions& options)
      : options_(options),
        pool_(options.guesses, options.ngram - 1),
        rest_(static_cast<size_t>(options.ngram - 1)) {
    needs_.top_tokens = 1;
    ranks_.resize(static_cast<size_t>(options.guesses));
    LookaheadDrafter::forget();
    const int most = options.guesses * (options.ngram - 1);
    editor_.reserve(most + options.ngram);
    chain_.nodes.reserve(static_cast<size_t>(options.ngram));
    merged_.nodes.reserve(static_cast<size_t>(most));
  }

  std::string_view method() const override { return kLookaheadMethod.name; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override { windows_.close(id); }
  void forget() override;
  int64_t learnt_bytes() const override { return pool_.bytes(); }
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  bool ends(int32_t token) const {
    return std::ranges::find(options_.end_tokens, token) != options_.end_tokens.end();
  }
  int32_t draw(Window& window, std::span<const int32_t> text) const;
  void begin(Window& window, std::span<const int32_t> text) const;
  void add_drafts(DraftRequest& request, bool chains, int max_nodes);
  static void add_window(Window& window, TokenTree& tree);
  static int find_window(Window& window, const TokenTree& tree);
  void judge(const DraftCommit& commit);
  void advance(Window& window, int first, const DraftCommit& commit);

  LookaheadOptions options_;
  DrafterNeeds needs_;
  NgramPool pool_;
  SequenceStates<Window> windows_{kLookaheadMethod.name};
  std::vector<Rate> ranks_;  // the first token of an n-gram, by how many are later
  Rate further_;             // a further token, once those before it stand
  // Scratch.
  std::vector<int32_t> rest_;
  TreeEditor editor_;
  TokenTree chain_, merged_;
};

void LookaheadDrafter::forget() {
  pool_.clear();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank] = {10.0, 3.0 / (1.0 + static_cast<double>(rank))};
  }
  further_ = {10.0, 6.0};
}

int first_columns(const LookaheadOptions& options) {
  return options.window + options.ngram - 2;
}

// Of the window at its largest.
int window_nodes(const LookaheadOptions& options) {
  int most = 0;
  for (int rows = 1; rows < options.ngram; ++rows) {
    most = std::max(most, rows * (first_columns(options) - rows + 1) - 1);
  }
  return most;
}

Status LookaheadDrafter::open(const DraftSequence& sequence) {
  return windows_.open(sequence, [&] {
    const auto columns = static_cast<size_t>(first_columns(options_));
    Window window;
    window.tokens.resize(static_cast<size_t>(options_.ngram - 1) * columns);
    window.next.reserve(columns);
    const uint64_t seed = sequence.sampling.seed;
    window.key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    window.chains = !sequence.trees;
    return window;
  });
}

// Any token of the text that does not end it, if a few tries find one.
int32_t LookaheadDrafter::draw(Window& window, std::span<const int32_t> text) const {
  int32_t token = 0;
  for (int tries = 0; tries < 8; ++tries) {
    token = text[philox4x32({window.drawn++, 0, 0, 0}, window.key)[0] % text.size()];
    if (!ends(token)) break;
  }
  return token;
}

void LookaheadDrafter::begin(Window& window, std::span<const int32_t> text) const {
  window.rows = 1;
  window.columns = first_columns(options_);
  for (int i = 0; i < window.columns; ++i) window.at(0, i) = draw(window, text);
}

void LookaheadDrafter::add_drafts(DraftRequest& request, bool chains, int max_nodes) {
  const int32_t root = request.tokens.back();
  const int count = chains ? std::min(1, pool_.size(root)) : pool_.size(root);
  merged_.clear();
  for (int rank = 0; rank < count; ++rank) {
    chain_.clear();
    double probability = ranks_[static_cast<size_t>(rank)].value();
    for (const int32_t token : pool_.entry(root, rank)) {
      if (chain_.size() >= request.max_depth) break;
      chain_.add(token, chain_.size() - 1, nullptr, static_cast<float>(probability));
      probability *= further_.value();
    }
    editor_.merge(merged_, chain_);
  }
  if (merged_.size() > max_nodes) editor_.keep_best(merged_, {.max_nodes = max_nodes});
  request.tree->nodes.assign(merged_.nodes.begin(), merged_.nodes.end());
}

void LookaheadDrafter::add_window(Window& window, TokenTree& tree) {
  const int first = tree.size();
  for (int row = 0; row < window.rows; ++row) {
    for (int column = row == 0 ? 1 : 0; column < window.columns; ++column) {
      tree.add(window.at(row, column), window.parent(first, row, column), nullptr,
               kWindowProbability);
      tree.nodes.back().role = window.role(row);
    }
  }
}

Status LookaheadDrafter::propose(std::span<DraftRequest> requests) {
  AERIE_RETURN_IF_ERROR(windows_.check(requests));
  for (DraftRequest& request : requests) {
    assert(request.tree != nullptr);
    Window& window = windows_.use(request);
    if (request.tokens.empty()) continue;
    if (window.rows == 0) begin(window, request.tokens);
    window.at(0, 0) = request.tokens.back();
    const int budget = std::min(options_.num_tokens, request.max_nodes);
    const bool fits = window.nodes() <= budget;
    add_drafts(request, window.chains, fits ? budget - window.nodes() : budget);
    if (fits) add_window(window, *request.tree);
  }
  return {};
}

// Where the window's nodes begin in the tree that was verified; -1: not all of them are there.
int LookaheadDrafter::find_window(Window& window, const TokenTree& tree) {
  const auto is_auxiliary = [](const TokenTree::Node& node) {
    return node.role != NodeRole::kDraft;
  };
  const auto found = std::ranges::find_if(tree.nodes, is_auxiliary);
  const int first = static_cast<int>(found - tree.nodes.begin());
  if (window.rows == 0 || first + window.nodes() > tree.size()) return -1;
  for (int row = 0; row < window.rows; ++row) {
    for (int column = row == 0 ? 1 : 0; column < window.columns; ++column) {
      const auto at = static_cast<size_t>(window.node(first, row, column));
      const TokenTree::Node& node = tree.nodes[at];
      if (node.token != window.at(row, column) || node.role != window.role(row) ||
          node.parent != window.parent(first, row, column)) {
        return -1;
      }
    }
  }
  return first;
}

// Compares the pool's n-grams with what came.
void LookaheadDrafter::judge(const DraftCommit& commit) {
  const auto came = commit.tokens.subspan(static_cast<size_t>(commit.first) + 1);
  const int32_t root = commit.tokens[static_cast<size_t>(commit.first)];
  std::ptrdiff_t most = 0, length = 0;
  for (int rank = 0; rank < pool_.size(root); ++rank) {
    const auto entry = pool_.entry(root, rank);
    const auto stands = std::ranges::mismatch(entry, came).in1 - entry.begin();
    ranks_[static_cast<size_t>(rank)].take(stands > 0);
    most = std::max(most, stands);
    length = static_cast<std::ptrdiff_t>(std::min(entry.size(), came.size()));
    if (most > 0) break;  // the later ones would have been siblings of what stands
  }
  for (std::ptrdiff_t i = 1; i < most; ++i) further_.take(true);
  if (most > 0 && most < length) further_.take(false);
}

void LookaheadDrafter::advance(Window& window, int first, const DraftCommit& commit) {
  window.next.clear();
  for (int i = 0; i < window.columns; ++i) {
    int32_t token = commit.top_tokens_after(window.node(first, window.rows - 1, i))[0];
    if (ends(token)) token = draw(window, commit.tokens);
    window.next.push_back(token);
  }
  const bool full = window.rows == options_.ngram - 1;
  for (int i = 0; full && i < window.columns; ++i) {
    for (int row = 1; row < window.rows; ++row) {
      rest_[static_cast<size_t>(row - 1)] = window.at(row, i);
    }
    rest_.back() = window.next[static_cast<size_t>(i)];
    pool_.add(window.at(0, i), rest_);
  }
  const int columns = window.columns;
  if (full) {
    std::shift_left(window.tokens.begin(), window.tokens.end(), columns);
    --window.rows;
  } else {
    // The root moves on by one, and with it all columns.
    --window.columns;
    for (int row = 0; row < window.rows; ++row) {
      const auto from = window.tokens.begin() + std::ptrdiff_t{row} * columns + 1;
      std::copy(from, from + columns - 1,
                window.tokens.begin() + std::ptrdiff_t{row} * (columns - 1));
    }
  }
  const int skip = full ? 0 : 1;
  ++window.rows;
  for (int i = 0; i < window.columns; ++i) {
    window.at(window.rows - 1, i) = window.next[static_cast<size_t>(i + skip)];
  }
}

Status LookaheadDrafter::observe(std::span<const DraftCommit> commits) {
  AERIE_RETURN_IF_ERROR(windows_.check(commits));
  for (const DraftCommit& commit : commits) {
    Window& window = windows_.use(commit);
    if (commit.tree == nullptr || commit.top_tokens.empty()) continue;
    judge(commit);
    const int first = find_window(window, *commit.tree);
    if (first >= 0) advance(window, first, commit);
  }
  return {};
}

}  // namespace

int lookahead_nodes(const LookaheadOptions& options) {
  return window_nodes(options) + options.guesses * (options.ngram - 1);
}

Expected<std::unique_ptr<Drafter>> make_lookahead_drafter(const LookaheadOptions& options) {
  const auto fail = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "lookahead drafter: " + what);
  };
  if (options.window < 1 || options.window > 64) return fail("window must be 1 to 64");
  if (options.ngram < 2 || options.ngram > 16) return fail("ngram must be 2 to 16");
  if (options.guesses < 1 || options.guesses > 64) return fail("guesses must be 1 to 64");
  if (const int window = window_nodes(options); options.num_tokens < window) {
    return fail("num_tokens is " + std::to_string(options.num_tokens) + ", and the window takes " +
                std::to_string(window) + " nodes: make it larger, or window and ngram smaller");
  }
  try {
    return make_tenant_drafter(kMostPoolBytes,
                               [options] { return std::make_unique<LookaheadDrafter>(options); });
  } catch (const std::exception&) {
    return Status(StatusCode::kResourceExhausted,
                  "lookahead drafter: no memory for its pool of n-grams");
  }
}

namespace {

// As the paper calls them: W, N and G.
constexpr std::array kLookaheadOptions = {
    option_key("window", &LookaheadOptions::window, 1, kMostOfMethods, "W, columns of the window"),
    option_key("ngram", &LookaheadOptions::ngram, 2, 16, "N, tokens of an n-gram"),
    option_key("guesses", &LookaheadOptions::guesses, 1, kMostOfMethods,
               "G, n-grams kept for a first token"),
    tokens_key(&LookaheadOptions::num_tokens, 256,
               "the most tokens in a round, the window's included"),
};
constexpr auto kLookaheadKeys = keys_of(kLookaheadOptions);

Expected<std::unique_ptr<Drafter>> make_lookahead(const MethodConfig& config, DraftHost& host) {
  LookaheadOptions options;
  read_options(config, kLookaheadOptions, options);
  const Tokenizer& tokenizer = *host.target().tokenizer;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_end(id)) options.end_tokens.push_back(id);
  }
  return make_lookahead_drafter(options);
}

}  // namespace

constinit const Method kLookaheadMethod = {
    .name = "lookahead",
    .what = "what the model guessed ahead of the text",
    .keys = kLookaheadKeys,
    .make = make_lookahead,
};

}  // namespace aerie
