#include "draft/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "kv/kv_cache.h"
#include "sampling/inverse_cdf.h"
#include "sampling/sampler.h"

namespace aerie {
namespace {

// Rows of one sequence that may share a pass with other sequences'; longer arrears are made up
// first.
constexpr int kSharedRows = 4;

// The settings as they apply to a vocabulary that may be narrower than the target's logits.
SamplingParams fitted(SamplingParams params, int vocab) {
  params.logprobs = -1;
  std::erase_if(params.logit_bias, [&](const auto& bias) { return bias.first >= vocab; });
  return params;
}

struct State {
  State(const DraftSequence& s, int vocab)
      : sequence(s), sampler(fitted(s.sampling, vocab), vocab) {}
  DraftSequence sequence;
  Sampler sampler;
  KvCache::Id cache = -1;
  int known = 0;              // entries of the cache that are of committed tokens
  std::vector<int32_t> path;  // drafted in this round
  // Of the drafted tokens whose turn came, how many stood; as if of ten seven had already.
  double judged = 10.0, stood = 7.0;
  std::vector<Distribution> distributions;  // from which path was drawn, with DraftNoise::kOwn

  // That the path so far will stand.
  float estimate() const {
    return static_cast<float>(std::pow(stood / judged, static_cast<double>(path.size())));
  }
};

class DraftModel final : public Drafter {
 public:
  DraftModel(std::unique_ptr<Model> model, KvCache cache, const DraftModelOptions& options)
      : model_(std::move(model)),
        cache_(std::move(cache)),
        options_(options),
        vocab_(std::min(options.vocab, model_->config().vocab)) {
    states_.resize(static_cast<size_t>(options.max_sequences));
  }

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
    int limit;  // tokens to draft
  };

  State* find(SequenceId id);
  bool activate(DraftRequest& request, Active& active);
  void feed(const Active& active, int from, int to, bool wants_logits);
  ForwardOutputs run();
  void draw(const Active& active, std::span<const float> logits);

  std::unique_ptr<Model> model_;
  KvCache cache_;
  DraftModelOptions options_;
  int vocab_;
  DrafterNeeds needs_;
  std::vector<std::unique_ptr<State>> states_;
  std::vector<Active> active_;
  ForwardBatch batch_;
};

Status DraftModel::open(const DraftSequence& sequence) {
  for (std::unique_ptr<State>& place : states_) {
    if (place != nullptr) continue;
    auto state = std::make_unique<State>(sequence, vocab_);
    AERIE_ASSIGN_OR_RETURN(state->cache, cache_.open());
    state->path.reserve(static_cast<size_t>(options_.num_tokens));
    state->distributions.resize(static_cast<size_t>(options_.num_tokens));
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

// Whether there is anything to draft for it; if so all rows that it needs have room.
bool DraftModel::activate(DraftRequest& request, Active& active) {
  State* state = find(request.id);
  if (state == nullptr) return false;
  state->path.clear();
  const int length = static_cast<int>(request.tokens.size());
  state->known = length;
  // The last drafted token is not fed.
  const int room = options_.max_positions - length + 1;
  active = {state, &request, std::min({options_.num_tokens, request.max_nodes, room})};
  if (active.limit <= 0) return false;
  // Drafted entries are still there if the last round failed before it was observed.
  cache_.truncate(state->cache, std::min(cache_.committed(state->cache), length - 1));
  const int arrears = length - cache_.committed(state->cache);
  return cache_.reserve(state->cache, arrears + active.limit - 1).ok();
}

// Adds rows for positions [from, to) of tokens and path. They count as committed at once, since the
// draft's own cache is only ever rolled back in observe().
void DraftModel::feed(const Active& active, int from, int to, bool wants_logits) {
  const KvCache::Id cache = active.state->cache;
  const auto sequence = static_cast<int32_t>(batch_.sequences.size());
  const int length = static_cast<int>(active.request->tokens.size());
  batch_.sequences.push_back({cache_.pages(cache), from});
  for (int position = from; position < to; ++position) {
    BatchRow row;
    row.sequence = sequence;
    row.token = position < length ? active.request->tokens[static_cast<size_t>(position)]
                                  : active.state->path[static_cast<size_t>(position - length)];
    row.position = position;
    row.slot = cache_.slot(cache, position - from);
    row.parent = position == from ? -1 : static_cast<int32_t>(batch_.rows.size()) - 1;
    row.wants_logits = wants_logits && position == to - 1;
    batch_.rows.push_back(row);
  }
  cache_.commit_first(cache, to - from);
}

ForwardOutputs DraftModel::run() {
  const ForwardOutputs outputs = model_->forward(batch_, cache_);
  batch_.sequences.clear();
  batch_.rows.clear();
  return outputs;
}

void DraftModel::draw(const Active& active, std::span<const float> logits) {
  State& state = *active.state;
  TokenTree& tree = *active.request->tree;
  const SamplingContext context{active.request->tokens, state.path, nullptr};
  const std::span<const float> known = logits.first(static_cast<size_t>(vocab_));
  const bool own =
      state.sequence.noise == DraftNoise::kOwn && state.sequence.sampling.temperature > 0;
  if (!own) {
    state.path.push_back(state.sampler.sample(known, context));
    tree.add(state.path.back(), tree.size() - 1, nullptr, state.estimate());
    return;
  }
  Distribution& q = state.distributions[state.path.size()];
  state.sampler.distribution(known, context, q);
  const double uniform =
      noise_uniform(state.sampler.noise(), NoiseStream::kDraft, active.request->tokens.size() - 1,
                    static_cast<uint32_t>(state.path.size()) << 16);
  state.path.push_back(inverse_cdf(q, uniform));
  tree.add(state.path.back(), tree.size() - 1, &q, state.estimate());
}

Status DraftModel::propose(std::span<DraftRequest> requests) {
  active_.clear();
  int most = 0;
  for (DraftRequest& request : requests) {
    Active active;
    if (!activate(request, active)) continue;
    const int length = static_cast<int>(request.tokens.size());
    for (int from = cache_.committed(active.state->cache); length - from > kSharedRows;) {
      const int to = std::min(length - 1, from + options_.max_rows);
      feed(active, from, to, false);
      run();
      from = to;
    }
    active_.push_back(active);
    most = std::max(most, active.limit);
  }
  for (int depth = 0; depth < most; ++depth) {
    // Sequences go on in groups whose rows fit a pass.
    for (size_t begin = 0; begin < active_.size();) {
      size_t end = begin;
      for (; end < active_.size() && batch_.size() + kSharedRows <= options_.max_rows; ++end) {
        const Active& active = active_[end];
        if (depth >= active.limit) continue;
        const int length = static_cast<int>(active.request->tokens.size());
        feed(active, cache_.committed(active.state->cache), length + depth, true);
      }
      if (batch_.size() > 0) {
        const ForwardOutputs outputs = run();
        int row = 0;
        for (size_t i = begin; i < end; ++i) {
          if (depth < active_[i].limit) draw(active_[i], outputs.logits_of(row++));
        }
      }
      begin = end;
    }
  }
  return {};
}

Status DraftModel::observe(std::span<const DraftCommit> commits) {
  for (const DraftCommit& commit : commits) {
    State* state = find(commit.id);
    if (state == nullptr) continue;
    // What the cache holds beyond the tokens that stand was drafted and refused: they may come from
    // another drafter.
    const int end = commit.first + commit.rows;
    int settled = std::min(end, state->known);
    for (const int32_t drafted : state->path) {
      const auto at = static_cast<size_t>(settled);
      // The token at `end` is known, but not yet in the cache.
      if (settled > end || at >= commit.tokens.size()) break;
      const bool stands = commit.tokens[at] == drafted;
      state->judged += 1.0;
      state->stood += stands ? 1.0 : 0.0;
      if (!stands || settled == end) break;
      ++settled;
    }
    state->path.clear();
    state->known = settled;
    cache_.truncate(state->cache, std::min(cache_.committed(state->cache), settled));
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<Drafter>> make_draft_model_drafter(std::unique_ptr<Model> model,
                                                            const DraftModelOptions& options) {
  if (options.num_tokens < 1) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("num_speculative_tokens is {}, which is not positive", options.num_tokens));
  }
  assert(options.max_rows >= kSharedRows && options.max_sequences >= 1);
  DraftModelOptions fitting = options;
  fitting.max_positions = std::min(options.max_positions, model->config().context);
  // Room for every sequence at its longest.
  const int64_t positions =
      (int64_t{fitting.max_positions} + kernels::kPagePositions) * options.max_sequences;
  AERIE_ASSIGN_OR_RETURN(KvCache cache, KvCache::create(model->config(), positions,
                                                        options.max_sequences, options.cache_type));
  return std::unique_ptr<Drafter>(
      std::make_unique<DraftModel>(std::move(model), std::move(cache), fitting));
}

}  // namespace aerie
