#include "tests/train/trainer/toy_method.h"

#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/philox.h"
#include "train/run/checkpoint_files.h"

namespace aerie::test {

ToyMethod::ToyMethod(const ToyOptions& options) : options_(options) {
  needs_.tap_layers = {1};
  needs_.last = true;
  table_ = parameters_.add("table", at::zeros({kToyVocab, kToyVocab}));
  bias_ = parameters_.add("bias", at::zeros({kToyVocab}));
  taps_ = parameters_.add("taps", at::zeros({2 * kToyHidden, kToyVocab}), 0.5);
}

double ToyMethod::weight(const train::Batch& batch) const {
  return batch.shifted(batch.mask, 1).sum().item<double>();
}

Expected<train::Figures> ToyMethod::accumulate(const train::Batch& batch, double scale,
                                               at::Generator& generator, bool train) {
  ++calls_;
  std::this_thread::sleep_for(std::chrono::milliseconds(options_.wait_ms));
  if (calls_ == options_.failing_call) return Status(StatusCode::kInternal, "the toy is broken");
  const at::AutoGradMode gradients(train);
  at::Tensor asked = batch.shifted(batch.mask, 1);
  if (options_.dropout > 0.0) {
    asked = asked * at::rand(asked.sizes(), generator, asked.options()).ge(options_.dropout);
  }
  const at::Tensor logits = table_.index_select(0, batch.tokens) + bias_ +
                            at::matmul(at::cat({batch.taps, batch.last}, 1), taps_);
  const at::Tensor next = batch.shifted(batch.tokens, 1);
  const at::Tensor likely = logits.log_softmax(1).gather(1, next.unsqueeze(1)).squeeze(1);
  at::Tensor loss = -(likely * asked).sum();
  if (calls_ == options_.broken_call) loss = loss * std::numeric_limits<double>::quiet_NaN();
  if (train) (loss * scale).backward();
  train::Figures figures;
  figures.weight = weight(batch);
  figures.add("loss", loss.item<double>());
  figures.add("asked", asked.sum().item<double>());
  return figures;
}

Status ToyMethod::write(const std::string& folder) const {
  return train::write_checkpoint(folder, {{"table", table_}, {"bias", bias_}}, Json{{"toy", true}});
}

std::vector<float> ToyMethod::values() const {
  std::vector<float> all;
  for (const train::Parameter& parameter : parameters_.list()) {
    const at::Tensor flat = parameter.value.detach().reshape({-1}).contiguous();
    all.insert(all.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return all;
}

float ToyFeatures::value(int prompt, int64_t token, int64_t tap, int64_t column) {
  return 0.01F * static_cast<float>(prompt) + 0.1F * static_cast<float>(token) -
         static_cast<float>(tap) + 0.25F * static_cast<float>(column);
}

Status ToyFeatures::read(const Sample& sample, std::span<float> out) {
  size_t i = 0;
  for (size_t t = 0; t < sample.tokens.size(); ++t) {
    for (int64_t tap = 0; tap < 2; ++tap) {
      for (int64_t column = 0; column < kToyHidden; ++column) {
        out[i++] = value(sample.prompt, static_cast<int64_t>(t), tap, column);
      }
    }
  }
  return {};
}

std::vector<Sample> toy_samples(int count, uint64_t seed) {
  std::vector<Sample> samples;
  for (int s = 0; s < count; ++s) {
    Sample sample;
    sample.prompt = s;
    sample.id = sample_id(s, 0);
    const auto draw = [&](uint32_t i) {
      return philox4x32({i, static_cast<uint32_t>(s), 0, 0}, {static_cast<uint32_t>(seed), 0})[0];
    };
    const uint32_t length = 5 + draw(0) % 12;
    auto token = static_cast<int32_t>(draw(1) % kToyVocab);
    for (uint32_t t = 0; t < length; ++t) {
      sample.tokens.push_back(token);
      sample.mask.push_back(t < 2 ? 0 : 1);
      const uint32_t drawn = draw(2 + t);
      token = drawn % 8 == 0 ? static_cast<int32_t>(drawn / 8 % kToyVocab)
                             : (token * 5 + 3) % kToyVocab;
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

train::TrainingSet toy_set(const std::vector<Sample>& samples, train::FeatureSource& features) {
  train::TrainingSet set;
  for (const Sample& sample : samples) {
    (sample.prompt % 5 == 4 ? set.validation : set.training).push_back(&sample);
  }
  set.features = &features;
  return set;
}

train::TrainOptions toy_options(const std::string& folder) {
  train::TrainOptions options;
  options.folder = folder;
  options.config = {"toy", {{"--seed", "1"}}, {}};
  options.budget.steps = 10;
  options.schedule = {.rate = 0.05, .warmup = 0.2, .floor = 0.1};
  options.plan = {.batch_tokens = 40, .max_length = 14, .seed = 1};
  options.log_steps = 1;
  options.checkpoint = {};
  return options;
}

}  // namespace aerie::test
