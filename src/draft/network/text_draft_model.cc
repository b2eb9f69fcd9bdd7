#include "draft/network/text_draft_model.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "draft/network/score_calibration.h"
#include "draft/sequence_states.h"
#include "kv/chain_rows.h"
#include "sampling/filters.h"

namespace aerie {
namespace {

// Tokens that are read anew: what comes may change how the last words are cut.
constexpr size_t kUnsettled = 16;
// Tokens of the target before the draft with which it is cut, so that spaces and words are seen.
constexpr size_t kLead = 8;
// That a drafted token is right if the one before is, where nothing is known yet.
constexpr double kPromise = 0.6;

struct TextState {
  KvCache::Id cache = -1;
  ScoreCalibration calibration;
  std::string text;           // of the committed tokens
  size_t read = 0;            // tokens that are in it
  std::vector<int32_t> ids;   // the text in the draft model's tokens
  std::vector<int32_t> fed;   // what the cache holds
  bool spelled = true;        // whether the ids' pieces are the text, byte by byte
  std::vector<int32_t> said;  // drafted in this round, in the draft model's tokens
  bool ended = false;         // by itself
  std::vector<int32_t> proposed;
};

class TextDraftModel final : public Drafter {
 public:
  TextDraftModel(std::unique_ptr<Model> model, ModelCache cache, const Tokenizer& target,
                 const Tokenizer& draft, const DraftModelOptions& options)
      : model_(std::move(model)),
        owned_cache_(std::move(cache)),
        cache_(*owned_cache_),
        target_(target),
        draft_(draft),
        options_(options) {}

  std::string_view method() const override { return options_.method; }
  const DrafterNeeds& needs() const override { return needs_; }
  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override;
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  struct Active {
    TextState* state;
    DraftRequest* request;
    int limit;  // tokens to say
  };

  Status read(TextState& state, std::span<const int32_t> tokens) const;
  bool prepare(const Active& active);
  void feed(TextState& state, int rows, bool wants_logits);
  Status say(std::span<const Active> group);
  Status speak(std::span<DraftRequest> requests);
  Status translate(const Active& active);
  Expected<size_t> cut(std::string_view lead, std::string_view said);

  std::unique_ptr<Model> model_;
  ModelCache owned_cache_;
  KvCache& cache_;
  const Tokenizer& target_;
  const Tokenizer& draft_;
  DraftModelOptions options_;
  DrafterNeeds needs_;
  SequenceStates<TextState> states_{options_.method};
  // Scratch.
  std::vector<Active> active_;
  ForwardBatch batch_;
  std::vector<int32_t> cut_;
};

Status TextDraftModel::open(const DraftSequence& sequence) {
  AERIE_RETURN_IF_ERROR(states_.open(sequence, [] { return TextState(); }));
  const auto cache = cache_.open();
  if (!cache.ok()) {
    states_.close(sequence.id);
    return cache.status();
  }
  states_.find(sequence.id)->cache = *cache;
  return {};
}

void TextDraftModel::close(SequenceId id) {
  if (const TextState* state = states_.find(id)) cache_.close(state->cache);
  states_.close(id);
}

// Brings text and ids up to `tokens`.
Status TextDraftModel::read(TextState& state, std::span<const int32_t> tokens) const {
  for (; state.read < tokens.size(); ++state.read) {
    const int32_t token = tokens[state.read];
    if (token < target_.vocab_size() && !target_.is_control(token)) {
      state.text += target_.piece(token);
    }
  }
  // A tokenizer that puts a space before a text would put one in the middle.
  size_t kept = 0, from = 0;
  if (state.spelled && !draft_.strips_leading_space() && state.ids.size() > kUnsettled) {
    kept = state.ids.size() - kUnsettled;
    for (size_t i = 0; i < kept; ++i) {
      if (!draft_.is_control(state.ids[i])) from += draft_.piece(state.ids[i]).size();
    }
  }
  state.ids.resize(kept);
  AERIE_RETURN_IF_ERROR(draft_.encode(std::string_view(state.text).substr(from),
                                      {.add_special = kept == 0}, state.ids));
  size_t bytes = 0;
  for (const int32_t id : state.ids) {
    if (!draft_.is_control(id)) bytes += draft_.piece(id).size();
  }
  state.spelled = bytes == state.text.size();
  return {};
}

// Drops from the cache what is not as it was fed. Whether there is anything to read and room to say
// something.
bool TextDraftModel::prepare(const Active& active) {
  TextState& state = *active.state;
  const auto length = static_cast<int>(state.ids.size());
  if (length == 0 || active.limit <= 0 || length + active.limit > options_.max_positions) {
    return false;
  }
  const auto differ = std::ranges::mismatch(state.ids, state.fed);
  const auto same = static_cast<int>(differ.in1 - state.ids.begin());
  // The last one is read again, for what follows it.
  cache_.truncate(state.cache, std::min({same, length - 1, cache_.committed(state.cache)}));
  const int arrears = length - cache_.committed(state.cache);
  state.fed.resize(static_cast<size_t>(cache_.committed(state.cache)));
  const int rows = arrears + active.limit;
  return cache_.reserve(state.cache, rows, rows).ok();
}

// Adds the next `rows` of ids and of what was said after them.
void TextDraftModel::feed(TextState& state, int rows, bool wants_logits) {
  for (BatchRow& row : add_chain(batch_, cache_, state.cache, rows, true)) {
    const auto at = static_cast<size_t>(row.position);
    row.token = at < state.ids.size() ? state.ids[at] : state.said[at - state.ids.size()];
    state.fed.push_back(row.token);
  }
  if (wants_logits) batch_.rows.back().wants_logits = true;
  cache_.commit_first(state.cache, rows);
}

// One more token of each that is not done. At most max_logits of them.
Status TextDraftModel::say(std::span<const Active> group) {
  std::vector<TextState*> speaking;
  batch_.clear();
  for (const Active& active : group) {
    TextState& state = *active.state;
    if (state.ended || static_cast<int>(state.said.size()) >= active.limit) continue;
    feed(state, 1, true);
    speaking.push_back(&state);
  }
  if (speaking.empty()) return {};
  const ForwardOutputs outputs = model_->forward(batch_, cache_);
  AERIE_RETURN_IF_ERROR(outputs.status);
  for (size_t i = 0; i < speaking.size(); ++i) {
    const int32_t id = find_best(outputs, static_cast<int>(i)).id;
    TextState& state = *speaking[i];
    state.ended = id < 0 || id >= draft_.vocab_size() || draft_.is_control(id) || draft_.is_end(id);
    if (!state.ended) state.said.push_back(id);
  }
  return outputs.failure();
}

// Cuts lead + said into the target's tokens, in cut_. Where the first of them begins that lies in
// `said` alone; the size of cut_ if none does.
Expected<size_t> TextDraftModel::cut(std::string_view lead, std::string_view said) {
  cut_.clear();
  AERIE_RETURN_IF_ERROR(
      target_.encode(std::string(lead) + std::string(said), {.add_special = false}, cut_));
  const size_t border = lead.size() + (target_.strips_leading_space() ? 1 : 0);
  size_t bytes = 0;
  for (size_t i = 0; i < cut_.size() && bytes <= border; ++i) {
    if (bytes == border) return i;
    bytes += target_.piece(cut_[i]).size();
  }
  return cut_.size();
}

Status TextDraftModel::translate(const Active& active) {
  TextState& state = *active.state;
  std::string said;
  for (const int32_t id : state.said) said += draft_.piece(id);
  std::string lead;
  const std::span<const int32_t> tokens = active.request->tokens;
  for (const int32_t token : tokens.last(std::min(tokens.size(), kLead))) {
    if (token >= target_.vocab_size() || target_.is_control(token)) {
      lead.clear();
    } else {
      lead += target_.piece(token);
    }
  }
  AERIE_ASSIGN_OR_RETURN(size_t first, cut(lead, said));
  if (first == cut_.size()) {
    AERIE_ASSIGN_OR_RETURN(first, cut("", said));
  }
  // The last token may go on where the text ends.
  const size_t end = state.ended || cut_.empty() ? cut_.size() : cut_.size() - 1;
  TokenTree& tree = *active.request->tree;
  const int most =
      std::min({options_.num_tokens, active.request->max_nodes, active.request->max_depth});
  double probability = 1.0;
  for (size_t i = first; i < end && tree.size() < most; ++i) {
    probability *= state.calibration.estimate(kPromise);
    tree.add(cut_[i], tree.size() - 1, nullptr, static_cast<float>(probability));
    state.proposed.push_back(cut_[i]);
  }
  return {};
}

Status TextDraftModel::propose(std::span<DraftRequest> requests) {
  AERIE_RETURN_IF_ERROR(states_.check(std::span<const DraftRequest>(requests)));
  Status status = speak(requests);
  if (status.ok()) return status;
  // What a pass was to write is not there.
  for (const DraftRequest& request : requests) {
    TextState& state = states_.use(request);
    state.fed.clear();
    state.proposed.clear();
  }
  return status;
}

Status TextDraftModel::speak(std::span<DraftRequest> requests) {
  active_.clear();
  const int steps = options_.num_steps > 0 ? options_.num_steps : options_.num_tokens;
  int most = 0, readable = options_.max_rows;
  for (DraftRequest& request : requests) {
    TextState& state = states_.use(request);
    state.said.clear();
    state.proposed.clear();
    state.ended = false;
    const int useful = std::min({request.max_nodes, request.max_depth, options_.num_tokens});
    const Active active{&state, &request, useful > 0 ? steps : 0};
    AERIE_RETURN_IF_ERROR(read(state, request.tokens));
    if (!prepare(active)) continue;
    const auto length = static_cast<int>(state.ids.size());
    const int rows = std::min(readable, length - 1 - cache_.committed(state.cache));
    if (rows > 0) {
      batch_.clear();
      feed(state, rows, false);
      AERIE_RETURN_IF_ERROR(model_->forward(batch_, cache_).status);
      readable -= rows;
    }
    // The target and its other sequences wait meanwhile, so that it goes on in the next call.
    request.unread = length - 1 - cache_.committed(state.cache);
    if (request.unread > 0) continue;
    active_.push_back(active);
    most = std::max(most, active.limit);
  }
  const auto group = static_cast<size_t>(std::min(options_.max_logits, options_.max_rows));
  for (int step = 0; step < most; ++step) {
    for (size_t begin = 0; begin < active_.size(); begin += group) {
      AERIE_RETURN_IF_ERROR(
          say(std::span(active_).subspan(begin, std::min(group, active_.size() - begin))));
    }
  }
  for (const Active& active : active_) AERIE_RETURN_IF_ERROR(translate(active));
  return {};
}

Status TextDraftModel::observe(std::span<const DraftCommit> commits) {
  AERIE_RETURN_IF_ERROR(states_.check(commits));
  for (const DraftCommit& commit : commits) {
    TextState& state = states_.use(commit);
    if (commit.tree == nullptr) continue;
    // What came after the old root.
    const auto before = static_cast<size_t>(commit.first) + 1;
    for (size_t i = 0; i < state.proposed.size() && before + i < commit.tokens.size(); ++i) {
      const bool held = state.proposed[i] == commit.tokens[before + i];
      state.calibration.judge(kPromise, held);
      if (!held) break;
    }
    state.proposed.clear();
  }
  return {};
}

}  // namespace

KvCache::Creation text_draft_cache(const ModelConfig& model, const DraftModelOptions& options) {
  KvCache::Creation creation;
  creation.positions =
      draft_cache_positions(options, std::min(options.max_positions, model.context));
  creation.sequences = options.max_sequences;
  creation.type = options.cache_type;
  creation.states = {.loose_rows = 1, .snapshots = 0};  // all that is reserved is settled
  return creation;
}

Expected<std::unique_ptr<Drafter>> make_text_draft_model_drafter(std::unique_ptr<Model> model,
                                                                 const Tokenizer& target,
                                                                 const Tokenizer& draft,
                                                                 const DraftModelOptions& options) {
  if (options.num_tokens < 1) {
    return invalid_argument("num_speculative_tokens is {}, which is not positive",
                            options.num_tokens);
  }
  assert(options.max_rows >= 1 && options.max_logits >= 1 && options.max_sequences >= 1);
  DraftModelOptions fitting = options;
  fitting.max_positions = std::min(options.max_positions, model->config().context);
  AERIE_ASSIGN_OR_RETURN(ModelCache cache,
                         make_cache(*model, text_draft_cache(model->config(), options)));
  return std::unique_ptr<Drafter>(
      std::make_unique<TextDraftModel>(std::move(model), std::move(cache), target, draft, fitting));
}

}  // namespace aerie
