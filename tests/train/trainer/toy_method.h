// A method so small that a test can train it in a blink: from a token, the next one's logits are a
// row of a matrix, and a bias that nothing starts with. Some of the rows are left out at random.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/samples/sample.h"
#include "train/data/features/features.h"
#include "train/methods/training_method.h"
#include "train/run/trainer.h"

namespace aerie::test {

inline constexpr int kToyVocab = 12;
inline constexpr int kToyHidden = 4;
inline constexpr int kToyLayers = 3;

struct ToyOptions {
  double dropout = 0.0;      // of supervised rows, by the generator
  int64_t broken_call = 0;   // the call of accumulate() whose loss is no number; 0: none
  int64_t failing_call = 0;  // that fails
  int wait_ms = 0;           // that each call takes longer
};

class ToyMethod final : public train::Method {
 public:
  explicit ToyMethod(const ToyOptions& options = {});

  const train::MethodNeeds& needs() const override { return needs_; }
  train::Parameters& parameters() override { return parameters_; }
  Expected<train::Figures> accumulate(const train::Batch& batch, double scale,
                                      at::Generator& generator, bool train) override;
  double weight(const train::Batch& batch) const override;
  void set_progress(double share) override { progress.push_back(share); }
  Status write(const std::string& folder) const override;
  train::DraftSettings settings() const override { return {"ngram"}; }

  std::vector<float> values() const;  // of all parameters, in their order
  std::vector<double> progress;       // what set_progress() was told

 private:
  ToyOptions options_;
  train::MethodNeeds needs_;
  train::Parameters parameters_;
  at::Tensor table_, bias_, taps_;
  int64_t calls_ = 0;
};

// Values that say which token of which sample they are of.
class ToyFeatures final : public train::FeatureSource {
 public:
  std::span<const int32_t> tap_layers() const override { return layers_; }
  int hidden() const override { return kToyHidden; }
  Status read(const Sample& sample, std::span<float> out) override;

  static float value(int prompt, int64_t token, int64_t tap, int64_t column);

 private:
  std::vector<int32_t> layers_ = {1, kToyLayers};
};

// Samples of a text in which each token mostly says the next one; prompts of two tokens.
std::vector<Sample> toy_samples(int count, uint64_t seed = 1);

// Pointers to all but every fifth one, which validate.
train::TrainingSet toy_set(const std::vector<Sample>& samples, train::FeatureSource& features);

// Ten steps of few tokens into `folder`.
train::TrainOptions toy_options(const std::string& folder);

}  // namespace aerie::test
