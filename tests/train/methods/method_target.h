// A tiny target on disk as both sides see it: the trainer's tensors and the engine's model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/draft/heads/head_models.h"
#include "tests/testing/tiny_model.h"
#include "tests/train/text_target.h"
#include "train/batches/batch.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"

namespace aerie::test {

// A text, of which the first `prompt` tokens were given.
struct PromptedText {
  std::vector<int32_t> tokens;
  int prompt = 0;
};

class MethodTarget {
 public:
  // Fails the test if the target cannot be made. `spec`: with a tokenizer.
  explicit MethodTarget(const TinySpec& spec);
  // Of a GGUF file, which must stay.
  explicit MethodTarget(const std::string& path) { open(path); }
  // Small, and says many different tokens at temperature 0.
  static TinySpec usual();

  train::Target& target() { return *target_; }
  HeadModels& models() { return *models_; }
  int vocab() { return target_->config().vocab; }

  // A prompt at random and what the target says then at temperature 0.
  PromptedText say(uint64_t seed, int prompt, int tokens);
  // These texts side by side, with the streams behind the target's last layer.
  train::Batch batch(std::span<const PromptedText> texts);

  // Tokens a round with the head in `folder`, drafting `depth` a round, while the target says the
  // text again from its prompt on. Fails the test if it says another one.
  double accepted_length(const std::string& method, const std::string& folder,
                         const PromptedText& text, int depth);

 private:
  void open(const std::string& path);

  std::unique_ptr<TemporaryFolder> folder_;
  std::unique_ptr<train::Target> target_;
  std::unique_ptr<HeadModels> models_;
};

// The log-probability that head `head` (of those that draft a fixed distance ahead) gives each of
// the labels in row `row` of a batch of one text, read off the loss.
std::vector<float> offset_log_probabilities(train::Method& method, const train::Batch& batch,
                                            int64_t row, int head, std::span<const int32_t> labels);

std::vector<float> log_softmax(std::span<const float> logits);

// |a - b| / |b|.
double relative_distance(std::span<const float> a, std::span<const float> b);

// expect_gradients() of accumulate().
void expect_right_gradients(train::Method& method, const train::Batch& batch, double tolerance);

}  // namespace aerie::test
