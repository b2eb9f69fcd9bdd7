#include "decode/decoder.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <utility>

#include "base/errors.h"

namespace aerie {
namespace {

// `what` the tokens are, for the message.
Status check_tokens(std::string_view what, std::span<const int32_t> tokens, int vocab) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab) continue;
    return invalid_argument("the {}'s token {} is outside the vocabulary of {}", what, token,
                            vocab);
  }
  return {};
}

// Whether anything in it is proposed.
bool drafts(const TokenTree& tree) {
  return std::ranges::any_of(
      tree.nodes, [](const TokenTree::Node& node) { return node.role == NodeRole::kDraft; });
}

}  // namespace

Status check_sequence(std::span<const int32_t> prompt, const SequenceOptions& options, int vocab,
                      int max_positions) {
  AERIE_RETURN_IF_ERROR(validate(options.sampling, vocab));
  if (prompt.empty()) return invalid_argument("the prompt has no tokens");
  if (static_cast<int64_t>(prompt.size()) >= max_positions) {
    return invalid_argument(
        "the prompt has {} tokens; a context of {} leaves room for {} and an answer: shorten it or "
        "raise the context size",
        prompt.size(), max_positions, max_positions - 1);
  }
  AERIE_RETURN_IF_ERROR(check_tokens("prompt", prompt, vocab));
  if (options.max_tokens < 1) {
    return invalid_argument("max_tokens is {}, which is not positive", options.max_tokens);
  }
  return check_tokens("prediction", options.prediction, vocab);
}

Decoder::Decoder(Model& model, KvCache& cache, Drafter* drafter, const DecoderOptions& options)
    : model_(model),
      cache_(cache),
      drafter_(drafter),
      options_(options),
      verifier_(make_verifier(options.rule)),
      drafts_(drafter, *verifier_, cache, model.config().vocab, options),
      ahead_(model, cache, drafter, drafts_, options),
      exits_(model, cache, options.max_rows, options.max_nodes),
      pass_(cache, drafter, options.max_rows) {
  reserve_for_needs();
  // What a round takes, so that the first one with so much accepted need not grow it.
  const auto nodes = static_cast<size_t>(options.max_nodes);
  path_.reserve(nodes + 1);
  verdict_.accepted.reserve(nodes);
}

Decoder::~Decoder() = default;

void Decoder::on_new_needs() {
  pass_.tap(drafter_->needs().tap_layers);
  ahead_.tap(drafter_->needs().tap_layers);
  reserve_for_needs();
}

// Commits point into these, so that they must not grow in a round.
void Decoder::reserve_for_needs() {
  if (drafter_ == nullptr) return;
  top_tokens_.reserve(static_cast<size_t>(options_.max_rows) *
                      static_cast<size_t>(drafter_->needs().top_tokens));
  taps_.reserve(static_cast<size_t>(std::min(options_.max_rows, options_.max_logits)) *
                pass_.batch().tap_layers.size() * static_cast<size_t>(model_.config().hidden));
}

Expected<std::unique_ptr<Sequence>> Decoder::open(std::span<const int32_t> prompt,
                                                  const SequenceOptions& options) {
  const int vocab = model_.config().vocab;
  AERIE_RETURN_IF_ERROR(check_sequence(prompt, options, vocab, options_.max_positions));
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
  AERIE_RETURN_IF_ERROR(attach(*sequence));
  sequence->reused = cache_.committed(sequence->cache);
  ++next_id_;
  return sequence;
}

// Leaves the keys of all tokens but the last in prefix_keys_.
int Decoder::reusable(std::span<const int32_t> tokens, const SequenceOptions& options) {
  if (!options_.reuse_prefixes || tokens.empty()) return 0;
  // The last token is read in any case: it makes the first logits, or is the root.
  prefix_keys_.assign(tokens.begin(), tokens.end() - 1);
  const int kept = cache_.kept(prefix_keys_, options.tenant);
  if (kept == 0 || drafter_ == nullptr || !options.speculate) return kept;
  return std::min(kept, drafter_->reusable(tokens.first(static_cast<size_t>(kept) + 1),
                                           options.drafter, options.tenant));
}

// Opens it in cache and drafter, with what is kept of its tokens.
Status Decoder::attach(Sequence& sequence) {
  AERIE_ASSIGN_OR_RETURN(sequence.cache, cache_.open());
  const std::span<const int32_t> tokens = sequence.tokens;
  int reused = reusable(tokens, sequence.options);
  if (sequence.wants_all_rows()) reused = 0;
  if (reused > 0) {
    const std::span<const PrefixKey> keys = prefix_keys_;
    reused = cache_.adopt(sequence.cache, keys.first(static_cast<size_t>(reused)),
                          sequence.options.tenant);
  }
  if (!cache_.begins_anywhere() && options_.reuse_prefixes) {
    const int shared = cache_.kept_pages(prefix_keys_, sequence.options.tenant);
    sequence.branch = shared > reused ? shared : 0;
  }
  if (!drafts_for(sequence)) return {};
  DraftSequence draft;
  draft.id = sequence.id;
  draft.tenant = sequence.options.tenant;
  draft.learn = sequence.options.learn;
  draft.drafter = sequence.options.drafter;
  draft.shadow = sequence.options.shadow;
  draft.shadow_stats = &sequence.stats.shadow;
  draft.sampling = sequence.options.sampling;
  draft.noise = options_.rule == VerifyRule::kExact ? DraftNoise::kTarget : DraftNoise::kOwn;
  draft.trees = verifier_->takes_trees();
  draft.max_tokens = options_.max_positions + 1;
  draft.tokens = tokens;
  draft.reused = reused;
  draft.prediction = sequence.options.prediction;
  draft.constraint = sequence.constraint.get();
  draft.target = &exits_;
  Status status = drafter_->open(draft);
  if (!status.ok()) {
    cache_.close(sequence.cache);
    sequence.cache = -1;
  }
  return status;
}

// What was computed for it, for sequences to come.
void Decoder::keep(const Sequence& sequence) {
  if (!options_.reuse_prefixes) return;
  const std::span<const int32_t> tokens = sequence.tokens;
  const auto read = static_cast<size_t>(cache_.committed(sequence.cache));
  prefix_keys_.assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(read));
  cache_.keep(sequence.cache, prefix_keys_, read + 1 >= tokens.size(), sequence.options.tenant);
  if (drafts_for(sequence)) drafter_->keep(sequence.id, tokens);
}

void Decoder::suspend(Sequence& sequence) {
  keep(sequence);
  cache_.close(sequence.cache);
  sequence.cache = -1;
  if (drafts_for(sequence)) drafter_->close(sequence.id);
}

Status Decoder::resume(Sequence& sequence) {
  return attach(sequence);
}

void Decoder::close(Sequence& sequence) {
  if (sequence.cache >= 0) suspend(sequence);
}

int Decoder::unread(const Sequence& sequence) const {
  const int all = sequence.generated() == 0 ? sequence.prompt_length
                                            : static_cast<int>(sequence.tokens.size()) - 1;
  return all - cache_.committed(sequence.cache);
}

bool Decoder::can_branch(const Sequence& sequence, int length,
                         const SequenceOptions& options) const {
  if (!cache_.begins_anywhere() && cache_.committed(sequence.cache) >= length &&
      !cache_.can_begin_at(sequence.cache, length)) {
    return false;
  }
  return drafter_ == nullptr || !options.speculate ||
         drafter_->will_share(sequence.id, length, options.drafter, options.tenant);
}

void Decoder::expect_branch(Sequence& sequence, int length) {
  sequence.branch = length;
  if (cache_.committed(sequence.cache) >= length) cache_.value_beginning(sequence.cache, length);
}

bool Decoder::prepare(Sequence& sequence) const {
  if (sequence.constraint == nullptr) return true;
  const TokenConstraint::Readiness readiness = sequence.constraint->prepare();
  if (readiness == TokenConstraint::Readiness::kFailed) sequence.finish = FinishReason::kError;
  return readiness == TokenConstraint::Readiness::kReady;
}

Status Decoder::prefill(Sequence& sequence, const std::atomic<bool>* cancel) {
  sequence.emitted.clear();
  while (unread(sequence) > 0) {
    if (cancel != nullptr && cancel->load()) {
      return {StatusCode::kCancelled, "stopped while reading the prompt"};
    }
    const int most = sequence.wants_all_rows() ? options_.max_logits : options_.max_rows;
    const int rows = std::min({options_.prefill_chunk, options_.max_rows, most, unread(sequence)});
    const PromptPiece piece[] = {{&sequence, rows}};
    AERIE_RETURN_IF_ERROR(step({}, piece));
  }
  return {};
}

Status Decoder::check_size(Rounds rounds, Pieces pieces) const {
  size_t rows = rounds.size(), logits = rounds.size();
  for (const PromptPiece& piece : pieces) {
    rows += static_cast<size_t>(piece.rows);
    logits += static_cast<size_t>(logit_rows(piece));
  }
  if (rows <= static_cast<size_t>(options_.max_rows) &&
      logits <= static_cast<size_t>(std::min(options_.max_rows, options_.max_logits))) {
    return {};
  }
  return invalid_argument("a pass of {} sequences and {} rows: the model takes {} and {}", logits,
                          rows, options_.max_logits, options_.max_rows);
}

Status Decoder::step(Rounds rounds, Pieces pieces) {
  AERIE_RETURN_IF_ERROR(check_size(rounds, pieces));
  const auto count = rounds.size();
  const auto nodes = static_cast<size_t>(options_.max_nodes);
  while (trees_.size() < count) {
    trees_.emplace_back().nodes.reserve(nodes);
    accepted_.emplace_back().reserve(nodes);
  }
  const StageClock::Scope scope(clock_);
  clock_.enter(Stage::kOther);
  AERIE_RETURN_IF_ERROR(reserve(rounds, pieces));
  Status status = run(rounds, pieces);
  if (status.ok()) return status;
  forget(rounds, pieces);
  // That code means the cache, before anything has changed.
  return status.code() == StatusCode::kResourceExhausted ? internal_error(status.message())
                                                         : status;
}

// After an error: of what the pass was to write, nobody knows whether it is there.
void Decoder::forget(Rounds rounds, Pieces pieces) {
  for (const Sequence* sequence : rounds) cache_.truncate(sequence->cache, 0);
  for (const PromptPiece& piece : pieces) cache_.truncate(piece.sequence->cache, 0);
}

Status Decoder::run(Rounds rounds, Pieces pieces) {
  exits_.start(rounds);
  clock_.enter(Stage::kDraft);
  drafts_.draft(rounds, pieces, trees_, ahead_.of(rounds, pieces));
  clock_.enter(Stage::kOther);
  drafts_.reserve(rounds, pieces, trees_);
  pass_.clear();
  for (size_t i = 0; i < rounds.size(); ++i) pass_.add_round(*rounds[i], trees_[i]);
  clock_.enter(rounds.empty() ? Stage::kPrefill : Stage::kVerify);
  const double before = clock_.times().of(Stage::kVerify);
  AERIE_RETURN_IF_ERROR(exits_.go_on(pass_.batch(), trees_));
  // Rows that go on from exits cannot share a pass with others.
  const bool from_exits = pass_.batch().first_layer != 0;
  const bool apart = from_exits && !pieces.empty();
  const int first_row = apart ? 0 : pass_.batch().size();
  ForwardOutputs outputs = apart ? forward({}) : forward(pieces);
  AERIE_RETURN_IF_ERROR(outputs.status);
  clock_.enter(Stage::kSample);
  // A pass that drafting has done a part of, that reads prompts, or that waits for another which
  // was begun in vain is no measure of others.
  const bool is_measure = !from_exits && pieces.empty() && !ahead_.was_another(pass_.batch());
  if (is_measure) {
    learn_cost(clock_.times().of(Stage::kVerify) - before, outputs.experts);
  }
  commits_.clear();
  AERIE_RETURN_IF_ERROR(verify(rounds, outputs));
  if (apart) {
    pass_.clear();
    clock_.enter(Stage::kPrefill);
    outputs = forward(pieces);
    AERIE_RETURN_IF_ERROR(outputs.status);
  }
  return read(pieces, outputs, first_row);
}

// The pass with these pieces, too.
ForwardOutputs Decoder::forward(Pieces pieces) {
  for (const PromptPiece& piece : pieces) {
    pass_.add_piece(piece);
    claim_snapshots(piece);
    mark_branch(piece);
  }
  pass_.number_logits();
  ++target_passes_;
  return model_.forward(pass_.batch(), cache_);
}

// Who begins like this sequence can go on where another branched off.
void Decoder::mark_branch(const PromptPiece& piece) {
  if (!options_.reuse_prefixes) return;
  const Sequence& sequence = *piece.sequence;
  const int first = cache_.committed(sequence.cache);
  if (sequence.branch <= first || sequence.branch > first + piece.rows) return;
  cache_.value_beginning(sequence.cache, sequence.branch);
}

// Of a model whose layers keep states: who begins like this sequence can go on only where one was
// kept. Where another branched off, and a page before the end: the last token is read in any case.
void Decoder::claim_snapshots(const PromptPiece& piece) {
  if (cache_.states() == nullptr || !options_.reuse_prefixes) return;
  const Sequence& sequence = *piece.sequence;
  const int first = cache_.committed(sequence.cache), read = first + unread(sequence);
  const int page = (read - 1) / kernels::kPagePositions * kernels::kPagePositions;
  const std::span<BatchRow> rows = pass_.last_rows(piece.rows);
  for (const int length : {std::min(sequence.branch, page), std::max(sequence.branch, page)}) {
    if (length <= first || length > first + piece.rows) continue;
    const int32_t slot = cache_.claim_snapshot(sequence.cache, length);
    if (slot >= 0) rows[static_cast<size_t>(length - first) - 1].snapshot = slot;
  }
}

// What came of the pieces, whose rows are those of the pass from `first_row` on; then the drafters
// hear of everything.
Status Decoder::read(Pieces pieces, const ForwardOutputs& outputs, int first_row) {
  static const TokenTree kNoDraft;
  int row = first_row, state = 0;
  size_t taps = pass_.has_taps() ? static_cast<size_t>(first_row) : 0;
  for (const PromptPiece& piece : pieces) {
    Sequence& sequence = *piece.sequence;
    const int first = cache_.committed(sequence.cache);
    cache_.commit_first(sequence.cache, piece.rows);
    sequence.emitted.clear();
    if (sequence.scores_prompt()) score(sequence, first, piece.rows, row, outputs);
    AERIE_RETURN_IF_ERROR(outputs.failure());
    if (sequence.options.pooling != Pooling::kNone) {
      pool(sequence, first, piece.rows, outputs, state);
    }
    row += piece.rows;
    const bool ends_prompt = first + piece.rows == sequence.prompt_length;
    if (const int32_t at = pass_.logits_of(row - 1, 1).front(); at >= 0 && ends_prompt) {
      clock_.enter(Stage::kSample);
      SequenceTarget target(sequence, kNoDraft, outputs, std::span(&at, 1));
      verifier_->verify(kNoDraft, target, sequence.sampler.noise(), sequence.tokens.size() - 1,
                        verdict_);
      AERIE_RETURN_IF_ERROR(outputs.failure());
      emit(sequence, kNoDraft, target);
      AERIE_RETURN_IF_ERROR(outputs.failure());
    }
    if (!drafts_for(sequence)) continue;
    DraftCommit commit;
    commit.id = sequence.id;
    commit.tokens = sequence.tokens;
    commit.first = first;
    commit.rows = piece.rows;
    if (pass_.has_taps()) {
      const auto width = static_cast<size_t>(outputs.tap_width);
      const auto rows = static_cast<size_t>(piece.rows);
      commit.taps = outputs.taps.subspan(taps * width, rows * width);
      taps += rows;
    }
    commits_.push_back(commit);
  }
  clock_.enter(Stage::kDraft);
  if (drafter_ != nullptr) AERIE_RETURN_IF_ERROR(observe());
  clock_.enter(Stage::kOther);
  for (const PromptPiece& piece : pieces) {
    if (unread(*piece.sequence) == 0) keep(*piece.sequence);
  }
  return {};
}

// Adds up in the prompt's order, one by one, so that it does not matter how the prompt was cut.
// `state`: of the states of the pass, the next that is not taken; moves on.
void Decoder::pool(Sequence& sequence, int first, int rows, const ForwardOutputs& outputs,
                   int& state) {
  const bool is_mean = sequence.options.pooling == Pooling::kMean;
  const bool ends = first + rows == sequence.prompt_length;
  // Also of one that was preempted and begins anew.
  if (first == 0) sequence.pooled.clear();
  sequence.pooled.resize(static_cast<size_t>(outputs.state_width));
  for (int i = is_mean ? 0 : rows - 1; i < rows && (is_mean || ends); ++i) {
    const std::span<const float> one = outputs.state_of(state++);
    for (size_t k = 0; k < one.size(); ++k) sequence.pooled[k] += one[k];
  }
  if (ends) sequence.finish = FinishReason::kStop;
}

// Of the prompt's tokens behind the rows from `first` on, which the pass has from `row` on.
void Decoder::score(Sequence& sequence, int first, int rows, int row,
                    const ForwardOutputs& outputs) {
  clock_.enter(Stage::kSample);
  sequence.prompt_logprobs.resize(static_cast<size_t>(sequence.prompt_length));
  const std::span<const int32_t> at = pass_.logits_of(row, rows);
  for (int i = 0; i < rows && first + i + 1 < sequence.prompt_length; ++i) {
    const auto next = static_cast<size_t>(first + i + 1);
    sequence.sampler.logprobs(outputs.logits_of(at[static_cast<size_t>(i)]), sequence.tokens[next],
                              sequence.options.sampling.prompt_logprobs,
                              sequence.prompt_logprobs[next]);
  }
}

// Comes first: a draft must not take the room without which another sequence cannot go on.
Status Decoder::reserve(Rounds rounds, Pieces pieces) {
  for (const Sequence* sequence : rounds) {
    AERIE_RETURN_IF_ERROR(cache_.reserve(sequence->cache, 1));
  }
  for (const PromptPiece& piece : pieces) {
    AERIE_RETURN_IF_ERROR(cache_.reserve(piece.sequence->cache, piece.rows, piece.rows));
  }
  return {};
}

// Logits that could not be fetched are no reason to say anything: an error comes before what it
// would spoil.
Status Decoder::verify(Rounds sequences, const ForwardOutputs& outputs) {
  taps_.clear();
  top_tokens_.clear();
  int row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    clock_.enter(Stage::kSample);
    SequenceTarget target(sequence, trees_[i], outputs, pass_.logits_of(row, 1 + trees_[i].size()));
    verifier_->verify(trees_[i], target, sequence.sampler.noise(), sequence.tokens.size() - 1,
                      verdict_);
    AERIE_RETURN_IF_ERROR(outputs.failure());
    const auto before = sequence.tokens.size();
    sequence.emitted.clear();
    emit(sequence, trees_[i], target);
    AERIE_RETURN_IF_ERROR(outputs.failure());
    const auto emitted = static_cast<int>(sequence.tokens.size() - before);
    assert(emitted > 0 || sequence.finish == FinishReason::kError);
    const int kept = std::min(emitted, static_cast<int>(verdict_.accepted.size()));
    this->count(sequence, trees_[i], kept);
    clock_.enter(Stage::kCommit);
    commit(sequence, i, std::max(0, std::min(kept, emitted - 1)), outputs, row);
    if (drafts_for(sequence) && drafter_->needs().top_tokens > 0) {
      clock_.enter(Stage::kDraft);
      commits_.back().top_tokens = rank_tokens(trees_[i], target);
    }
    if (sequence.options.trace) {
      sequence.draft = trees_[i];
      sequence.accepted.assign(verdict_.accepted.begin(), verdict_.accepted.begin() + kept);
    }
    row += 1 + trees_[i].size();
  }
  return {};
}

// Appends the verdict's tokens until one ends the sequence.
void Decoder::emit(Sequence& sequence, const TokenTree& tree, const SequenceTarget& target) {
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
  if (verdict_.next_token == Verdict::kNone) {
    if (!sequence.constraint->status().ok()) sequence.finish = FinishReason::kError;
    return;
  }
  TokenOrigin origin = TokenOrigin::kTarget;
  if (drafts(tree)) origin = verdict_.bonus ? TokenOrigin::kBonus : TokenOrigin::kCorrection;
  put(verdict_.next_token, origin);
}

// Whether the sequence goes on.
bool Decoder::append(Sequence& sequence, int32_t token, TokenOrigin origin) {
  sequence.tokens.push_back(token);
  sequence.emitted.push_back({token, origin, {}});
  if (sequence.constraint != nullptr) sequence.constraint->advance(token);
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
  if (!drafts_for(sequence)) return;
  const size_t from = taps_.size();
  if (pass_.has_taps()) {
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

void Decoder::learn_cost(double seconds, int64_t experts) {
  if (options_.cost == nullptr) return;
  double context = 0.0;
  const ForwardBatch& batch = pass_.batch();
  for (const BatchRow& row : batch.rows) context += row.position;
  const auto sequences = static_cast<int>(batch.sequences.size());
  options_.cost->learn({batch.size(), sequences, context / batch.size()}, seconds, experts);
}

// DraftCommit::top_tokens. Ranking a row takes longer than any drafter without a model, and the
// first nodes are the likeliest to be of use.
std::span<const int32_t> Decoder::rank_tokens(const TokenTree& tree, const SequenceTarget& target) {
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
  return commits_.empty() ? Status() : drafter_->observe(commits_);
}

}  // namespace aerie
