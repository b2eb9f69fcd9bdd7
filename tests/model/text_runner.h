// Log-probabilities of a model along recorded texts, and how far those of two models are apart.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "format/model_file.h"
#include "kernels/backend.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace aerie::test {

// What tests/golden/*-fidelity.bin holds of a window of text.
struct Record {
  float next_logprob;
  std::vector<uint32_t> ids;
  std::vector<float> logprobs;
};
struct Window {
  std::vector<int32_t> tokens;
  std::vector<Record> records;
};
std::vector<Window> read_golden(const char* path);

// Computes windows of at most 512 tokens.
class TextRunner {
 public:
  // `file` must outlive it.
  TextRunner(const ModelFile& file, kernels::Isa isa, kernels::KvType type = kernels::KvType::kF16);

  // Visits the log-probabilities of the whole vocabulary after each token but the last.
  using Visit = std::function<void(int position, const std::vector<double>& logprobs)>;
  void each_position(const std::vector<int32_t>& tokens, const Visit& visit);

 private:
  ThreadPool pool_;
  std::unique_ptr<Model> model_;
  ModelCache cache_;
};

// KL(yardstick || other) over the whole vocabulary, and the perplexities.
struct Difference {
  double kl = 0.0;
  double loss = 0.0;
  double yardstick_loss = 0.0;
  int positions = 0;

  double squares = 0.0;  // of the differences of the losses

  double mean() const { return kl / positions; }
  // Of the ratio of the perplexities, as if positions were independent.
  double standard_error() const;
  double perplexity() const;
  double yardstick_perplexity() const;
};

// `visit` also sees what the yardstick says.
using WindowVisit =
    std::function<void(const Window& window, int position, const std::vector<double>& logprobs)>;
Difference difference(TextRunner& yardstick, TextRunner& other, std::span<const Window> windows,
                      const WindowVisit& visit = nullptr);

}  // namespace aerie::test
