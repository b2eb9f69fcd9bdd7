#include "tests/decode/exactness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "draft/auto/combined.h"
#include "draft/auto/controller.h"
#include "draft/auto/draft_gate.h"
#include "draft/lookup/corpus_index.h"
#include "draft/lookup/lookahead.h"
#include "draft/lookup/ngram.h"
#include "draft/lookup/prediction.h"
#include "draft/lookup/recycling.h"
#include "draft/lookup/rest.h"
#include "draft/lookup/suffix.h"
#include "draft/network/draft_model.h"
#include "draft/network/early_exit.h"
#include "draft/network/layer_skip.h"
#include "model/device/load_device_model.h"
#include "tests/testing/test_drafters.h"
#include "tests/testing/tiny_model.h"

namespace aerie {
namespace {

using test::Replies;
using test::Request;
using test::TinyFile;
using test::TinySpec;

const TinyFile& target_file() {
  static const TinyFile file(TinySpec{});
  return file;
}

// Another shape and other weights; the same vocabulary.
const TinyFile& other_file() {
  TinySpec spec;
  spec.layers = 1;
  spec.hidden = 32;
  spec.heads = spec.kv_heads = 2;
  spec.ffn = 64;
  spec.seed = 77;
  static const TinyFile file(spec);
  return file;
}

const ModelFile& target_of(const Setting& setting) {
  if (setting.target != nullptr) return *setting.target;
  return setting.head != nullptr ? test::easy_file().gguf() : target_file().gguf();
}

int vocab_of(const Setting& setting) {
  return read_model_config(target_of(setting))->vocab;
}

// From the smallest to an ordinary window.
LookaheadOptions lookahead_options(const Setting& setting) {
  LookaheadOptions options;
  options.window = 1 + setting.length / 3;
  options.ngram = 2 + setting.length % 4;
  options.guesses = 1 + setting.length / 4;
  options.num_tokens = lookahead_nodes(options);
  return options;
}

std::unique_ptr<Model> load(const ModelFile& file, const ModelOptions& options,
                            const Setting& setting) {
  const int last = read_model_config(file)->layers - 1;
  auto model = setting.device != nullptr ? load_device_model(file, options, *setting.device,
                                                             std::min(setting.first_layer, last))
                                         : load_model(file, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

DraftModelOptions draft_model_options(const Setting& setting) {
  DraftModelOptions options;
  options.num_tokens = setting.length;
  if (setting.kind == DraftKind::kModelTree || setting.kind == DraftKind::kPrunedTree) {
    options.num_tokens = 3 * setting.length;
    options.num_steps = setting.length;
    options.top_k = 2;
  } else if (setting.kind == DraftKind::kStaticTree) {
    options.num_tokens = 3 * setting.length;
    options.shape = find_static_tree("eagle");
  }
  options.vocab = vocab_of(setting);
  options.max_positions = setting.positions;
  options.max_rows = setting.draft_rows;
  options.max_sequences = static_cast<int>(setting.requests.size());
  options.cache_type = setting.cache_type;
  return options;
}

// All but the last tokens, which are all read as the first of these.
std::shared_ptr<const VocabularyMap> most_tokens(int vocab) {
  std::vector<int32_t> ids(static_cast<size_t>(vocab - vocab / 16));
  std::iota(ids.begin(), ids.end(), 0);
  return std::make_shared<const VocabularyMap>(VocabularyMap::of_ids(std::move(ids), vocab, vocab));
}

std::unique_ptr<Drafter> draft_model(const ModelFile& file, const Setting& setting) {
  DraftModelOptions options = draft_model_options(setting);
  if (setting.kind == DraftKind::kPrunedTree) options.vocabulary = most_tokens(options.vocab);
  ModelOptions model_options = test::model_options(setting.threads);
  model_options.max_rows = options.max_rows;
  auto drafter = make_draft_model_drafter(load(file, model_options, setting), options);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

test::Prophecies prophecies(std::span<const Request> requests, const Replies& plain) {
  test::Prophecies result;
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<int32_t> all = requests[i].prompt;
    all.insert(all.end(), plain.of[i].tokens.begin(), plain.of[i].tokens.end());
    result[static_cast<SequenceId>(i)] = std::move(all);
  }
  return result;
}

// Each text twice, with other tokens in place of every eighth and every ninth.
std::vector<int32_t> corpus_of(std::span<const Request> requests, const Replies& plain) {
  std::vector<int32_t> corpus;
  const test::Prophecies all = prophecies(requests, plain);
  for (const size_t period : {8, 9}) {
    for (const auto& [id, text] : all) {
      for (size_t i = 0; i < text.size(); ++i) corpus.push_back(i % period == 7 ? 0 : text[i]);
      corpus.push_back(CorpusIndex::kEnd);
    }
  }
  return corpus;
}

// Gives each sequence plain decoding's reply as its prediction, but for every ninth token.
class Predicted final : public test::TestDrafter {
 public:
  Predicted(std::unique_ptr<Drafter> inner, const Replies& plain) : inner_(std::move(inner)) {
    for (const test::Reply& reply : plain.of) {
      predictions_.push_back(reply.tokens);
      for (size_t i = 8; i < reply.tokens.size(); i += 9) predictions_.back()[i] = 0;
    }
  }

  Status open(const DraftSequence& sequence) override {
    DraftSequence predicted = sequence;
    predicted.prediction = predictions_[static_cast<size_t>(sequence.id)];
    return inner_->open(predicted);
  }
  void close(SequenceId id) override { inner_->close(id); }
  Status propose(std::span<DraftRequest> requests) override { return inner_->propose(requests); }
  Status observe(std::span<const DraftCommit> commits) override { return inner_->observe(commits); }

 private:
  std::unique_ptr<Drafter> inner_;
  std::vector<std::vector<int32_t>> predictions_;
};

std::unique_ptr<Drafter> drafter_for(const Setting& setting, const Replies& plain, Model& target);

const PassCost& pass_cost() {
  static const PassCost cost({{1, 0.01, 0.0}, {64, 0.02, 0.0}});
  return cost;
}

// Most drafts are cheap beside that and some are dear, the same ones in every run.
std::function<double()> uneven_clock() {
  return [seconds = 0.0, calls = 0]() mutable {
    seconds += ++calls % 14 == 0 ? 2e-3 : 5e-5;
    return seconds;
  };
}

std::unique_ptr<Drafter> combined(const Setting& setting, const Replies& plain, Model& target,
                                  std::initializer_list<DraftKind> kinds, Combination how) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (const DraftKind kind : kinds) {
    Setting one = setting;
    one.kind = kind;
    drafters.push_back(drafter_for(one, plain, target));
  }
  if (how != Combination::kAuto) {
    return std::move(combine_drafters(std::move(drafters), how)).value();
  }
  ControllerOptions options;
  options.max_rows = setting.max_logits;
  options.clock = uneven_clock();
  return std::move(make_controller(std::move(drafters), pass_cost(), options)).value();
}

std::unique_ptr<Drafter> gated(const Setting& setting, const Replies& plain, Model& target,
                               DraftKind kind) {
  Setting one = setting;
  one.kind = kind;
  GateOptions options;
  options.max_rows = setting.max_logits;
  options.clock = uneven_clock();
  return make_gate(drafter_for(one, plain, target), pass_cost(), options);
}

std::unique_ptr<Drafter> head_drafter(const Setting& setting, const Model& target) {
  test::TinyHeadRun run;
  run.drafter.num_tokens = setting.kind == DraftKind::kHead ? setting.length : 3 * setting.length;
  run.drafter.num_steps = setting.length;
  if (setting.kind != DraftKind::kHead) run.drafter.top_k = 3;
  run.drafter.beams = setting.kind == DraftKind::kHeadBeams;
  if (setting.kind == DraftKind::kHeadEagleTree) run.drafter.shape = find_static_tree("eagle");
  if (setting.kind == DraftKind::kHeadMedusaTree) run.drafter.shape = find_static_tree("medusa");
  run.drafter.max_sequences = static_cast<int>(setting.requests.size());
  run.max_positions = setting.positions;
  run.pool = &test::pool_of(setting.threads);
  run.cache_type = setting.cache_type;
  // As the engine has it: what the device ranked is not ranked again, of logits that would be
  // brought over for it.
  if (setting.device != nullptr) {
    run.drafter.backend = kernels::backend(kernels::best_isa());
    run.drafter.pool = run.pool;
  }
  return setting.head->drafter(target, run);
}

std::unique_ptr<Drafter> drafter_for(const Setting& setting, const Replies& plain, Model& target) {
  const int vocab = vocab_of(setting);
  switch (setting.kind) {
    case DraftKind::kNgram:
    case DraftKind::kNgramTree: {
      NgramOptions options;
      options.num_tokens = setting.length;
      options.num_matches = setting.kind == DraftKind::kNgram ? 1 : 4;
      return std::move(make_ngram_drafter(options)).value();
    }
    case DraftKind::kPrediction: {
      PredictionOptions options;
      options.num_tokens = setting.length;
      return std::make_unique<Predicted>(std::move(make_prediction_drafter(options)).value(),
                                         plain);
    }
    case DraftKind::kSuffix:
    case DraftKind::kSuffixTree: {
      SuffixOptions options;
      options.num_tokens = setting.length;
      options.offset = 1.0;
      options.tree = setting.kind == DraftKind::kSuffixTree;
      return std::move(make_suffix_drafter(options)).value();
    }
    case DraftKind::kRecycling: {
      RecyclingOptions options;
      options.vocab = vocab;
      options.num_tokens = setting.length;
      return std::move(make_recycling_drafter(options)).value();
    }
    case DraftKind::kRest: {
      RestOptions options;
      options.vocab = vocab;
      options.num_tokens = setting.length;
      return std::move(make_rest_drafter(options, corpus_of(setting.requests, plain))).value();
    }
    case DraftKind::kLookahead:
      return std::move(make_lookahead_drafter(lookahead_options(setting))).value();
    case DraftKind::kEarlyExit: {
      EarlyExitOptions options;
      options.exit_layer = read_model_config(target_of(setting))->layers / 2;
      options.num_tokens = setting.length;
      return std::move(make_early_exit_drafter(options)).value();
    }
    case DraftKind::kLayerSkip: {
      const int layers = target.config().layers;
      std::vector<int32_t> skipped;
      int layer = layers / 2;
      while (target.config().is_read(layer)) ++layer;
      if (layers > 1) skipped.push_back(layer);
      return std::move(
                 make_layer_skip_drafter(target, std::move(skipped), draft_model_options(setting)))
          .value();
    }
    case DraftKind::kOtherModel:
      return draft_model(other_file().gguf(), setting);
    case DraftKind::kSameModel:
    case DraftKind::kModelTree:
    case DraftKind::kStaticTree:
    case DraftKind::kPrunedTree:
      return draft_model(target_of(setting), setting);
    case DraftKind::kRandomChain:
      return test::make_random_chain_drafter(5, setting.length, vocab);
    case DraftKind::kProphetTree:
      return test::make_prophet_tree_drafter(6, 3 * setting.length, vocab,
                                             prophecies(setting.requests, plain));
    case DraftKind::kFirst:
      return combined(setting, plain, target, {DraftKind::kNgram, DraftKind::kOtherModel},
                      Combination::kFirst);
    case DraftKind::kMerged:
      return combined(setting, plain, target,
                      {DraftKind::kOtherModel, DraftKind::kSameModel, DraftKind::kRecycling},
                      Combination::kMerge);
    case DraftKind::kAuto:
      return combined(setting, plain, target,
                      {DraftKind::kNgramTree, DraftKind::kRecycling, DraftKind::kSameModel,
                       DraftKind::kOtherModel},
                      Combination::kAuto);
    case DraftKind::kGated:
      return gated(setting, plain, target, DraftKind::kFirst);
    case DraftKind::kGatedTree:
      return gated(setting, plain, target, DraftKind::kModelTree);
    case DraftKind::kGatedWindow:
      return gated(setting, plain, target, DraftKind::kLookahead);
    case DraftKind::kHeadGated:
      return gated(setting, plain, target, DraftKind::kHeadTree);
    case DraftKind::kSampledTree: {
      test::SampledTreeOptions options;
      options.widths = {3, 2, 1};
      options.vocab = vocab;
      options.without_replacement = true;
      return test::make_sampled_tree_drafter(
          load(target_of(setting), test::model_options(setting.threads), setting), options);
    }
    case DraftKind::kHead:
    case DraftKind::kHeadTree:
    case DraftKind::kHeadEagleTree:
    case DraftKind::kHeadMedusaTree:
    case DraftKind::kHeadBeams:
      return head_drafter(setting, target);
    case DraftKind::kHeadFirst:
      return combined(setting, plain, target, {DraftKind::kSuffix, DraftKind::kHead},
                      Combination::kFirst);
    case DraftKind::kHeadMerged:
      return combined(setting, plain, target, {DraftKind::kHeadTree, DraftKind::kNgram},
                      Combination::kMerge);
    case DraftKind::kHeadAuto:
      return combined(setting, plain, target,
                      {DraftKind::kNgramTree, DraftKind::kHeadTree, DraftKind::kRecycling},
                      Combination::kAuto);
  }
  return nullptr;
}

DecoderOptions decoder_options(const Setting& setting) {
  DecoderOptions options;
  options.rule = setting.rule;
  options.prefill_chunk = setting.chunk;
  options.max_positions = setting.positions;
  constexpr DraftKind kTrees[] = {
      DraftKind::kProphetTree,    DraftKind::kMerged,    DraftKind::kAuto,
      DraftKind::kSampledTree,    DraftKind::kModelTree, DraftKind::kStaticTree,
      DraftKind::kPrunedTree,     DraftKind::kHeadTree,  DraftKind::kHeadEagleTree,
      DraftKind::kHeadMedusaTree, DraftKind::kHeadBeams, DraftKind::kHeadMerged,
      DraftKind::kHeadAuto,       DraftKind::kGatedTree, DraftKind::kHeadGated};
  const bool tree = std::ranges::find(kTrees, setting.kind) != std::end(kTrees);
  options.max_nodes = tree ? 3 * setting.length : setting.length;
  if (setting.kind == DraftKind::kLookahead || setting.kind == DraftKind::kGatedWindow) {
    options.max_nodes = lookahead_nodes(lookahead_options(setting));
  }
  options.max_logits = setting.max_logits;
  return options;
}

ModelOptions target_options(int threads, int positions) {
  ModelOptions options = test::model_options(threads);
  options.max_positions = positions;
  options.max_logits = 256;
  return options;
}

}  // namespace

bool is_gated(DraftKind kind) {
  return kind == DraftKind::kGated || kind == DraftKind::kGatedTree ||
         kind == DraftKind::kGatedWindow || kind == DraftKind::kHeadGated;
}

const char* draft_kind_name(DraftKind kind) {
  constexpr const char* kNames[] = {
      "Ngram",      "NgramTree",  "Prediction",    "Suffix",         "SuffixTree",  "Recycling",
      "Rest",       "Lookahead",  "EarlyExit",     "LayerSkip",      "OtherModel",  "SameModel",
      "ModelTree",  "StaticTree", "PrunedTree",    "RandomChain",    "ProphetTree", "First",
      "Merged",     "Auto",       "Gated",         "GatedTree",      "GatedWindow", "SampledTree",
      "Head",       "HeadTree",   "HeadEagleTree", "HeadMedusaTree", "HeadBeams",   "HeadFirst",
      "HeadMerged", "HeadAuto",   "HeadGated"};
  static_assert(std::size(kNames) == static_cast<size_t>(DraftKind::kHeadGated) + 1);
  return kNames[static_cast<int>(kind)];
}

std::string draft_kind_test_name(const testing::TestParamInfo<DraftKind>& info) {
  return draft_kind_name(info.param);
}

const char* filter_name(Filter filter) {
  constexpr const char* kNames[] = {"no filter", "top-k", "top-p", "min-p", "penalties", "all"};
  return kNames[static_cast<int>(filter)];
}

SamplingParams sampling_with(double temperature, Filter filter, uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  params.temperature = temperature;
  const bool all = filter == Filter::kAll;
  if (all || filter == Filter::kTopK) params.top_k = all ? 40 : 8;
  if (all || filter == Filter::kTopP) params.top_p = 0.85;
  if (all || filter == Filter::kMinP) params.min_p = 0.05;
  if (all || filter == Filter::kPenalties) {
    params.repetition_penalty = 1.15;
    params.frequency_penalty = 0.1;
    params.presence_penalty = 0.2;
  }
  return params;
}

test::Request request_with(const SamplingParams& sampling, int max_tokens, int half, int vocab) {
  Request request;
  const std::vector<int32_t> once = test::random_tokens(9, half, vocab);
  request.prompt = once;
  request.prompt.insert(request.prompt.end(), once.begin(), once.end());
  request.options.sampling = sampling;
  request.options.max_tokens = max_tokens;
  return request;
}

std::vector<Request> mixed_requests(int vocab) {
  std::vector<Request> requests;
  const int lengths[] = {1, 63, 64, 65, 150, 300};
  for (size_t i = 0; i < std::size(lengths); ++i) {
    Request request;
    request.prompt = test::random_tokens(20 + i, lengths[i], vocab);
    request.options.sampling =
        sampling_with(i % 3 == 0 ? 0.0 : 0.5 + 0.2 * static_cast<double>(i), kFilters[i], 50 + i);
    request.options.max_tokens = 40 + 30 * static_cast<int>(i % 4);
    request.options.speculate = i != 2;
    request.joins_at = 5 * static_cast<int>(i / 2);
    requests.push_back(std::move(request));
  }
  return requests;
}

namespace {

Replies plain_replies(Model& model, KvCache& cache, const DecoderOptions& options,
                      std::span<const Request> requests) {
  Replies replies;
  for (const Request& request : requests) {
    Replies one = test::decode(model, cache, nullptr, options, {&request, 1});
    EXPECT_EQ(one.passes, one.prefill_passes + static_cast<int64_t>(one.of[0].tokens.size()) - 1);
    replies.of.push_back(std::move(one.of[0]));
  }
  return replies;
}

}  // namespace

Replies plain_replies(std::span<const Request> requests, VerifyRule rule) {
  Setting setting;
  setting.rule = rule;
  static const std::unique_ptr<Model> model =
      load(target_of(setting), target_options(1, setting.positions), setting);
  const DecoderOptions options = decoder_options(setting);
  static const ModelCache owned_cache = test::cache_for(*model, options, 1);
  KvCache& cache = *owned_cache;
  return plain_replies(*model, cache, options, requests);
}

namespace {

Replies plain_replies(const Setting& setting) {
  const bool usual =
      setting.target == nullptr && setting.head == nullptr && setting.device == nullptr;
  if (usual && setting.cache_type == kernels::KvType::kF16) {
    return plain_replies(setting.requests, setting.rule);
  }
  const auto model = load(target_of(setting), target_options(1, setting.positions), setting);
  const ModelCache owned_alone =
      test::cache_for(*model, decoder_options(setting), 1, setting.cache_type);
  KvCache& alone = *owned_alone;
  return plain_replies(*model, alone, decoder_options(setting), setting.requests);
}

}  // namespace

Replies plain_replies(std::span<const Request> requests, const ModelFile& target) {
  Setting setting;
  setting.target = &target;
  setting.requests.assign(requests.begin(), requests.end());
  return plain_replies(setting);
}

namespace {

// For that many sequences at a time.
KvCache::Windows windows_of(const Setting& setting, int sequences) {
  const int64_t nodes = decoder_options(setting).max_nodes;
  return {setting.chunk + sequences * (1 + nodes), sequences, setting.behind};
}

// The target of the run that is compared.
class Target {
 public:
  Target(const Setting& setting, const ModelOptions& options) {
    if (setting.ranks > 1) {
      ranks_ = std::make_unique<test::ThreadRanks>(target_of(setting), options, setting.ranks,
                                                   setting.spoil);
    } else {
      alone_ = load(target_of(setting), options, setting);
    }
  }
  Model& model() { return ranks_ ? ranks_->leader() : *alone_; }

 private:
  std::unique_ptr<test::ThreadRanks> ranks_;
  std::unique_ptr<Model> alone_;
};

}  // namespace

ServedTwice serve_twice(const Setting& setting, int suspends, const Wrap& wrap) {
  ServedTwice result;
  const Replies plain = plain_replies(setting);
  const ModelOptions options = target_options(setting.threads, setting.positions);
  Target target(setting, options);
  const std::unique_ptr<Drafter> drafter = drafter_for(setting, plain, target.model());
  test::CheckedModel checked(target.model(), options);
  DecoderOptions decoding = decoder_options(setting);
  decoding.reuse_prefixes = true;
  const std::unique_ptr<Model> wrapped = wrap ? wrap(target.model()) : nullptr;
  Model& model = wrapped ? *wrapped : checked;
  const ModelCache owned_cache = test::cache_for(
      model, decoding, 2 * static_cast<int>(setting.requests.size()), setting.cache_type,
      windows_of(setting, 2 * static_cast<int>(setting.requests.size())));
  KvCache& cache = *owned_cache;
  for (test::Replies* replies : {&result.cold, &result.warm}) {
    *replies = test::serve(model, cache, drafter.get(), decoding, setting.requests, suspends);
    if (result.difference.empty()) result.difference = test::difference(plain.of, replies->of);
  }
  return result;
}

Comparison compare_with_plain(const Setting& setting, const Wrap& wrap) {
  Comparison result;
  result.plain = setting.plain != nullptr ? *setting.plain : plain_replies(setting);
  const ModelOptions options = target_options(setting.threads, setting.positions);
  Target target(setting, options);
  const std::unique_ptr<Drafter> drafter = drafter_for(setting, result.plain, target.model());
  test::CheckedModel checked(target.model(), options);
  const std::unique_ptr<Model> wrapped = wrap ? wrap(target.model()) : nullptr;
  Model& model = wrapped ? *wrapped : checked;
  const ModelCache owned_cache = test::cache_for(
      model, decoder_options(setting), static_cast<int>(setting.requests.size()),
      setting.cache_type, windows_of(setting, static_cast<int>(setting.requests.size())));
  KvCache& cache = *owned_cache;
  if (cache.windows() != nullptr) result.window_places = cache.windows()->places();
  result.speculative =
      test::decode(model, cache, drafter.get(), decoder_options(setting), setting.requests);
  EXPECT_EQ(checked.passes(), wrapped ? 0 : result.speculative.passes);
  result.difference = test::difference(result.plain.of, result.speculative.of);
  return result;
}

void expect_speculation(const Setting& setting, const Replies& replies) {
  EXPECT_EQ(replies.passes, replies.prefill_passes + replies.rounds);
  for (size_t i = 0; i < replies.of.size(); ++i) {
    const SequenceStats& stats = replies.of[i].stats;
    if (!setting.requests[i].options.speculate) {
      EXPECT_EQ(stats.drafted, 0);
      continue;
    }
    EXPECT_GT(stats.drafted, 0);
    EXPECT_EQ(stats.round_tokens, static_cast<int64_t>(replies.of[i].tokens.size()) - 1);
    EXPECT_EQ(stats.round_tokens, stats.rounds + stats.accepted);
  }
}

}  // namespace aerie
