#include "tests/model/text_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/system/topology.h"

namespace aerie::test {
namespace {

constexpr int kChunk = 50;
constexpr int kPositions = 512;

template <typename T>
void read_into(std::ifstream& file, T* out, size_t count) {
  file.read(reinterpret_cast<char*>(out), static_cast<std::streamsize>(count * sizeof(T)));
}

// Version 1 has ids of 16 bits, version 2 of 32.
template <typename Id>
std::vector<uint32_t> read_ids(std::ifstream& file, size_t count) {
  std::vector<Id> ids(count);
  read_into(file, ids.data(), count);
  return {ids.begin(), ids.end()};
}

// Log-probabilities of the whole vocabulary. `out` is the last position's: new memory for each
// would take a sixth of the time.
void log_softmax(std::span<const float> logits, std::vector<double>& out) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  // Exponentials of floats are cheaper than those of doubles, and err by less than 1e-7.
  for (const float x : logits) sum += double{std::exp(x - largest)};
  const double log_sum = std::log(sum);
  out.resize(logits.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = double{logits[i]} - double{largest} - log_sum;
}

}  // namespace

std::vector<Window> read_golden(const char* path) {
  std::ifstream file(path, std::ios::binary);
  char magic[8] = {};
  uint32_t header[4] = {};  // version, windows, tokens of a window, top k
  read_into(file, magic, 8);
  read_into(file, header, 4);
  EXPECT_TRUE(file && std::memcmp(magic, "AERIEFID", 8) == 0 && (header[0] == 1 || header[0] == 2))
      << path;
  std::vector<Window> windows(header[1]);
  for (Window& window : windows) {
    window.tokens.resize(header[2]);
    read_into(file, window.tokens.data(), window.tokens.size());
    window.records.resize(header[2] - 1);
    for (Record& record : window.records) {
      record.logprobs.resize(header[3]);
      read_into(file, &record.next_logprob, 1);
      record.ids = header[0] == 1 ? read_ids<uint16_t>(file, header[3])
                                  : read_ids<uint32_t>(file, header[3]);
      read_into(file, record.logprobs.data(), record.logprobs.size());
    }
  }
  EXPECT_TRUE(file) << path << " is shorter than its header says";
  return windows;
}

TextRunner::TextRunner(const ModelFile& file, kernels::Isa isa, kernels::KvType type)
    : pool_(default_threads()) {
  ModelOptions options;
  options.backend = kernels::backend(isa);
  options.pool = &pool_;
  options.max_rows = kChunk;
  options.max_logits = kChunk;
  options.max_positions = kPositions;
  auto model = load_model(file, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  model_ = std::move(*model);
  auto cache = make_cache(*model_, {.positions = kPositions, .sequences = 1, .type = type});
  EXPECT_TRUE(cache.ok());
  cache_ = std::move(*cache);
}

void TextRunner::each_position(const std::vector<int32_t>& tokens, const Visit& visit) {
  const auto id = cache_->open();
  const int length = static_cast<int>(tokens.size()) - 1;
  std::vector<double> logprobs;
  for (int first = 0; first < length; first += kChunk) {
    const int rows = std::min(kChunk, length - first);
    ASSERT_TRUE(cache_->reserve(*id, rows).ok());
    ForwardBatch batch;
    batch.sequences.push_back({cache_->pages(*id), first, *id});
    for (int i = 0; i < rows; ++i) {
      batch.rows.push_back({0,
                            tokens[static_cast<size_t>(first + i)],
                            first + i,
                            cache_->slot(*id, i),
                            i - 1,
                            {},
                            true,
                            false});
    }
    const ForwardOutputs out = model_->forward(batch, *cache_);
    cache_->commit_first(*id, rows);
    for (int i = 0; i < rows; ++i) {
      log_softmax(out.logits_of(i), logprobs);
      visit(first + i, logprobs);
    }
  }
  cache_->close(*id);
}

double Difference::standard_error() const {
  const double mean_loss = (loss - yardstick_loss) / positions;
  return std::sqrt((squares / positions - mean_loss * mean_loss) / positions);
}

double Difference::perplexity() const {
  return std::exp(loss / positions);
}

double Difference::yardstick_perplexity() const {
  return std::exp(yardstick_loss / positions);
}

Difference difference(TextRunner& yardstick, TextRunner& other, std::span<const Window> windows,
                      const WindowVisit& visit) {
  Difference sum;
  std::vector<std::vector<float>> expected;
  for (const Window& window : windows) {
    expected.resize(std::max(expected.size(), window.tokens.size()));
    yardstick.each_position(window.tokens, [&](int position, const std::vector<double>& logprobs) {
      if (visit) visit(window, position, logprobs);
      expected[static_cast<size_t>(position)].assign(logprobs.begin(), logprobs.end());
    });
    other.each_position(window.tokens, [&](int position, const std::vector<double>& ours) {
      const std::vector<float>& p = expected[static_cast<size_t>(position)];
      const auto next = static_cast<size_t>(window.tokens[static_cast<size_t>(position) + 1]);
      for (size_t i = 0; i < p.size(); ++i) {
        sum.kl += double{std::exp(p[i])} * (double{p[i]} - ours[i]);
      }
      sum.loss -= ours[next];
      sum.yardstick_loss -= double{p[next]};
      const double apart = double{p[next]} - ours[next];
      sum.squares += apart * apart;
      ++sum.positions;
    });
  }
  return sum;
}

}  // namespace aerie::test
