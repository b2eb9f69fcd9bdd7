// Building forward batches by hand and keeping what comes out of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/token_tree.h"
#include "kernels/backend.h"
#include "kernels/device/device.h"
#include "model/model.h"
#include "tests/testing/tiny_model.h"

namespace aerie {

// Every output of one row.
struct RowOutputs {
  std::vector<float> logits;
  std::vector<float> taps;
  std::vector<float> state;
  bool operator==(const RowOutputs&) const = default;
};

// A model with a cache of its own.
class Bench {
 public:
  static constexpr int kPositions = 512;
  Bench(const ModelFile& file, kernels::Isa isa, int threads, int sequences = 4);
  Bench(const ModelFile& file, const kernels::Backend& backend, int threads, int sequences);
  // The layers before `first_layer` are the processor's.
  Bench(const ModelFile& file, device::Device& device, int sequences, int first_layer = 0);
  Bench(const test::TinyFile& file, kernels::Isa isa, int threads, int sequences = 4)
      : Bench(file.gguf(), isa, threads, sequences) {}

  KvCache& cache() { return cache_; }
  Model& model() { return *model_; }

  // Adds `tokens` as a chain behind what is committed; every row wants everything.
  void add_chain(KvCache::Id id, std::span<const int32_t> tokens);
  // Adds a root and a tree behind what is committed.
  void add_tree(KvCache::Id id, int32_t root, const TokenTree& tree);
  ForwardBatch& batch() { return batch_; }
  // Runs the batch, clears it and returns what the rows wanted.
  std::vector<RowOutputs> run();

  // The whole of a sequence in passes of at most `chunk` rows, settled or not. The sequence stays
  // open.
  std::vector<RowOutputs> read(KvCache::Id id, std::span<const int32_t> tokens, int chunk,
                               bool settled = false);

 private:
  Bench(std::unique_ptr<Model> model, const ModelOptions& options, int sequences);
  int32_t add_sequence(KvCache::Id id, int rows);

  std::unique_ptr<Model> model_;
  ModelOptions options_;
  ModelCache owned_cache_;
  KvCache& cache_;
  ForwardBatch batch_;
};

// The file of a format: wide enough for its blocks.
const test::TinyFile& file_of(DType dtype);
int vocab_of_files();

using IsaAndType = std::tuple<kernels::Isa, DType>;
std::string isa_and_type_name(const testing::TestParamInfo<IsaAndType>& param);

// Skips what the processor lacks.
class IsaAndTypeTest : public testing::TestWithParam<IsaAndType> {
 protected:
  void SetUp() override {
    if (!kernels::isa_supported(isa())) {
      GTEST_SKIP() << "this processor lacks " << kernels::isa_name(isa());
    }
  }
  static kernels::Isa isa() { return std::get<0>(GetParam()); }
  static const test::TinyFile& file() { return file_of(std::get<1>(GetParam())); }
};

// Every type with every set of vector instructions. The reference undoes all types with one
// function, so a few stand for it. Where sweeps are thinned out by day, every type with one set,
// these in turn: what differs between sets is the kernels', which have tests of their own.
std::vector<IsaAndType> every_isa_and_type();

// A tree of chains that branch, and branches of branches.
TokenTree random_tree(uint64_t seed, int nodes, int vocab = vocab_of_files());
// Entries of a batch from the root to a node: 0 is the root, 1 + i node i.
std::vector<int32_t> path_to(const TokenTree& tree, int32_t node);

}  // namespace aerie
