#include "draft/network/draft_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "draft/draft_host.h"
#include "draft/method_settings.h"
#include "draft/network/draft_vocabulary.h"
#include "draft/network/network_keys.h"
#include "draft/network/node_rows.h"
#include "draft/network/text_draft_model.h"
#include "kv/chain_rows.h"
#include "model/registry.h"

namespace aerie {
namespace {

// Rows of one sequence that may share a pass with other sequences'; longer arrears are made up
// first.
constexpr int kSharedRows = 4;
// Of a model that keeps states: beginnings of sequences that others may go on from.
constexpr int kKeptBeginnings = 2;

class ModelNetwork final : public DraftNetwork {
 public:
  ModelNetwork(std::unique_ptr<Model> model, ModelCache cache, const DraftModelOptions& options);

  const DrafterNeeds& needs() const override { return needs_; }
  int vocab() const override { return vocab_; }
  std::span<const int32_t> target_ids() const override {
    return options_.vocabulary != nullptr ? options_.vocabulary->ids() : options_.drafted;
  }
  bool reads(int32_t token) const override { return to_draft(token) >= 0; }
  Status open(int place, const DraftSequence& sequence) override;
  void close(int place) override;
  // What it has not kept it reads again by itself.
  int reusable(std::span<const int32_t> tokens, std::string_view /*tenant*/) const override {
    return static_cast<int>(tokens.size()) - 1;
  }
  void keep(int place, std::span<const int32_t> tokens) override;
  void begin(DraftsAhead* /*ahead*/) override {
    if (status_.ok() && !status().ok()) fail(status());  // of logits that were asked for
    readable_ = options_.max_rows;
    source_ = nullptr;
    status_ = {};
  }
  int start(int place, std::span<const int32_t> tokens, int run, int depth) override;
  int unread(int place) const override { return states_[static_cast<size_t>(place)].unread; }
  int root_rows(int /*place*/) const override { return kSharedRows; }
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
    std::string tenant;
    KvCache::Id cache = -1;
    // The draft model's ids of the first `translated` tokens, where they are others than the
    // target's.
    std::vector<int32_t> spelled;
    size_t translated = 0;
    int unread = 0;                    // of the last start()
    std::span<const int32_t> context;  // of this round, as the draft model reads it
    NodeRows nodes;
  };

  State& at(int place) { return states_[static_cast<size_t>(place)]; }
  int32_t to_draft(int32_t token) const {
    return options_.vocabulary != nullptr ? options_.vocabulary->to_draft(token) : token;
  }
  std::span<const int32_t> context_of(State& state, std::span<const int32_t> tokens) const;
  void feed(State& state, int to, bool wants_logits);
  ForwardOutputs pass();
  void fail(const Status& status);
  std::span<const PrefixKey> keys_of(std::span<const int32_t> context);
  // Whether logits have to be put into the order of the target's ids here.
  bool translates() const { return options_.vocabulary != nullptr && target_ids().empty(); }

  std::unique_ptr<Model> model_;
  ModelCache owned_cache_;
  KvCache& cache_;
  DraftModelOptions options_;
  int vocab_;
  DrafterNeeds needs_;
  std::vector<State> states_;
  int readable_ = 0;  // rows that may still be made up for in this call
  Status status_;
  LogitSource* source_ = nullptr;  // of the last pass
  // Scratch.
  ForwardBatch batch_;
  std::vector<int32_t> above_;  // what rows of the batch point at
  std::vector<int32_t> entries_;
  std::vector<float> translated_, fetched_;
  std::vector<PrefixKey> keys_;
};

ModelNetwork::ModelNetwork(std::unique_ptr<Model> model, ModelCache cache,
                           const DraftModelOptions& options)
    : model_(std::move(model)),
      owned_cache_(std::move(cache)),
      cache_(*owned_cache_),
      options_(options),
      vocab_(model_->config().vocab) {
  if (translates()) vocab_ = options.vocabulary->target_size();
  if (!target_ids().empty()) vocab_ = static_cast<int>(target_ids().size());
  const auto wanted = static_cast<size_t>(options.max_logits);
  const auto depth = static_cast<size_t>(draft_depth(options));
  if (translates()) translated_.resize(wanted * static_cast<size_t>(vocab_));
  states_.resize(static_cast<size_t>(options.max_sequences));
  entries_.reserve(depth);
  above_.reserve(wanted * depth);
}

std::span<const PrefixKey> ModelNetwork::keys_of(std::span<const int32_t> context) {
  keys_.assign(context.begin(), context.end());
  return keys_;
}

void ModelNetwork::keep(int place, std::span<const int32_t> tokens) {
  State& state = at(place);
  const auto read = static_cast<size_t>(cache_.committed(state.cache));
  cache_.keep(state.cache, keys_of(context_of(state, tokens).first(read)), true, state.tenant);
}

Status ModelNetwork::open(int place, const DraftSequence& sequence) {
  State state;
  state.tenant = sequence.tenant;
  AERIE_ASSIGN_OR_RETURN(state.cache, cache_.open());
  if (options_.vocabulary != nullptr) {
    state.spelled.reserve(static_cast<size_t>(options_.max_positions));
  }
  state.nodes.reserve(static_cast<size_t>(most_nodes_run(options_)) *
                      static_cast<size_t>(options_.top_k + 1));
  if (!sequence.tokens.empty()) {
    cache_.adopt(state.cache, keys_of(context_of(state, sequence.tokens)), sequence.tenant);
  }
  at(place) = std::move(state);
  return {};
}

void ModelNetwork::close(int place) {
  cache_.close(at(place).cache);
  at(place) = State();
}

std::span<const int32_t> ModelNetwork::context_of(State& state,
                                                  std::span<const int32_t> tokens) const {
  if (options_.vocabulary == nullptr) return tokens;
  const auto most = static_cast<size_t>(options_.max_positions);
  for (; state.translated < tokens.size() && state.spelled.size() <= most; ++state.translated) {
    const auto ids = options_.vocabulary->spelling(tokens[state.translated]);
    const auto first = options_.vocabulary->beginning();
    if (state.translated == 0 && !std::ranges::equal(ids, first)) {
      state.spelled.assign(first.begin(), first.end());
    }
    state.spelled.insert(state.spelled.end(), ids.begin(), ids.end());
  }
  return state.spelled;
}

int ModelNetwork::start(int place, std::span<const int32_t> tokens, int run, int depth) {
  State& state = at(place);
  state.context = context_of(state, tokens);
  const int length = static_cast<int>(state.context.size());
  // The deepest node is not fed.
  const int possible = std::min(depth, options_.max_positions - length + 1);
  if (length == 0 || possible <= 0) return 0;
  // The root is read again, for what follows it.
  cache_.truncate(state.cache, std::min(cache_.committed(state.cache), length - 1));
  state.nodes.start();
  state.unread = 0;
  // The target and its other sequences wait meanwhile, so that it goes on in the next call.
  if (const int from = cache_.committed(state.cache); length - from > kSharedRows) {
    const int rows = std::min(length - 1 - from, readable_);
    readable_ -= rows;
    if (rows > 0) {
      if (!cache_.reserve(state.cache, rows, rows).ok()) return 0;
      feed(state, from + rows, false);
      if (!pass().status.ok()) return 0;
    }
    state.unread = length - cache_.committed(state.cache);
    if (state.unread > kSharedRows) return 0;
    state.unread = 0;
  }
  const int rest = length - cache_.committed(state.cache);
  return cache_.reserve(state.cache, rest + run, rest).ok() ? possible : 0;
}

// Adds rows for the context up to `to`. They are settled, so they are committed at once.
void ModelNetwork::feed(State& state, int to, bool wants_logits) {
  const int from = cache_.committed(state.cache);
  for (BatchRow& row : add_chain(batch_, cache_, state.cache, to - from, true)) {
    row.token = state.context[static_cast<size_t>(row.position)];
    row.wants_logits = wants_logits && row.position == to - 1;
  }
  cache_.commit_first(state.cache, to - from);
}

void ModelNetwork::add_root(int place) {
  feed(at(place), static_cast<int>(at(place).context.size()), true);
}

void ModelNetwork::add_node(int place, const LevelTree& tree, int32_t node) {
  State& state = at(place);
  const int32_t token = to_draft(tree.nodes()[static_cast<size_t>(node)].token);
  state.nodes.add_row(cache_, state.cache, tree, node, token, batch_, above_);
}

ForwardOutputs ModelNetwork::pass() {
  const ForwardOutputs outputs = model_->forward(batch_, cache_);
  batch_.sequences.clear();
  batch_.rows.clear();
  above_.clear();
  source_ = outputs.source;
  if (!outputs.status.ok()) fail(outputs.status);
  return outputs;
}

// What the pass was to write is not there, whatever was committed of it.
void ModelNetwork::fail(const Status& status) {
  status_ = status;
  for (const State& state : states_) {
    if (state.cache >= 0) cache_.truncate(state.cache, 0);
  }
}

DraftOutputs ModelNetwork::run() {
  const auto wanted =
      std::ranges::count_if(batch_.rows, [](const BatchRow& row) { return row.wants_logits; });
  const auto rows = static_cast<size_t>(wanted);
  const ForwardOutputs outputs = pass();
  if (!outputs.status.ok()) return {};
  if (!translates()) {
    return {outputs.logits, outputs.vocab, {}, static_cast<int>(rows), outputs.source, outputs.top};
  }
  const std::span<const float> logits = outputs.all_logits(static_cast<int>(rows), fetched_);
  if (const Status status = outputs.failure(); !status.ok()) {
    fail(status);
    return {};
  }
  const auto width = static_cast<size_t>(vocab_), own = static_cast<size_t>(outputs.vocab);
  for (size_t row = 0; row < rows; ++row) {
    options_.vocabulary->translate(logits.subspan(row * own, own),
                                   std::span(translated_).subspan(row * width, width));
  }
  return {
      std::span<const float>(translated_).first(rows * width), vocab_, {}, static_cast<int>(rows)};
}

void ModelNetwork::observe(int place, const DraftCommit& /*commit*/,
                           std::span<const int32_t> path) {
  State& state = at(place);
  entries_.clear();
  for (const int32_t node : path) {
    if (state.nodes.entry(node) < 0) break;
    entries_.push_back(state.nodes.entry(node));
  }
  cache_.commit(state.cache, entries_);
}

// What is in the cache is of committed tokens alone; the new root is read by the next draft.
bool ModelNetwork::in_step(int place, const DraftCommit& commit) const {
  const State& state = states_[static_cast<size_t>(place)];
  return options_.vocabulary != nullptr ||
         cache_.committed(state.cache) <= commit.first + commit.rows;
}

// Nodes may be rolled back: those of this draft, and those of the last one that stayed.
KvCache::States states_of(const DraftModelOptions& options) {
  return {int64_t{2} * options.max_sequences * std::max(1, most_nodes_run(options)),
          kKeptBeginnings};
}

// For layers with a window: of as many beginnings as sequences, too; a pass of a prompt's rows, and
// of each sequence what it lacks and its nodes.
KvCache::Windows windows_of(const DraftModelOptions& options) {
  const int64_t each = kSharedRows + most_nodes_run(options);
  return {.rows = options.max_rows + options.max_sequences * each,
          .sequences = 2 * options.max_sequences};
}

}  // namespace

KvCache::Creation draft_cache(const ModelConfig& model, const DraftModelOptions& options) {
  const int longest = std::min(options.max_positions, model.context);
  return {draft_cache_positions(options, int64_t{longest} + most_nodes_run(options)),
          options.max_sequences, options.cache_type, states_of(options), windows_of(options)};
}

Expected<std::unique_ptr<Drafter>> make_draft_model_drafter(std::unique_ptr<Model> model,
                                                            const DraftModelOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  assert(options.max_rows >= kSharedRows && options.max_sequences >= 1);
  DraftModelOptions fitting = options;
  fitting.max_positions = std::min(options.max_positions, model->config().context);
  AERIE_ASSIGN_OR_RETURN(ModelCache cache,
                         make_cache(*model, draft_cache(model->config(), options)));
  auto network = std::make_unique<ModelNetwork>(std::move(model), std::move(cache), fitting);
  return make_network_drafter(std::move(network), options);
}

namespace {

// How the draft model's tokens are matched with the target's.
constexpr MethodKey kVocabulary = {"vocabulary",
                                   MethodKey::Kind::kText,
                                   0,
                                   0,
                                   0,
                                   false,
                                   "how tokens are matched: same, intersection or text"};
constexpr std::string_view kSame = "same", kIntersection = "intersection", kText = "text";
constexpr std::string_view kMatches[] = {kSame, kIntersection, kText};

constexpr auto kDraftModelKeys = joined(
    joined(network_keys("the draft model's file",
                        "passes of the draft model in a round, at most; 0: as many as tokens"),
           kWeightKeys),
    std::array{kVocabulary});

Status check_draft_model(MethodConfig& config) {
  AERIE_RETURN_IF_ERROR(check_tree(config));
  AERIE_RETURN_IF_ERROR(check_draft_type(config));
  const std::string& wanted = config.text(kVocabulary.name);
  if (wanted.empty() || std::ranges::count(kMatches, wanted) > 0) return {};
  return invalid("'{}' must be {}, not '{}'", kVocabulary.name, fmt::join(kMatches, " or "),
                 wanted);
}

// For a draft model whose file says which of the target's tokens its rows stand for.
Status take_own_ids(const MethodConfig& config, const DraftTarget& target, const ModelFile& file,
                    int draft_vocab, DraftModelOptions& options) {
  if (const std::string& wanted = config.text(kVocabulary.name); !wanted.empty()) {
    return invalid_argument(
        "{}: says itself which of the target's tokens it drafts; leave {}={} away", file.name(),
        kVocabulary.name, wanted);
  }
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, read_draft_ids(file, draft_vocab, target.vocab));
  log(LogLevel::kInfo, fmt::format("{}: drafts {} of the target's {} tokens", file.name(),
                                   ids.size(), target.vocab));
  options.vocabulary = std::make_shared<const VocabularyMap>(
      VocabularyMap::of_ids(std::move(ids), target.vocab, draft_vocab));
  return {};
}

// Sets options.vocabulary if the two have to be matched token by token. Whether they meet as text.
Expected<bool> match_vocabularies(const MethodConfig& config, const DraftTarget& target,
                                  const Tokenizer& draft, int draft_vocab,
                                  DraftModelOptions& options) {
  // Of the smaller vocabulary; below it, too many tokens are none of the draft model's.
  constexpr double kEnough = 0.5;
  const std::string& path = config.text(kModelKey);
  const std::string& wanted = config.text(kVocabulary.name);
  const Status same = check_same_vocabulary(*target.tokenizer, draft);
  if (wanted == kSame && !same.ok()) return Status(same).with_context(path);
  if (wanted.empty() || wanted == kSame) {
    if (same.ok()) return false;
  }
  AERIE_ASSIGN_OR_RETURN(VocabularyMap map,
                         VocabularyMap::make(*target.tokenizer, target.vocab, draft, draft_vocab));
  const double coverage =
      static_cast<double>(map.pairs()) /
      std::max(1, std::min({target.tokenizer->vocab_size(), draft.vocab_size(), target.vocab}));
  if (wanted == kIntersection && map.pairs() == 0) {
    return invalid_argument("{}: no token of it is one of the target's; try {}={}", path,
                            kVocabulary.name, kText);
  }
  const bool as_text = wanted == kText || (wanted.empty() && coverage < kEnough);
  log(LogLevel::kInfo,
      fmt::format(
          "{}: another vocabulary than the target's; {} tokens are in both ({:.0f} % of the "
          "smaller), matched by {}",
          path, map.pairs(), 100.0 * coverage, as_text ? kText : kIntersection));
  if (!as_text) options.vocabulary = std::make_shared<const VocabularyMap>(std::move(map));
  return as_text;
}

// Whose tokens are the target's can be kept to some of them.
Status choose_drafted(const MethodConfig& config, const DraftTarget& target, int draft_vocab,
                      bool as_text, DraftModelOptions& options) {
  AERIE_ASSIGN_OR_RETURN(options.drafted, read_drafted_tokens(config, target.vocab));
  if (options.drafted.empty()) return {};
  const std::string& path = config.text(kModelKey);
  if (as_text || options.vocabulary != nullptr) {
    return invalid_argument("{}: has another vocabulary than the target: leave out {}", path,
                            kDraftVocabKey);
  }
  if (options.drafted.back() < draft_vocab) return {};
  return invalid_argument("{}: has {} tokens, and {} names token {}", path, draft_vocab,
                          config.text(kDraftVocabKey), options.drafted.back());
}

Expected<std::unique_ptr<Drafter>> make_draft_model(const MethodConfig& config, DraftHost& host) {
  const DraftTarget& target = host.target();
  const std::string& path = config.text(kModelKey);
  AERIE_ASSIGN_OR_RETURN(const DraftSource source, host.open_model(path, draft_type(config)));
  const ModelFile& file = *source.file;
  AERIE_ASSIGN_OR_RETURN(const ModelConfig model_config, read_model_config(file));
  DraftModelOptions draft;
  static_cast<NetworkDrafterOptions&>(draft) = read_network_options(config, target);
  draft.max_positions = target.max_positions;
  draft.max_rows = 256;
  draft.max_logits = std::max(4, most_nodes_in_pass(draft) * shared_draft_sequences(target));
  draft.cache_type = target.cache_type;
  bool as_text = false;
  if (source.tokenizer == nullptr) {
    AERIE_RETURN_IF_ERROR(take_own_ids(config, target, file, model_config.vocab, draft));
  } else {
    AERIE_ASSIGN_OR_RETURN(
        as_text, match_vocabularies(config, target, *source.tokenizer, model_config.vocab, draft));
  }
  AERIE_RETURN_IF_ERROR(choose_drafted(config, target, model_config.vocab, as_text, draft));
  ModelOptions options;
  options.logit_tokens = draft.drafted;
  options.backend = target.backend;
  options.pool = target.pool;
  options.max_rows = draft.max_rows;
  options.max_logits = draft.max_logits;
  options.max_positions = target.max_positions;
  options.ranks = draft.shape != nullptr ? draft.shape->most_ranks() : draft.top_k;
  if (draft.drafted.empty()) options.weight_cache = target.weight_cache;
  const KvCache::Creation cache =
      as_text ? text_draft_cache(model_config, draft) : draft_cache(model_config, draft);
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                         host.load(path, file, model_config, options, cache));
  if (!as_text) return make_draft_model_drafter(std::move(model), draft);
  return make_text_draft_model_drafter(std::move(model), *target.tokenizer, *source.tokenizer,
                                       draft);
}

}  // namespace

constinit const Method kDraftModelMethod = {
    .name = "draft_model",
    .what = "a smaller model",
    .keys = kDraftModelKeys,
    .aliases = kNetworkAliases,
    .check = check_draft_model,
    .make = make_draft_model,
    .has_cache = true,
    .of_model = true,
};

}  // namespace aerie
