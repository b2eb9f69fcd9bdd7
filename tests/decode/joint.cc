#include "tests/decode/joint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "tests/testing/decoding.h"

namespace aerie {
namespace {

using test::TinyFile;

// Of which prompt lookup, too, makes something.
const std::vector<int32_t> kPrompt = {1, 4, 1};
const std::vector<int32_t> kPrediction = {4, 1, 2, 5, 1, 4, 1};

DecoderOptions joint_decoder_options(VerifyRule rule) {
  DecoderOptions options;
  options.rule = rule;
  options.max_positions = kJointPositions;
  options.max_nodes = 6;
  options.max_rows = kJointRows;
  options.max_logits = kJointRows;
  return options;
}

// The probability of each continuation, the first token as the highest digit.
class Enumeration {
 public:
  explicit Enumeration(const JointSetting& setting)
      : model_(setting.target->load(joint_model_options())),
        owned_cache_(test::cache_for(*model_, joint_decoder_options(VerifyRule::kExact), 1)),
        cache_(*owned_cache_),
        sampler_(setting.params, kJointVocab),
        depth_(setting.tokens) {
    cells.resize(static_cast<size_t>(std::pow(kJointVocab, depth_)));
    tokens_ = kPrompt;
    descend(0, 0, 1.0, setting.constraint.get());
  }
  std::vector<double> cells;

 private:
  void descend(int depth, size_t cell, double probability, const TokenConstraint* constraint) {
    if (depth == depth_) {
      cells[cell] = probability;
      return;
    }
    Distribution next;
    const std::vector<float> logits = forward();
    sampler_.distribution(logits, {tokens_, {}, constraint}, next);
    for (size_t i = 0; i < next.size(); ++i) {
      std::unique_ptr<TokenConstraint> behind;
      if (constraint != nullptr) {
        behind = constraint->fork();
        behind->advance(next.ids[i]);
      }
      tokens_.push_back(next.ids[i]);
      descend(depth + 1, cell * kJointVocab + static_cast<size_t>(next.ids[i]),
              probability * next.probs[i], behind.get());
      tokens_.pop_back();
    }
  }

  std::vector<float> forward() {
    const KvCache::Id id = *cache_.open();
    const int length = static_cast<int>(tokens_.size());
    EXPECT_TRUE(cache_.reserve(id, length).ok());
    ForwardBatch batch;
    batch.sequences.push_back({cache_.pages(id), 0, id});
    for (int i = 0; i < length; ++i) {
      BatchRow row;
      row.token = tokens_[static_cast<size_t>(i)];
      row.position = i;
      row.slot = cache_.slot(id, i);
      row.parent = i - 1;
      row.wants_logits = i == length - 1;
      batch.rows.push_back(row);
    }
    const auto logits = model_->forward(batch, cache_).logits_of(0);
    cache_.close(id);
    return {logits.begin(), logits.end()};
  }

  std::unique_ptr<Model> model_;
  ModelCache owned_cache_;
  KvCache& cache_;
  Sampler sampler_;
  int depth_;
  std::vector<int32_t> tokens_;
};

Model& joint_model(const TinyFile& file) {
  static std::map<const TinyFile*, std::unique_ptr<Model>> models;
  std::unique_ptr<Model>& model = models[&file];
  if (model == nullptr) model = file.load(joint_model_options());
  return *model;
}

}  // namespace

test::TinySpec joint_spec(double head_scale, uint64_t seed) {
  test::TinySpec spec;
  spec.layers = 1;
  spec.hidden = 32;
  spec.heads = spec.kv_heads = 1;
  spec.ffn = 32;
  spec.vocab = kJointVocab;
  spec.seed = seed;
  spec.head_scale = head_scale;
  return spec;
}

ModelOptions joint_model_options() {
  ModelOptions options = test::model_options();
  options.max_rows = kJointRows;
  options.max_logits = kJointRows;
  options.max_positions = kJointPositions;
  return options;
}

JointOutcome compare_with_joint(const JointSetting& setting, Drafter* drafter) {
  stats::ChiSquareSettings settings;
  settings.total_variation = setting.total_variation;
  stats::ChiSquareTest chi_square(Enumeration(setting).cells, settings);
  Model& model = joint_model(*setting.target);
  const ModelCache owned_cache =
      test::cache_for(model, joint_decoder_options(setting.rule), kJointSequences);
  KvCache& cache = *owned_cache;
  Decoder decoder(model, cache, drafter, joint_decoder_options(setting.rule));
  SequenceOptions options;
  options.sampling = setting.params;
  options.constraint = setting.constraint;
  options.prediction = kPrediction;
  options.max_tokens = setting.tokens + setting.further;
  JointOutcome outcome;
  outcome.samples = chi_square.samples();
  for (int64_t first = 0; first < outcome.samples; first += kJointSequences) {
    std::vector<std::unique_ptr<Sequence>> samples;
    for (int64_t i = first; i < std::min(first + kJointSequences, outcome.samples); ++i) {
      options.sampling.seed = static_cast<uint64_t>(i);
      samples.push_back(std::move(decoder.open(kPrompt, options)).value());
      EXPECT_TRUE(decoder.prefill(*samples.back()).ok());
    }
    std::vector<Sequence*> batch;
    for (const auto& sample : samples) batch.push_back(sample.get());
    const auto is_done = [&](const Sequence* s) { return s->generated() >= setting.tokens; };
    for (std::erase_if(batch, is_done); !batch.empty(); std::erase_if(batch, is_done)) {
      EXPECT_TRUE(decoder.round(batch).ok());
    }
    for (const auto& sample : samples) {
      size_t cell = 0;
      for (int t = 0; t < setting.tokens; ++t) {
        const auto token = sample->tokens[kPrompt.size() + static_cast<size_t>(t)];
        cell = cell * kJointVocab + static_cast<size_t>(token);
      }
      chi_square.add(cell);
      outcome.stats.drafted += sample->stats.drafted;
      outcome.stats.accepted += sample->stats.accepted;
      decoder.close(*sample);
    }
  }
  outcome.result = chi_square.result();
  return outcome;
}

}  // namespace aerie
