#include "draft/heads/feature_network.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "draft/heads/rows_ahead.h"
#include "draft/network/node_rows.h"
#include "kv/chain_rows.h"

namespace aerie {
namespace {

// Positions that a draft can reach beyond the longest sequence: mask rows at its end.
constexpr int kBeyond = kMostHeadDepth;

class FeatureNetwork final : public DraftNetwork {
 public:
  FeatureNetwork(std::unique_ptr<FeatureHead> head, KvCache cache,
                 const FeatureNetworkOptions& options);
  Status attach();

  const DrafterNeeds& needs() const override { return needs_; }
  int vocab() const override { return head_->vocab(); }
  std::span<const int32_t> target_ids() const override { return head_->target_ids(); }
  int depths() const override { return depths_; }
  bool follows() const override { return head_->follows(); }
  float follow(const DraftOutputs& outputs, int row, std::span<const int32_t> before,
               std::span<float> logits) override {
    const size_t first = static_cast<size_t>(row) + 1 - before.size();
    return head_->follow(before, outputs.hidden.subspan(first * hidden(), before.size() * hidden()),
                         logits);
  }
  Status open(int place, const DraftSequence& sequence) override;
  void close(int place) override;
  int reusable(std::span<const int32_t> tokens, std::string_view tenant) const override;
  void keep(int place, std::span<const int32_t> tokens) override;
  bool will_share(int place) const override {
    return !head_->remembers() && (!reads_all_ || (place >= 0 && has_all(at(place))));
  }
  void begin(DraftsAhead* ahead) override;
  int start(int place, std::span<const int32_t> tokens, int run, int depth) override;
  bool runs_ahead() const override { return most_levels_ > 0; }
  void expect_chain(int place, int rows) override { at(place).expected = rows; }
  int root_rows(int place) const override {
    return at(place).waiting + head_->mask_rows() + block_rows();
  }
  void add_root(int place) override;
  void add_node(int place, const LevelTree& tree, int32_t node) override;
  DraftOutputs run() override;
  Status status() const override {
    return status_.ok() && source_ != nullptr ? source_->status() : status_;
  }
  void observe(int place, const DraftCommit& commit, std::span<const int32_t> path) override;
  bool in_step(int place, const DraftCommit& commit) const override;

 private:
  struct State {
    SequenceId id = 0;
    std::string tenant;
    KvCache::Id cache = -1;  // what is committed there has been read
    int first = 0;           // the position that the cache begins with
    bool lost = false;       // a commit was missed: there are no drafts until it begins anew
    // Features of the `waiting` positions behind what was read.
    int waiting = 0;
    std::vector<float> features;      // [kHeadSharedRows][feature_width]
    std::span<const int32_t> tokens;  // of this round
    NodeRows nodes;
    std::vector<float> hidden;  // [1 + nodes run][hidden]: of the root's row, then of nodes
    int expected = 0;           // rows of a chain; 0: it will be none
  };

  State& at(int place) { return states_[static_cast<size_t>(place)]; }
  const State& at(int place) const { return states_[static_cast<size_t>(place)]; }
  size_t width() const { return static_cast<size_t>(head_->feature_width()); }
  size_t hidden() const { return static_cast<size_t>(head_->hidden()); }
  // The position behind what was read.
  int read_to(const State& state) const { return state.first + cache_.committed(state.cache); }
  static bool has_all(const State& state) { return !state.lost && state.first == 0; }
  // Of a block; 0: there are none.
  int block_rows() const {
    const int depths = head_->block_depths();
    return depths > 0 && !head_->root_drafts() ? depths + 1 : depths;
  }
  template <typename FeatureAt>
  void add_committed(HeadPass& pass, State& state, std::span<const int32_t> tokens, int rows,
                     const FeatureAt& feature_at);
  void add_logits(State& state, int rows);
  void add_masks(const State& state, int entry);
  void add_block(const State& state);
  void lose(State& state);
  void begin_anew(State& state, const DraftCommit& commit);
  void read(State& state, const DraftCommit& commit);
  void keep(State& state, const DraftCommit& commit, int from);
  HeadOutputs forward(HeadPass& pass);
  HeadOutputs pass();
  void keep_hidden(const HeadOutputs& outputs);
  int levels_of_pass() const;
  bool are_chains() const;
  void add_levels();
  void tell(const FoundTokens& found, std::span<const int32_t> level_rows);
  HeadOutputs rows_ahead(int first);
  DraftOutputs as_outputs(const HeadOutputs& outputs, int rows) const;

  std::unique_ptr<FeatureHead> head_;
  KvCache cache_;
  FeatureNetworkOptions options_;
  int depths_;
  bool reads_all_;  // not only the last position
  DrafterNeeds needs_;
  std::vector<State> states_;
  Status status_;  // of the first pass that failed: the device is lost then
  LogitSource* source_ = nullptr;
  int most_levels_ = 0;  // that can follow a pass
  bool tells_ = false;   // of what is found (HeadPass::while_found)
  // Of the draft under way.
  DraftsAhead* told_ = nullptr;
  size_t started_ = 0;      // sequences
  std::vector<int> roots_;  // places of them in the pass
  RowsAhead ahead_;
  // Scratch.
  std::vector<int32_t> chain_slots_;
  std::vector<int32_t> chain_rows_;
  std::vector<DraftsAhead::Chain> chains_;
  HeadPass pass_;
  HeadPass reading_;             // committed positions ahead of a pass of blocks
  std::vector<float*> keepers_;  // for rows that want logits: where their hidden state goes
  std::vector<int32_t> above_;   // what rows of the pass point at
};

FeatureNetwork::FeatureNetwork(std::unique_ptr<FeatureHead> head, KvCache cache,
                               const FeatureNetworkOptions& options)
    : head_(std::move(head)),
      cache_(std::move(cache)),
      options_(options),
      depths_(std::max({head_->outputs_of_root(), head_->mask_rows() + 1, head_->block_depths()})),
      reads_all_(head_->cache_config().layers > 0) {
  const std::span<const int32_t> taps = head_->tap_layers();
  needs_.tap_layers.assign(taps.begin(), taps.end());
  states_.resize(static_cast<size_t>(options.drafter.max_sequences));
  const auto wanted = static_cast<size_t>(options.drafter.max_logits);
  for (HeadPass* pass : {&pass_, &reading_}) {
    pass->reserve(options.drafter.max_rows, options.drafter.max_sequences);
  }
  keepers_.reserve(wanted);
  above_.reserve(wanted * static_cast<size_t>(draft_depth(options.drafter)));
}

Status FeatureNetwork::attach() {
  AERIE_RETURN_IF_ERROR(head_->attach(cache_));
  const int levels = depths_ > 1 || !options_.ahead ? 0 : levels_behind(options_.drafter);
  if (levels > 0 && head_->allow_levels(levels).ok()) most_levels_ = levels;
  // A chain of one node has no levels.
  const bool are_chains =
      drafts_chains(options_.drafter) && levels_behind(options_.drafter) == most_levels_;
  tells_ = depths_ == 1 && options_.tells && are_chains && head_->allow_found().ok();
  const size_t places = states_.size();
  chain_rows_.reserve(places * static_cast<size_t>(most_levels_ + 1));
  chains_.reserve(places);
  ahead_.reserve(static_cast<size_t>(most_levels_), places);
  roots_.reserve(places);
  chain_slots_.reserve(places * static_cast<size_t>(most_levels_));
  return {};
}

// A row is of two tokens: that of its position, which made its features, and the one behind it.
std::vector<PrefixKey> keys_of(std::span<const int32_t> tokens) {
  std::vector<PrefixKey> keys;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    keys.push_back(PrefixKey{static_cast<uint32_t>(tokens[i])} << 32 |
                   static_cast<uint32_t>(tokens[i + 1]));
  }
  return keys;
}

int FeatureNetwork::reusable(std::span<const int32_t> tokens, std::string_view tenant) const {
  if (head_->remembers() || tokens.empty()) return 0;
  return reads_all_ ? cache_.kept(keys_of(tokens), tenant) : static_cast<int>(tokens.size()) - 1;
}

void FeatureNetwork::keep(int place, std::span<const int32_t> tokens) {
  const State& state = at(place);
  if (!has_all(state) || head_->remembers() || !reads_all_) return;
  const auto read = static_cast<size_t>(cache_.committed(state.cache));
  cache_.keep(state.cache, keys_of(tokens.first(read + 1)), true, state.tenant);
}

Status FeatureNetwork::open(int place, const DraftSequence& sequence) {
  State state;
  state.id = sequence.id;
  state.tenant = sequence.tenant;
  AERIE_ASSIGN_OR_RETURN(state.cache, cache_.open());
  const NetworkDrafterOptions& drafter = options_.drafter;
  const auto run = static_cast<size_t>(depths_ > 1 ? 0 : most_nodes_run(drafter));
  state.features.resize(kHeadSharedRows * width());
  state.hidden.resize((1 + run) * hidden());
  state.nodes.reserve(run * static_cast<size_t>(drafter.top_k + 1));
  if (sequence.reused > 0) {
    const auto reused = static_cast<size_t>(sequence.reused);
    if (reads_all_) {
      const auto keys = keys_of(sequence.tokens.first(reused + 1));
      if (cache_.adopt(state.cache, keys, sequence.tenant) < sequence.reused) lose(state);
    } else if (cache_.reserve(state.cache, sequence.reused).ok()) {
      cache_.commit_first(state.cache, sequence.reused);
    } else {
      lose(state);
    }
  }
  at(place) = std::move(state);
  return {};
}

void FeatureNetwork::close(int place) {
  cache_.close(at(place).cache);
  at(place) = State();
}

// Adds rows for the next positions. They are settled: the caller commits them at once.
template <typename FeatureAt>
void FeatureNetwork::add_committed(HeadPass& pass, State& state, std::span<const int32_t> tokens,
                                   int rows, const FeatureAt& feature_at) {
  for (BatchRow& row : add_chain(pass.batch, cache_, state.cache, rows)) {
    const int position = state.first + row.position;
    row.token = tokens[static_cast<size_t>(position) + 1];
    pass.features.push_back(feature_at(position));
  }
}

// Of the last of the rows that were added for a draft's root.
void FeatureNetwork::add_logits(State& state, int rows) {
  pass_.batch.rows.back().wants_logits = true;
  keepers_.push_back(state.hidden.data());
  add_masks(state, rows);
}

// Behind what is committed.
void FeatureNetwork::add_block(const State& state) {
  pass_.block = true;
  bool is_root = true;
  for (BatchRow& row : add_chain(pass_.batch, cache_, state.cache, block_rows())) {
    row.token = is_root ? state.tokens.back() : head_->mask_token();
    row.wants_logits = !is_root || head_->root_drafts();
    pass_.features.push_back(nullptr);
    if (row.wants_logits) keepers_.push_back(nullptr);
    is_root = false;
  }
}

// Behind the row that was added last, from this entry of the cache on.
void FeatureNetwork::add_masks(const State& state, int entry) {
  for (int i = 0; i < head_->mask_rows(); ++i) {
    BatchRow row = pass_.batch.rows.back();
    ++row.position;
    row.token = head_->mask_token();
    row.slot = cache_.slot(state.cache, entry + i);
    row.parent = static_cast<int32_t>(pass_.batch.rows.size()) - 1;
    pass_.batch.rows.push_back(row);
    pass_.features.push_back(head_->mask_features());
    keepers_.push_back(nullptr);
  }
}

void FeatureNetwork::begin(DraftsAhead* ahead) {
  told_ = ahead;
  ahead_.clear();
  roots_.clear();
  started_ = 0;
}

int FeatureNetwork::start(int place, std::span<const int32_t> tokens, int run, int depth) {
  State& state = at(place);
  const auto length = static_cast<int>(tokens.size());
  if (state.lost || state.waiting == 0) return 0;
  if (read_to(state) + state.waiting != length - 1) return 0;
  const bool is_block = head_->block_depths() > 0;
  const int behind = is_block ? block_rows() : depths_ > 1 ? head_->mask_rows() : run;
  if (!cache_.reserve(state.cache, state.waiting + behind).ok()) return 0;
  state.tokens = tokens;
  state.nodes.start();
  state.expected = 0;
  ++started_;
  return std::min({depth, head_->max_depth(), depths_ > 1 ? depths_ : depth});
}

void FeatureNetwork::add_root(int place) {
  State& state = at(place);
  const int from = read_to(state);
  const auto waiting = [&](int position) {
    return state.features.data() + static_cast<size_t>(position - from) * width();
  };
  const bool is_block = head_->block_depths() > 0;
  add_committed(is_block ? reading_ : pass_, state, state.tokens, state.waiting, waiting);
  if (!is_block) add_logits(state, state.waiting);
  cache_.commit_first(state.cache, state.waiting);
  if (is_block) add_block(state);
  state.waiting = 0;
  if (most_levels_ > 0 || tells_) roots_.push_back(place);
}

void FeatureNetwork::add_node(int place, const LevelTree& tree, int32_t node) {
  State& state = at(place);
  const LevelTree::Node& info = tree.nodes()[static_cast<size_t>(node)];
  assert(pass_.depth == 0 || pass_.depth == info.depth);
  pass_.depth = info.depth;
  state.nodes.add_row(cache_, state.cache, tree, node, info.token, pass_.batch, above_);
  const auto hidden_of = [&](int32_t of) {  // -1: the root
    const int32_t entry = of < 0 ? 0 : 1 + state.nodes.entry(of);
    return state.hidden.data() + static_cast<size_t>(entry) * hidden();
  };
  pass_.features.push_back(hidden_of(info.parent));
  keepers_.push_back(hidden_of(node));
  ahead_.ask(place, node, info.parent, info.token, info.depth);
}

// How many follow the roots of the pass. The weights are read for each, so they are worth it only
// where no draft goes another way.
int FeatureNetwork::levels_of_pass() const {
  if (roots_.empty() || roots_.size() != started_ || roots_.size() != keepers_.size()) return 0;
  int levels = 0;
  for (const int place : roots_) {
    if (at(place).expected == 0) return 0;
    levels = std::max(levels, at(place).expected - 1);
  }
  return std::min(levels, most_levels_);
}

// Whether all drafts are chains, which end with the pass.
bool FeatureNetwork::are_chains() const {
  if (roots_.empty() || roots_.size() != started_ || roots_.size() != keepers_.size()) return false;
  return std::ranges::all_of(roots_, [&](int place) {
    return at(place).expected > 0 && at(place).expected <= most_levels_ + 1;
  });
}

// Chains behind the roots: the rows of their nodes, each behind its parent's.
void FeatureNetwork::add_levels() {
  const int levels = levels_of_pass();
  if (levels <= 0) return;
  chain_slots_.clear();
  for (const int place : roots_) {
    for (int i = 0; i < levels; ++i) {
      // What is reserved may end before the longest chain does.
      const bool is_there = i + 1 < at(place).expected;
      chain_slots_.push_back(is_there ? cache_.slot(at(place).cache, i) : -1);
    }
  }
  ahead_.places(0) = roots_;
  for (int depth = 1; depth <= levels; ++depth) {
    HeadLevel& level = pass_.add_level();
    std::vector<int>& places = ahead_.places(static_cast<size_t>(depth));
    places.clear();
    int32_t above = 0;  // among the rows of the level before
    for (size_t i = 0; i < roots_.size(); ++i) {
      const State& state = at(roots_[i]);
      if (state.expected < depth) continue;
      if (state.expected > depth) {
        BatchRow row;
        row.sequence = static_cast<int32_t>(level.batch.sequences.size());
        row.position = cache_.committed(state.cache) + depth - 1;
        const auto slots =
            std::span<const int32_t>(chain_slots_)
                .subspan(i * static_cast<size_t>(levels), static_cast<size_t>(depth));
        row.slot = slots.back();
        row.above = slots.first(slots.size() - 1);
        row.wants_logits = true;
        level.batch.sequences.push_back(
            {cache_.pages(state.cache), cache_.committed(state.cache), state.cache});
        level.batch.rows.push_back(row);
        level.behind.push_back(above);
        places.push_back(roots_[i]);
      }
      ++above;
    }
  }
}

// Once the levels are there: whoever waits for chains hears where their tokens will be.
void FeatureNetwork::tell(const FoundTokens& found, std::span<const int32_t> level_rows) {
  chain_rows_.clear();
  chains_.clear();
  for (size_t i = 0; i < roots_.size(); ++i) {
    const State& state = at(roots_[i]);
    const size_t first = chain_rows_.size();
    chain_rows_.push_back(static_cast<int32_t>(i));
    for (int depth = 1; depth < state.expected; ++depth) {
      const auto level = static_cast<size_t>(depth);
      const std::vector<int>& places = ahead_.places(level);
      const auto row = std::ranges::find(places, roots_[i]) - places.begin();
      chain_rows_.push_back(level_rows[level - 1] + static_cast<int32_t>(row));
    }
    chains_.push_back({state.id, std::span(chain_rows_).subspan(first)});
  }
  told_->expect(chains_, found);
}

// The rows that the pass would compute, which are there.
HeadOutputs FeatureNetwork::rows_ahead(int first) {
  const HeadOutputs outputs = ahead_.rows(first, static_cast<int>(keepers_.size()));
  keep_hidden(outputs);
  pass_.clear();
  return outputs;
}

HeadOutputs FeatureNetwork::forward(HeadPass& pass) {
  HeadOutputs outputs = head_->forward(pass, cache_);
  source_ = outputs.source;
  if (!outputs.status.ok() && status_.ok()) status_ = outputs.status;
  pass.clear();
  return outputs;
}

// Where rows below look for it.
void FeatureNetwork::keep_hidden(const HeadOutputs& outputs) {
  for (size_t i = 0; i < keepers_.size() && hidden() > 0 && outputs.status.ok(); ++i) {
    if (keepers_[i] == nullptr) continue;
    std::memcpy(keepers_[i], outputs.hidden.data() + i * hidden(), hidden() * sizeof(float));
  }
  keepers_.clear();
  above_.clear();
}

HeadOutputs FeatureNetwork::pass() {
  const HeadOutputs outputs = forward(pass_);
  keep_hidden(outputs);
  return outputs;
}

DraftOutputs FeatureNetwork::run() {
  const auto wanted = static_cast<int>(keepers_.size()) * head_->outputs_of_root();
  if (const int first = ahead_.take(); first >= 0) return as_outputs(rows_ahead(first), wanted);
  ahead_.clear();
  add_levels();
  if (tells_ && told_ != nullptr && are_chains()) {
    pass_.while_found = [this](const FoundTokens& found, std::span<const int32_t> level_rows) {
      tell(found, level_rows);
    };
  }
  const Status read = reading_.batch.rows.empty() ? Status() : forward(reading_).status;
  const HeadOutputs outputs = pass();
  roots_.clear();
  if (!read.ok() || !outputs.status.ok()) return {};
  ahead_.start(outputs, head_->target_ids());
  if (ahead_.is_there()) return as_outputs(ahead_.rows(0, wanted), wanted);
  return as_outputs(outputs, wanted);
}

DraftOutputs FeatureNetwork::as_outputs(const HeadOutputs& outputs, int rows) const {
  return {outputs.logits, head_->vocab(), outputs.hidden, rows, outputs.source, outputs.top};
}

// Keeps what is committed from position `from` on.
void FeatureNetwork::keep(State& state, const DraftCommit& commit, int from) {
  const size_t count = static_cast<size_t>(commit.first + commit.rows - from) * width();
  std::memcpy(state.features.data() + static_cast<size_t>(state.waiting) * width(),
              commit.taps.data() + static_cast<size_t>(from - commit.first) * width(),
              count * sizeof(float));
  state.waiting += commit.first + commit.rows - from;
}

// Reads all that is there but for the last position, which is kept: what follows it may not be
// known yet, and its row is the one that the next draft begins with.
void FeatureNetwork::read(State& state, const DraftCommit& commit) {
  const int last = commit.first + commit.rows - 1;
  const int begin = read_to(state);
  const auto feature_at = [&](int position) {
    return position < commit.first
               ? state.features.data() + static_cast<size_t>(position - begin) * width()
               : commit.taps.data() + static_cast<size_t>(position - commit.first) * width();
  };
  while (read_to(state) < last) {
    const int rows = std::min(last - read_to(state), options_.drafter.max_rows);
    if (!cache_.reserve(state.cache, rows).ok()) return lose(state);
    if (reads_all_) add_committed(pass_, state, commit.tokens, rows, feature_at);
    cache_.commit_first(state.cache, rows);
    if (reads_all_) pass();
  }
  state.waiting = 0;
  keep(state, commit, last);
}

// What was read of it is of no use any more, and others may have the room.
void FeatureNetwork::lose(State& state) {
  cache_.close(state.cache);
  state.cache = *cache_.open();  // there is one: it was closed just now
  state.lost = true;
  state.waiting = 0;
}

// Where there is room, as if the text began with the commit: its drafts do not know what came
// before, and are the better the more comes.
void FeatureNetwork::begin_anew(State& state, const DraftCommit& commit) {
  if (!cache_.reserve(state.cache, commit.rows + kernels::kPagePositions).ok()) return;
  state.first = commit.first;
  state.lost = false;
}

void FeatureNetwork::observe(int place, const DraftCommit& commit,
                             std::span<const int32_t> /*path*/) {
  State& state = at(place);
  if (commit.rows == 0) return;
  const bool has_taps = commit.taps.size() == static_cast<size_t>(commit.rows) * width();
  if (!state.lost && (!has_taps || commit.first != read_to(state) + state.waiting)) lose(state);
  if (state.lost && has_taps) begin_anew(state, commit);
  if (state.lost) return;
  if (reads_all_ && state.waiting + commit.rows <= kHeadSharedRows) {
    keep(state, commit, commit.first);
  } else {
    read(state, commit);
  }
}

bool FeatureNetwork::in_step(int place, const DraftCommit& commit) const {
  const State& state = at(place);
  return state.lost ||
         (state.waiting > 0 && read_to(state) + state.waiting == commit.first + commit.rows);
}

}  // namespace

int levels_behind(const NetworkDrafterOptions& drafter) {
  return drafter.top_k == 1 && drafter.shape == nullptr ? draft_depth(drafter) - 1 : 0;
}

KvCache::Creation feature_cache(const FeatureHead& head, const FeatureNetworkOptions& options) {
  const NetworkDrafterOptions& drafter = options.drafter;
  KvCache::Creation creation;
  creation.positions = draft_cache_positions(
      drafter, int64_t{options.max_positions} + kBeyond + most_nodes_run(drafter));
  creation.sequences = drafter.max_sequences;
  creation.type = options.cache_type;
  creation.windows = {0, 0, 0};
  creation.planes = head.cache_planes();
  return creation;
}

Expected<std::unique_ptr<DraftNetwork>> make_feature_network(std::unique_ptr<FeatureHead> head,
                                                             const FeatureNetworkOptions& options) {
  const NetworkDrafterOptions& drafter = options.drafter;
  AERIE_RETURN_IF_ERROR(check(drafter));
  assert(drafter.max_rows >= kHeadSharedRows + head->mask_rows() + head->block_depths() + 1);
  AERIE_ASSIGN_OR_RETURN(KvCache cache,
                         KvCache::create(head->cache_config(), feature_cache(*head, options)));
  auto network = std::make_unique<FeatureNetwork>(std::move(head), std::move(cache), options);
  AERIE_RETURN_IF_ERROR(network->attach());
  return std::unique_ptr<DraftNetwork>(std::move(network));
}

}  // namespace aerie
