#include "draft/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "draft/draft_model_state.h"
#include "kv/kv_cache.h"
#include "sampling/inverse_cdf.h"
#include "sampling/sampler.h"

namespace aerie {
namespace {

// Rows of one sequence that may share a pass with other sequences'; longer arrears are made up
// first.
constexpr int kSharedRows = 4;

// Tokens beyond those that can become children, to see how far ahead the children are.
constexpr int kRunnersUp = 3;

// How much closer the scores of two tokens have to be than their log-odds of being the target's
// choice, noise included: with the target's noise in both, what remains unknown is only by how much
// the draft model's logits are off.
constexpr double kNoiseSharpness = 2.0;

int depth_of(const DraftModelOptions& options) {
  const int steps = options.num_steps > 0 ? options.num_steps : options.num_tokens;
  return std::min(steps, options.num_tokens);
}

LevelLimits limits_of(const DraftModelOptions& options) {
  LevelLimits limits;
  limits.max_nodes = options.num_tokens;
  limits.max_depth = depth_of(options);
  limits.top_k = options.top_k;
  limits.top_p = options.top_p;
  limits.min_probability = options.min_probability;
  limits.shape = options.shape;
  return limits;
}

// Nodes of one draft that are run, at most.
int most_run(const DraftModelOptions& options) {
  if (options.shape != nullptr) return options.shape->size();
  return std::max(options.num_tokens, (depth_of(options) - 1) * options.top_k);
}

// Of drafts whose shape must not depend on what is drawn.
StaticTree drawn_shape(const DraftModelOptions& options) {
  if (options.shape != nullptr) return *options.shape;
  const auto ranks = static_cast<size_t>(options.top_k);
  return StaticTree::grown(options.num_tokens, usual_rank_probability().first(ranks),
                           depth_of(options));
}

using State = DraftModelState;

class DraftModel final : public Drafter {
 public:
  DraftModel(std::unique_ptr<Model> model, KvCache cache, const DraftModelOptions& options);

  std::string_view method() const override { return options_.method; }
  const DrafterNeeds& needs() const override { return needs_; }
  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override;
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  struct Active {
    State* state;
    DraftRequest* request;
    std::span<const int32_t> context;  // the tokens as the draft model reads them
  };

  State* find(SequenceId id);
  std::span<const int32_t> context_of(State& state, std::span<const int32_t> tokens) const;
  bool activate(DraftRequest& request, Active& active);
  void catch_up(const Active& active);
  int rows_of(const Active& active) const;
  void feed(const Active& active, int to, bool wants_logits);
  void feed_frontier(const Active& active);
  ForwardOutputs run();
  void run_level();
  void expand(const Active& active, int32_t node, std::span<const float> logits);
  void rank_children(State& state, const SamplingContext& context, int32_t node);
  void draw_children(State& state, const SamplingContext& context, int32_t node);
  void finish(const Active& active);
  void learn(State& state, const DraftCommit& commit);

  std::unique_ptr<Model> model_;
  KvCache cache_;
  DraftModelOptions options_;
  int vocab_;
  StaticTree drawn_shape_;
  DrafterNeeds needs_;
  std::vector<std::unique_ptr<State>> states_;
  // Scratch.
  std::vector<Active> active_;
  ForwardBatch batch_;
  int wanted_ = 0;              // rows of the batch that want logits
  std::vector<int32_t> above_;  // what rows of the batch point at
  std::vector<int32_t> path_, entries_;
  std::vector<float> translated_;
  std::span<const float> logits_;
  std::vector<ScoredToken> ranking_;
  std::vector<LevelTree::Child> children_;
  std::vector<int32_t> taken_;
};

DraftModel::DraftModel(std::unique_ptr<Model> model, KvCache cache,
                       const DraftModelOptions& options)
    : model_(std::move(model)),
      cache_(std::move(cache)),
      options_(options),
      drawn_shape_(drawn_shape(options)) {
  vocab_ = options.vocabulary != nullptr ? options.vocabulary->target_size()
                                         : std::min(options.vocab, model_->config().vocab);
  if (options.vocabulary != nullptr) translated_.resize(static_cast<size_t>(vocab_));
  states_.resize(static_cast<size_t>(options.max_sequences));
  const size_t ranked = usual_rank_probability().size() + kRunnersUp;
  ranking_.reserve(ranked);
  children_.reserve(ranked);
  taken_.reserve(ranked);
  path_.reserve(static_cast<size_t>(depth_of(options)));
  entries_.reserve(static_cast<size_t>(depth_of(options)));
  above_.reserve(static_cast<size_t>(options.max_logits) * static_cast<size_t>(depth_of(options)));
}

Status DraftModel::open(const DraftSequence& sequence) {
  for (std::unique_ptr<State>& place : states_) {
    if (place != nullptr) continue;
    auto state = std::make_unique<State>(sequence, vocab_);
    AERIE_ASSIGN_OR_RETURN(state->cache, cache_.open());
    state->tree.reserve(limits_of(options_));
    if (options_.vocabulary != nullptr) {
      state->context.reserve(static_cast<size_t>(options_.max_positions));
    }
    const size_t nodes = LevelTree::most_nodes(limits_of(options_));
    state->expansions.reserve(nodes + 1);
    state->offers.reserve(nodes);
    if (state->draws()) state->distributions.resize(static_cast<size_t>(most_run(options_) + 1));
    place = std::move(state);
    return {};
  }
  return {StatusCode::kResourceExhausted,
          fmt::format("the draft model serves {} sequences, and all are open", states_.size())};
}

State* DraftModel::find(SequenceId id) {
  for (const std::unique_ptr<State>& state : states_) {
    if (state != nullptr && state->sequence.id == id) return state.get();
  }
  return nullptr;
}

void DraftModel::close(SequenceId id) {
  for (std::unique_ptr<State>& state : states_) {
    if (state == nullptr || state->sequence.id != id) continue;
    cache_.close(state->cache);
    state.reset();
  }
}

std::span<const int32_t> DraftModel::context_of(State& state,
                                                std::span<const int32_t> tokens) const {
  if (options_.vocabulary == nullptr) return tokens;
  const auto most = static_cast<size_t>(options_.max_positions);
  for (; state.translated < tokens.size() && state.context.size() <= most; ++state.translated) {
    const auto ids = options_.vocabulary->spelling(tokens[state.translated]);
    const auto first = options_.vocabulary->beginning();
    if (state.translated == 0 && !std::ranges::equal(ids, first)) {
      state.context.assign(first.begin(), first.end());
    }
    state.context.insert(state.context.end(), ids.begin(), ids.end());
  }
  return state.context;
}

// Whether there is anything to draft for it; if so all rows that it needs have room.
bool DraftModel::activate(DraftRequest& request, Active& active) {
  State* state = find(request.id);
  if (state == nullptr) return false;
  state->length = 0;
  active = {state, &request, context_of(*state, request.tokens)};
  const int length = static_cast<int>(active.context.size());
  LevelLimits limits = limits_of(options_);
  if (state->draws()) limits.shape = &drawn_shape_;
  limits.max_nodes = std::min(limits.max_nodes, request.max_nodes);
  // The deepest node is not fed.
  limits.max_depth =
      std::min({limits.max_depth, request.max_depth, options_.max_positions - length + 1});
  if (length == 0 || limits.max_nodes <= 0 || limits.max_depth <= 0) return false;
  // The root is read again, for what follows it.
  cache_.truncate(state->cache, std::min(cache_.committed(state->cache), length - 1));
  const int arrears = length - cache_.committed(state->cache);
  if (!cache_.reserve(state->cache, arrears + most_run(options_)).ok()) return false;
  state->tree.start(limits);
  state->length = request.tokens.size();
  state->run = 0;
  state->expansions.assign(1, {});
  state->offers.clear();
  state->drawn = 0;
  return true;
}

// Reads what is too much for a pass with others.
void DraftModel::catch_up(const Active& active) {
  const int length = static_cast<int>(active.context.size());
  while (length - cache_.committed(active.state->cache) > kSharedRows) {
    feed(active, std::min(length - 1, cache_.committed(active.state->cache) + options_.max_rows),
         false);
    run();
  }
}

// Adds rows for the context up to `to`. They are settled, so they are committed at once.
void DraftModel::feed(const Active& active, int to, bool wants_logits) {
  const KvCache::Id cache = active.state->cache;
  const int from = cache_.committed(cache);
  const auto sequence = static_cast<int32_t>(batch_.sequences.size());
  batch_.sequences.push_back({cache_.pages(cache), from});
  for (int position = from; position < to; ++position) {
    BatchRow row;
    row.sequence = sequence;
    row.token = active.context[static_cast<size_t>(position)];
    row.position = position;
    row.slot = cache_.slot(cache, position - from);
    row.parent = position == from ? -1 : static_cast<int32_t>(batch_.rows.size()) - 1;
    row.wants_logits = wants_logits && position == to - 1;
    batch_.rows.push_back(row);
  }
  if (wants_logits) ++wanted_;
  cache_.commit_first(cache, to - from);
}

// Adds a row for each node that is to be run. Each sees its ancestors where their passes left them.
void DraftModel::feed_frontier(const Active& active) {
  State& state = *active.state;
  const std::span<const LevelTree::Node> nodes = state.tree.nodes();
  const auto sequence = static_cast<int32_t>(batch_.sequences.size());
  const int committed = cache_.committed(state.cache);
  batch_.sequences.push_back({cache_.pages(state.cache), committed});
  for (const int32_t index : state.tree.frontier()) {
    const LevelTree::Node& node = nodes[static_cast<size_t>(index)];
    const auto ancestors = static_cast<size_t>(node.depth - 1);
    const size_t first = above_.size();
    assert(first + ancestors <= above_.capacity());
    above_.resize(first + ancestors);
    int32_t parent = node.parent;
    for (size_t i = ancestors; i-- > 0; parent = nodes[static_cast<size_t>(parent)].parent) {
      above_[first + i] = cache_.slot(state.cache, state.expansion(parent).entry);
    }
    state.expansion(index).entry = state.run++;
    BatchRow row;
    row.sequence = sequence;
    row.token =
        options_.vocabulary != nullptr ? options_.vocabulary->to_draft(node.token) : node.token;
    row.position = committed + node.depth - 1;
    row.slot = cache_.slot(state.cache, state.expansion(index).entry);
    row.above = std::span<const int32_t>(above_).subspan(first);
    row.wants_logits = true;
    batch_.rows.push_back(row);
    ++wanted_;
  }
}

ForwardOutputs DraftModel::run() {
  const ForwardOutputs outputs = model_->forward(batch_, cache_);
  batch_.sequences.clear();
  batch_.rows.clear();
  above_.clear();
  wanted_ = 0;
  return outputs;
}

int DraftModel::rows_of(const Active& active) const {
  const std::span<const int32_t> frontier = active.state->tree.frontier();
  const bool root = !frontier.empty() && frontier[0] < 0;
  return root ? kSharedRows : static_cast<int>(frontier.size());
}

// Runs the frontiers of all drafts and gives their nodes children. Sequences go on in groups whose
// rows fit a pass.
void DraftModel::run_level() {
  for (size_t begin = 0; begin < active_.size();) {
    size_t end = begin;
    for (; end < active_.size(); ++end) {
      const Active& active = active_[end];
      const std::span<const int32_t> frontier = active.state->tree.frontier();
      if (frontier.empty()) continue;
      if (batch_.size() + rows_of(active) > options_.max_rows ||
          wanted_ + static_cast<int>(frontier.size()) > options_.max_logits) {
        break;
      }
      if (frontier[0] < 0) {
        feed(active, static_cast<int>(active.context.size()), true);
      } else {
        feed_frontier(active);
      }
    }
    if (batch_.size() > 0) {
      const ForwardOutputs outputs = run();
      int row = 0;
      for (size_t i = begin; i < end; ++i) {
        for (const int32_t node : active_[i].state->tree.frontier()) {
          expand(active_[i], node, outputs.logits_of(row++));
        }
      }
    }
    begin = end;
  }
  for (const Active& active : active_) active.state->tree.advance();
}

void DraftModel::expand(const Active& active, int32_t node, std::span<const float> logits) {
  State& state = *active.state;
  path_.clear();
  for (int32_t i = node; i >= 0; i = state.tree.nodes()[static_cast<size_t>(i)].parent) {
    path_.push_back(state.tree.nodes()[static_cast<size_t>(i)].token);
  }
  std::reverse(path_.begin(), path_.end());
  logits_ = logits.first(std::min(logits.size(), static_cast<size_t>(vocab_)));
  if (options_.vocabulary != nullptr) {
    options_.vocabulary->translate(logits, translated_);
    logits_ = translated_;
  }
  const SamplingContext context{active.request->tokens, path_, nullptr};
  children_.clear();
  DraftExpansion& own = state.expansion(node);
  own.first_offer = static_cast<int32_t>(state.offers.size());
  if (state.draws()) {
    draw_children(state, context, node);
  } else {
    rank_children(state, context, node);
  }
  // Where nothing can follow, the sampler's answer may be a token that the draft model lacks.
  const auto unreadable = [&](const LevelTree::Child& child) {
    return options_.vocabulary != nullptr && options_.vocabulary->to_draft(child.token) < 0;
  };
  std::erase_if(children_, unreadable);
  own.offers = static_cast<int32_t>(state.offers.size()) - own.first_offer;
  state.tree.expand(node, children_);
  state.expansions.resize(state.tree.nodes().size() + 1);
}

void DraftModel::rank_children(State& state, const SamplingContext& context, int32_t node) {
  const int wanted = state.tree.wanted(node);
  const bool noisy = state.sequence.sampling.temperature > 0;
  state.sampler.ranking(logits_, context, noisy ? wanted + kRunnersUp : wanted, ranking_);
  double total = 0.0;
  const double best = ranking_[0].score;
  if (noisy) {
    for (const ScoredToken& token : ranking_) {
      total += std::exp((token.score - best) * kNoiseSharpness);
    }
  }
  const size_t most = std::min(ranking_.size(), static_cast<size_t>(wanted));
  for (size_t i = 0; i < most; ++i) {
    const ScoredToken& token = ranking_[i];
    const double promised =
        noisy ? std::exp((token.score - best) * kNoiseSharpness) / total : std::exp(token.score);
    state.offers.push_back({token.id, promised});
    children_.push_back({token.id, state.calibration.estimate(promised)});
  }
}

// The numbers of children are their shape's, whatever comes of the draws.
void DraftModel::draw_children(State& state, const SamplingContext& context, int32_t node) {
  state.expansion(node).distribution = static_cast<int32_t>(state.drawn);
  Distribution& q = state.distributions[state.drawn++];
  state.sampler.distribution(logits_, context, q);
  taken_.clear();
  const int wanted = state.tree.wanted(node);
  for (int rank = 0; rank < wanted; ++rank) {
    const auto place =
        static_cast<uint32_t>(state.tree.nodes().size()) + static_cast<uint32_t>(rank);
    const double uniform = noise_uniform(state.sampler.noise(), NoiseStream::kDraft,
                                         context.committed.size() - 1, place << 16);
    const int32_t token =
        rank == 0 ? inverse_cdf(q, uniform) : inverse_cdf_without(q, taken_, uniform);
    if (token < 0) return;
    taken_.push_back(token);
    const double promised = usual_rank_probability()[static_cast<size_t>(rank)];
    state.offers.push_back({token, promised});
    children_.push_back({token, state.calibration.estimate(promised)});
  }
}

void DraftModel::finish(const Active& active) {
  State& state = *active.state;
  TokenTree& tree = *active.request->tree;
  state.tree.finish(tree);
  if (!state.draws()) return;
  // A shape's nodes are the tree's.
  for (int32_t i = 0; i < tree.size(); ++i) {
    TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    node.proposal =
        &state.distributions[static_cast<size_t>(state.expansion(node.parent).distribution)];
    node.without_replacement =
        state.tree.children(node.parent).data() != &state.tree.nodes()[static_cast<size_t>(i)];
  }
}

Status DraftModel::propose(std::span<DraftRequest> requests) {
  active_.clear();
  for (DraftRequest& request : requests) {
    Active active;
    if (!activate(request, active)) continue;
    catch_up(active);
    active_.push_back(active);
  }
  const auto goes_on = [](const Active& active) { return !active.state->tree.frontier().empty(); };
  while (std::any_of(active_.begin(), active_.end(), goes_on)) run_level();
  for (const Active& active : active_) finish(active);
  return {};
}

// Walks down the draft along what was committed, whoever proposed it: entries on the way are kept,
// and what was offered there is held against what came.
void DraftModel::learn(State& state, const DraftCommit& commit) {
  entries_.clear();
  const auto end = static_cast<size_t>(commit.first) + static_cast<size_t>(commit.rows);
  int32_t node = -1;
  for (size_t at = state.length; at < commit.tokens.size() && at <= end; ++at) {
    const DraftExpansion& here = state.expansion(node);
    for (int32_t i = 0; i < here.offers; ++i) {
      const DraftOffer& offer = state.offers[static_cast<size_t>(here.first_offer + i)];
      state.calibration.judge(offer.promised, offer.token == commit.tokens[at]);
    }
    node = state.tree.find_child(node, commit.tokens[at]);
    // The token at `end` is the new root: it will be read for what follows it.
    if (node < 0 || at == end || state.expansion(node).entry < 0) break;
    entries_.push_back(state.expansion(node).entry);
  }
  cache_.commit(state.cache, entries_);
}

Status DraftModel::observe(std::span<const DraftCommit> commits) {
  for (const DraftCommit& commit : commits) {
    State* state = find(commit.id);
    if (state == nullptr || state->length == 0) continue;
    learn(*state, commit);
    state->length = 0;
  }
  return {};
}

}  // namespace

int draft_model_width(const DraftModelOptions& options) {
  return std::max(options.top_k, drawn_shape(options).widest());
}

Expected<std::unique_ptr<Drafter>> make_draft_model_drafter(std::unique_ptr<Model> model,
                                                            const DraftModelOptions& options) {
  const auto most_ranks = static_cast<int>(usual_rank_probability().size());
  const auto fail = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, what);
  };
  if (options.num_tokens < 1) {
    return fail(
        fmt::format("num_speculative_tokens is {}, which is not positive", options.num_tokens));
  }
  if (options.top_k < 1 || options.top_k > most_ranks) {
    return fail(fmt::format("topk is {}, must be 1 to {}", options.top_k, most_ranks));
  }
  assert(options.max_rows >= kSharedRows && options.max_sequences >= 1);
  assert(options.max_logits >= draft_model_width(options));
  DraftModelOptions fitting = options;
  fitting.max_positions = std::min(options.max_positions, model->config().context);
  // Room for every sequence at its longest.
  const int64_t positions =
      (int64_t{fitting.max_positions} + most_run(options) + kernels::kPagePositions) *
      options.max_sequences;
  AERIE_ASSIGN_OR_RETURN(KvCache cache, KvCache::create(model->config(), positions,
                                                        options.max_sequences, options.cache_type));
  return std::unique_ptr<Drafter>(
      std::make_unique<DraftModel>(std::move(model), std::move(cache), fitting));
}

}  // namespace aerie
