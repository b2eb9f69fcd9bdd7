#include "decode/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <functional>

#include "base/log.h"

namespace aerie {
namespace {

// `what` the tokens are, for the message.
Status check_tokens(std::string_view what, std::span<const int32_t> tokens, int vocab) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab) continue;
    return {StatusCode::kInvalidArgument,
            fmt::format("the {}'s token {} is outside the vocabulary of {}", what, token, vocab)};
  }
  return {};
}

// Whether anything in it is proposed.
bool drafts(const TokenTree& tree) {
  return std::ranges::any_of(
      tree.nodes, [](const TokenTree::Node& node) { return node.role == NodeRole::kDraft; });
}

}  // namespace

// The target at the nodes of one sequence's tree: logits of the pass through the sequence's
// sampler. `logits_at` has the numbers of the root's and the nodes' logits.
class Decoder::Target final : public TargetView {
 public:
  Target(Sequence& sequence, const ForwardOutputs& outputs, std::span<const int32_t> logits_at)
      : sequence_(sequence), outputs_(outputs), logits_at_(logits_at) {}

  int32_t sample(int node, std::span<const int32_t> path) override {
    return sequence_.sampler.sample(logits(node), {sequence_.tokens, path, nullptr});
  }
  const Distribution& distribution(int node, std::span<const int32_t> path) override {
    sequence_.sampler.distribution(logits(node), {sequence_.tokens, path, nullptr},
                                   sequence_.distribution);
    return sequence_.distribution;
  }
  // Root is -1, and its row comes first.
  std::span<const float> logits(int node) const {
    return outputs_.logits_of(logits_at_[static_cast<size_t>(node + 1)]);
  }

 private:
  Sequence& sequence_;
  const ForwardOutputs& outputs_;
  std::span<const int32_t> logits_at_;
};

Decoder::Decoder(Model& model, KvCache& cache, Drafter* drafter, const DecoderOptions& options)
    : model_(model),
      cache_(cache),
      drafter_(drafter),
      options_(options),
      verifier_(make_verifier(options.rule)),
      exits_(model, cache, options.max_rows, options.max_nodes) {
  if (drafter_ != nullptr) {
    batch_.tap_layers = drafter_->needs().tap_layers;
    top_tokens_.reserve(static_cast<size_t>(options.max_rows) *
                        static_cast<size_t>(drafter_->needs().top_tokens));
  }
  // What a round takes, so that the first one with so much accepted need not grow it.
  const auto nodes = static_cast<size_t>(options.max_nodes);
  batch_.rows.reserve(static_cast<size_t>(options.max_rows));
  logits_at_.reserve(static_cast<size_t>(options.max_rows));
  path_.reserve(nodes + 1);
  verdict_.accepted.reserve(nodes);
  taps_.reserve(static_cast<size_t>(std::min(options.max_rows, options.max_logits)) *
                batch_.tap_layers.size() * static_cast<size_t>(model.config().hidden));
  editor_.reserve(options.max_nodes);
}

Decoder::~Decoder() = default;

Expected<std::unique_ptr<Sequence>> Decoder::open(std::span<const int32_t> prompt,
                                                  const SequenceOptions& options) {
  const int vocab = model_.config().vocab;
  AERIE_RETURN_IF_ERROR(validate(options.sampling, vocab));
  if (prompt.empty()) {
    return Status(StatusCode::kInvalidArgument, "the prompt has no tokens");
  }
  if (static_cast<int64_t>(prompt.size()) >= options_.max_positions) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the prompt has {} tokens; a context of {} leaves room for {} and an "
                              "answer: shorten it or raise the context size",
                              prompt.size(), options_.max_positions, options_.max_positions - 1));
  }
  AERIE_RETURN_IF_ERROR(check_tokens("prompt", prompt, vocab));
  if (options.max_tokens < 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("max_tokens is {}, which is not positive", options.max_tokens));
  }
  AERIE_RETURN_IF_ERROR(check_tokens("prediction", options.prediction, vocab));
  auto sequence = std::make_unique<Sequence>(next_id_, options, vocab);
  const auto longest = static_cast<size_t>(options_.max_positions) + 1;
  sequence->tokens.reserve(
      std::min(longest, prompt.size() + static_cast<size_t>(options.max_tokens)));
  sequence->tokens.assign(prompt.begin(), prompt.end());
  sequence->prompt_length = static_cast<int>(prompt.size());
  const auto nodes = static_cast<size_t>(options_.max_nodes);
  sequence->emitted.reserve(nodes + 1);
  sequence->stats.proposed_at.assign(nodes, 0);
  sequence->stats.accepted_at.assign(nodes, 0);
  AERIE_ASSIGN_OR_RETURN(sequence->cache, cache_.open());
  if (drafter_ != nullptr && options.speculate) {
    DraftSequence draft;
    draft.id = next_id_;
    draft.sampling = options.sampling;
    draft.noise = options_.rule == VerifyRule::kExact ? DraftNoise::kTarget : DraftNoise::kOwn;
    draft.trees = verifier_->takes_trees();
    draft.max_tokens = static_cast<int>(longest);
    draft.prediction = options.prediction;
    draft.target = &exits_;
    if (Status status = drafter_->open(draft); !status.ok()) {
      cache_.close(sequence->cache);
      return status;
    }
  }
  ++next_id_;
  return sequence;
}

void Decoder::close(Sequence& sequence) {
  cache_.close(sequence.cache);
  sequence.cache = -1;
  if (drafter_ != nullptr && sequence.options.speculate) drafter_->close(sequence.id);
}

Status Decoder::prefill(Sequence& sequence, const std::atomic<bool>* cancel) {
  static const TokenTree kNoDraft;
  static constexpr int32_t kFirstLogits[] = {0};
  const bool drafting = drafter_ != nullptr && sequence.options.speculate;
  const int length = sequence.prompt_length;
  sequence.emitted.clear();
  const StageClock::Scope scope(clock_);
  for (int first = 0; first < length;) {
    if (cancel != nullptr && cancel->load()) {
      return {StatusCode::kCancelled, "stopped while reading the prompt"};
    }
    clock_.enter(Stage::kPrefill);
    const int rows = std::min({options_.prefill_chunk, options_.max_rows, length - first});
    AERIE_RETURN_IF_ERROR(cache_.reserve(sequence.cache, rows));
    batch_.sequences.assign(1, {cache_.pages(sequence.cache), first});
    batch_.rows.clear();
    for (int i = 0; i < rows; ++i) {
      BatchRow row;
      row.token = sequence.tokens[static_cast<size_t>(first + i)];
      row.position = first + i;
      row.slot = cache_.slot(sequence.cache, i);
      row.parent = i - 1;
      row.wants_logits = first + i == length - 1;
      row.wants_taps = drafting && !batch_.tap_layers.empty();
      batch_.rows.push_back(row);
    }
    const ForwardOutputs outputs = model_.forward(batch_, cache_);
    ++target_passes_;
    cache_.commit_first(sequence.cache, rows);
    const bool last = first + rows == length;
    if (last) {
      clock_.enter(Stage::kSample);
      Target target(sequence, outputs, kFirstLogits);
      verifier_->verify(kNoDraft, target, sequence.sampler.noise(),
                        static_cast<uint64_t>(length - 1), verdict_);
      emit(sequence, kNoDraft, target);
    }
    if (drafting) {
      DraftCommit commit;
      commit.id = sequence.id;
      commit.tokens = sequence.tokens;
      commit.first = first;
      commit.rows = rows;
      commit.taps = outputs.taps;
      commits_.assign(1, commit);
      AERIE_RETURN_IF_ERROR(observe());
    }
    first += rows;
  }
  return {};
}

Status Decoder::round(std::span<Sequence* const> sequences) {
  const auto count = sequences.size();
  if (const auto most = static_cast<size_t>(std::min(options_.max_rows, options_.max_logits));
      count > most) {
    return {StatusCode::kInvalidArgument,
            fmt::format("a round of {} sequences: the model takes {}", count, most)};
  }
  const auto nodes = static_cast<size_t>(options_.max_nodes);
  while (trees_.size() < count) {
    trees_.emplace_back().nodes.reserve(nodes);
    accepted_.emplace_back().reserve(nodes);
  }
  const StageClock::Scope scope(clock_);
  clock_.enter(Stage::kOther);
  AERIE_RETURN_IF_ERROR(reserve_roots(sequences));
  exits_.start(sequences);
  clock_.enter(Stage::kDraft);
  AERIE_RETURN_IF_ERROR(draft(sequences));
  clock_.enter(Stage::kOther);
  reserve_nodes(sequences);
  batch_.sequences.clear();
  batch_.rows.clear();
  for (size_t i = 0; i < count; ++i) add_rows(*sequences[i], trees_[i]);
  logits_at_.clear();
  int32_t logits = 0;
  for (const BatchRow& row : batch_.rows) logits_at_.push_back(row.wants_logits ? logits++ : -1);
  clock_.enter(Stage::kVerify);
  const double before = clock_.times().of(Stage::kVerify);
  exits_.go_on(batch_, trees_);
  const ForwardOutputs outputs = model_.forward(batch_, cache_);
  ++target_passes_;
  clock_.enter(Stage::kSample);
  // A pass that drafting has done a part of is no measure of others.
  if (batch_.first_layer == 0) learn_cost(clock_.times().of(Stage::kVerify) - before);
  batch_.first_layer = 0;
  batch_.hidden = {};
  verify(sequences, outputs);
  clock_.enter(Stage::kDraft);
  return drafter_ == nullptr ? Status() : observe();
}

int Decoder::node_limit(const Sequence& sequence) const {
  const int left = sequence.options.max_tokens - sequence.generated();
  // The root's entry and the nodes' must fit, and the round emits one token more than it accepts.
  const int room = options_.max_positions - static_cast<int>(sequence.tokens.size());
  return std::max(0, std::min({options_.max_nodes, left - 1, room}));
}

Status Decoder::draft(std::span<Sequence* const> sequences) {
  requests_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    trees_[i].clear();
    const int limit = node_limit(*sequences[i]);
    if (drafter_ == nullptr || !sequences[i]->options.speculate || limit == 0) continue;
    requests_.push_back({sequences[i]->id, sequences[i]->tokens, limit, &trees_[i]});
  }
  if (requests_.empty()) return {};
  AERIE_RETURN_IF_ERROR(drafter_->propose(requests_));
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int limit = node_limit(*sequences[i]);
    if (!verifier_->takes_trees() && trees_[i].size() <= limit) cut_to_chain(trees_[i]);
    check_tree(*sequences[i], limit, trees_[i]);
  }
  return {};
}

// Many drafters make trees whatever the rule; of nodes that were not drawn the likeliest path may
// be chosen.
void Decoder::cut_to_chain(TokenTree& tree) {
  if (tree.is_chain() || !tree.is_well_formed() || !may_be_cut(tree)) return;
  TreeLimits chain;
  chain.max_children = 1;
  editor_.keep_best(tree, chain);
}

// A proposal that cannot be judged is no proposal: a drafter may be wrong without harm.
void Decoder::check_tree(const Sequence& sequence, int max_nodes, TokenTree& tree) const {
  if (tree.empty()) return;
  const auto known = [&](const TokenTree::Node& node) {
    return node.token >= 0 && node.token < model_.config().vocab;
  };
  if (tree.size() <= max_nodes && tree.is_well_formed() &&
      std::all_of(tree.nodes.begin(), tree.nodes.end(), known) && verifier_->accepts(tree)) {
    return;
  }
  log(LogLevel::kWarning,
      fmt::format("sequence {}: the drafter '{}' made a draft of {} nodes that "
                  "the rule '{}' cannot judge; it is left out",
                  sequence.id, drafter_->method(), tree.size(), verify_rule_name(options_.rule)));
  tree.clear();
}

// Comes first: a draft must not take the room without which another sequence cannot go on.
Status Decoder::reserve_roots(std::span<Sequence* const> sequences) {
  for (const Sequence* sequence : sequences) {
    AERIE_RETURN_IF_ERROR(cache_.reserve(sequence->cache, 1));
  }
  return {};
}

void Decoder::reserve_nodes(std::span<Sequence* const> sequences) {
  int rows = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int32_t cache = sequences[i]->cache;
    const int others = static_cast<int>(sequences.size() - i) - 1;  // at least a row for each
    const int budget = std::min(options_.max_rows, options_.max_logits) - rows - others;
    if (1 + trees_[i].size() > budget || !cache_.reserve(cache, 1 + trees_[i].size()).ok()) {
      trees_[i].clear();
    }
    rows += 1 + trees_[i].size();
  }
}

void Decoder::add_rows(const Sequence& sequence, const TokenTree& tree) {
  const auto index = static_cast<int32_t>(batch_.sequences.size());
  const int committed = cache_.committed(sequence.cache);
  batch_.sequences.push_back({cache_.pages(sequence.cache), committed});
  const auto root = static_cast<int32_t>(batch_.rows.size());
  BatchRow row;
  row.sequence = index;
  row.token = sequence.tokens.back();
  row.position = committed;
  row.slot = cache_.slot(sequence.cache, 0);
  row.wants_logits = true;
  row.wants_taps = !batch_.tap_layers.empty();
  batch_.rows.push_back(row);
  for (int i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    row.token = node.token;
    row.position = committed + node.depth;
    row.slot = cache_.slot(sequence.cache, 1 + i);
    row.parent = root + 1 + node.parent;
    row.wants_logits = node.role != NodeRole::kWindow;
    batch_.rows.push_back(row);
  }
}

void Decoder::verify(std::span<Sequence* const> sequences, const ForwardOutputs& outputs) {
  commits_.clear();
  taps_.clear();
  top_tokens_.clear();
  int row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    clock_.enter(Stage::kSample);
    const auto rows = static_cast<size_t>(1 + trees_[i].size());
    Target target(sequence, outputs, std::span(logits_at_).subspan(static_cast<size_t>(row), rows));
    verifier_->verify(trees_[i], target, sequence.sampler.noise(), sequence.tokens.size() - 1,
                      verdict_);
    const auto before = sequence.tokens.size();
    sequence.emitted.clear();
    emit(sequence, trees_[i], target);
    const auto emitted = static_cast<int>(sequence.tokens.size() - before);
    const int kept = std::min(emitted, static_cast<int>(verdict_.accepted.size()));
    this->count(sequence, trees_[i], kept);
    clock_.enter(Stage::kCommit);
    commit(sequence, i, std::min(kept, emitted - 1), outputs, row);
    if (drafter_ != nullptr && sequence.options.speculate && drafter_->needs().top_tokens > 0) {
      clock_.enter(Stage::kDraft);
      commits_.back().top_tokens = rank_tokens(trees_[i], target);
    }
    row += 1 + trees_[i].size();
  }
}

// Appends the verdict's tokens until one ends the sequence.
void Decoder::emit(Sequence& sequence, const TokenTree& tree, const Target& target) {
  const bool wants_logprobs = sequence.options.sampling.logprobs >= 0;
  int node = -1;
  const auto put = [&](int32_t token, TokenOrigin origin) {
    const bool goes_on = append(sequence, token, origin);
    if (wants_logprobs) {
      sequence.sampler.logprobs(target.logits(node), token, sequence.emitted.back().logprobs);
    }
    return goes_on;
  };
  for (const int32_t accepted : verdict_.accepted) {
    if (!put(tree.nodes[static_cast<size_t>(accepted)].token, TokenOrigin::kAccepted)) return;
    node = accepted;
  }
  TokenOrigin origin = TokenOrigin::kTarget;
  if (drafts(tree)) origin = verdict_.bonus ? TokenOrigin::kBonus : TokenOrigin::kCorrection;
  put(verdict_.next_token, origin);
}

// Whether the sequence goes on.
bool Decoder::append(Sequence& sequence, int32_t token, TokenOrigin origin) {
  sequence.tokens.push_back(token);
  sequence.emitted.push_back({token, origin, {}});
  if (sequence.options.stop != nullptr && sequence.options.stop->stops_after(token)) {
    sequence.finish = FinishReason::kStop;
  } else if (sequence.generated() >= sequence.options.max_tokens ||
             static_cast<int>(sequence.tokens.size()) > options_.max_positions) {
    sequence.finish = FinishReason::kLength;
  }
  return sequence.finish == FinishReason::kNone;
}

void Decoder::count(Sequence& sequence, const TokenTree& tree, int kept) const {
  SequenceStats& stats = sequence.stats;
  ++stats.rounds;
  stats.round_tokens += static_cast<int64_t>(sequence.emitted.size());
  stats.accepted += kept;
  int deepest = 0;
  for (const TokenTree::Node& node : tree.nodes) {
    if (node.role != NodeRole::kDraft) continue;
    ++stats.drafted;
    deepest = std::max(deepest, node.depth);
  }
  for (int d = 0; d < deepest; ++d) ++stats.proposed_at[static_cast<size_t>(d)];
  for (int d = 0; d < kept; ++d) ++stats.accepted_at[static_cast<size_t>(d)];
}

// Keeps the root and the first `kept` accepted nodes.
void Decoder::commit(Sequence& sequence, size_t index, int kept, const ForwardOutputs& outputs,
                     int first_row) {
  path_.clear();
  path_.push_back(0);
  accepted_[index].clear();
  for (int i = 0; i < kept; ++i) {
    const int32_t node = verdict_.accepted[static_cast<size_t>(i)];
    path_.push_back(1 + node);
    accepted_[index].push_back(node);
  }
  const int first = cache_.committed(sequence.cache);
  cache_.commit(sequence.cache, path_);
  if (drafter_ == nullptr || !sequence.options.speculate) return;
  const size_t from = taps_.size();
  if (!batch_.tap_layers.empty()) {
    for (const int32_t entry : path_) {
      const std::span<const float> row = outputs.taps_of(first_row + entry);
      taps_.insert(taps_.end(), row.begin(), row.end());
    }
  }
  DraftCommit commit;
  commit.id = sequence.id;
  commit.tokens = sequence.tokens;
  commit.first = first;
  commit.rows = 1 + kept;
  commit.tree = &trees_[index];
  commit.accepted = accepted_[index];
  // There is room for the rows of any round, so that what is there stays where it is.
  commit.taps = std::span<const float>(taps_).subspan(from);
  commits_.push_back(commit);
}

void Decoder::learn_cost(double seconds) {
  if (options_.cost == nullptr) return;
  double context = 0.0;
  for (const BatchRow& row : batch_.rows) context += row.position;
  options_.cost->learn(batch_.size(), context / batch_.size(), seconds);
}

// DraftCommit::top_tokens. Ranking a row takes longer than any drafter without a model, and the
// first nodes are the likeliest to be of use.
std::span<const int32_t> Decoder::rank_tokens(const TokenTree& tree, const Target& target) {
  const auto wanted = static_cast<size_t>(drafter_->needs().top_tokens);
  const size_t from = top_tokens_.size();
  int refused = 0;
  for (int node = -1; node < tree.size(); ++node) {
    const size_t end = top_tokens_.size() + wanted;
    bool ranked = node < 0;
    if (!ranked) {
      const NodeRole role = tree.nodes[static_cast<size_t>(node)].role;
      ranked = role == NodeRole::kProbe ||
               std::ranges::find(verdict_.accepted, node) != verdict_.accepted.end() ||
               (role == NodeRole::kDraft && refused++ < drafter_->needs().top_refusals);
    }
    if (ranked) {
      select_top(target.logits(node), wanted, keys_);
      std::ranges::sort(keys_, std::greater<>());
      for (const TokenKey key : keys_) top_tokens_.push_back(token_key_id(key));
    }
    top_tokens_.resize(end, -1);
  }
  // There is room for the rows of any round, so that what is there stays where it is.
  return std::span<const int32_t>(top_tokens_).subspan(from);
}

Status Decoder::observe() {
  if (commits_.empty()) return {};
  return drafter_->observe(commits_);
}

}  // namespace aerie
