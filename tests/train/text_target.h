// A tiny target, texts that it says, and how well a trained head drafts them in the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "tests/draft/heads/head_models.h"
#include "tests/draft/heads/head_rows.h"
#include "tests/train/temporary_folder.h"
#include "train/batches/batch.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"

namespace aerie::test {

using Text = std::vector<int32_t>;

class TextTarget {
 public:
  TextTarget();

  train::Target& target() { return *target_; }
  HeadModels& models() { return models_; }

  // A prompt at random and what the target says to it at temperature 0.
  Text say(uint64_t seed, int prompt, int tokens);

  // Texts side by side with what the target holds for them; the first `prompt` tokens of each are
  // not the target's own.
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

 private:
  TemporaryFolder folder_;
  std::string path_;
  ThreadPool pool_;
  HeadModels models_;
  std::unique_ptr<train::Target> target_;
};

// Rows of x as a head's are handed over.
std::vector<Floats> rows_of(const at::Tensor& x);
// |actual - expected| / |expected|, over all values.
double relative_error(const at::Tensor& actual, const at::Tensor& expected);
double relative_error(const Floats& actual, const at::Tensor& expected);

}  // namespace aerie::test
