// A tiny target on disk as both sides see it, the trainer's tensors and the engine's model: texts
// that it says, and how well a trained head drafts them in the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "draft/network/draft_network.h"
#include "tests/draft/heads/head_models.h"
#include "tests/draft/heads/head_rows.h"
#include "tests/testing/tiny_model.h"
#include "tests/train/temporary_folder.h"
#include "train/batches/batch.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"

namespace aerie::test {

using Text = std::vector<int32_t>;

// Of which the first `prompt` tokens are not the target's own.
struct PromptedText {
  Text tokens;
  int prompt = 0;

  operator const Text&() const { return tokens; }
};

class TextTarget {
 public:
  // Fails the test if the target cannot be made. `spec`: with a tokenizer.
  explicit TextTarget(const TinySpec& spec = three_layers());
  // Of a GGUF file, which must stay.
  explicit TextTarget(const std::string& path) { open(path); }
  // Small, and saying many different tokens at temperature 0; of two layers, and of three to tap.
  static TinySpec usual();
  static TinySpec three_layers();

  train::Target& target() { return *target_; }
  HeadModels& models() { return *models_; }
  int vocab() { return target_->config().vocab; }

  // A prompt at random and what the target says to it at temperature 0.
  PromptedText say(uint64_t seed, int prompt, int tokens);

  // Texts side by side with what the target holds for them.
  train::Batch batch(std::span<const PromptedText> texts,
                     const train::MethodNeeds& needs = {{}, true});
  train::Batch batch(std::span<const Text> texts, int prompt, const train::MethodNeeds& needs);

  struct Round {
    double tokens = 0.0;  // emitted in a round, on the average
    double most = 0.0;    // what that is if every draft is right
  };
  // Decodes with a head from a folder, in chains of `depth` tokens, beside the target, which says
  // the text behind its prompt whatever it reads. The head gets the features of the position `late`
  // before each one's own. Fails the test if the text does not come.
  Round draft(const std::string& method, const std::string& folder, const Text& text, int prompt,
              int depth, int late = 0, HeadSettings settings = {});

  // Tokens a round with such a head while the target says the text again from its prompt on. Fails
  // the test if it says another one.
  double accepted_length(const std::string& method, const std::string& folder,
                         const PromptedText& text, int depth);

 private:
  void open(const std::string& path);
  // Null, failing the test, if the head cannot be loaded.
  std::unique_ptr<Drafter> drafter(const std::string& method, const std::string& folder, int depth,
                                   HeadSettings settings);

  std::unique_ptr<TemporaryFolder> folder_;
  std::unique_ptr<train::Target> target_;
  std::unique_ptr<HeadModels> models_;
};

// Rows of x as a head's are handed over.
std::vector<Floats> rows_of(const at::Tensor& x);
// |actual - expected| / |expected|, over all values.
double relative_error(const at::Tensor& actual, const at::Tensor& expected);
double relative_error(const Floats& actual, const at::Tensor& expected);
double relative_error(std::span<const float> actual, std::span<const float> expected);

// What the engine drafts behind the first `known` tokens of a text, of `depth` depths; `taps`: of
// all its rows. The network's sequence 0, which stays open.
DraftOutputs draft_behind(DraftNetwork& network, const Text& text, size_t known,
                          std::span<const float> taps, int depth);

}  // namespace aerie::test
