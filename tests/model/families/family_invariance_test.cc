// Row invariance of every family: windows, soft caps, norms after branches and learned positions
// keep it as plain attention does. invariance_test.cc and tree_test.cc look closer at one family.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/batches.h"
#include "tests/model/families/family_goldens.h"

namespace aerie::family_invariance_test {

constexpr int kNodes = 16;

class FamilyInvariance : public testing::TestWithParam<std::string> {
 protected:
  FamilyInvariance() : file_(open_family_model(GetParam())) {}

  // Crosses pages where positions are not learned one by one.
  int length() const { return std::min(read_model_config(*file_)->context, 150) - kNodes; }
  int vocab() const { return std::min(vocab_of_files(), read_model_config(*file_)->vocab); }
  std::vector<int32_t> tokens(uint64_t seed) const {
    return test::random_tokens(seed, length(), vocab());
  }
  std::vector<RowOutputs> one_by_one(kernels::Isa isa, uint64_t seed) const {
    Bench bench(*file_, isa, 1, 1);
    return bench.read(*bench.cache().open(), tokens(seed), 1);
  }
  static std::vector<kernels::Isa> isas() {
    std::vector<kernels::Isa> all;
    for (const kernels::Isa isa : kernels::built_isas()) {
      if (isa != kernels::Isa::kReference && kernels::isa_supported(isa)) all.push_back(isa);
    }
    return all;
  }

  std::unique_ptr<ModelFile> file_;
};

TEST_P(FamilyInvariance, HowThePromptWasCutAndThreads) {
  for (const kernels::Isa isa : isas()) {
    const std::vector<RowOutputs> expected = one_by_one(isa, 1);
    for (const int threads : {1, 2, 3}) {
      Bench bench(*file_, isa, threads, 1);
      for (const int chunk : {5, 64, 512}) {
        for (const bool settled : {false, true}) {
          const KvCache::Id id = *bench.cache().open();
          EXPECT_TRUE(bench.read(id, tokens(1), chunk, settled) == expected)
              << threads << " threads, chunks of " << chunk << (settled ? ", settled" : "");
          bench.cache().close(id);
        }
      }
    }
  }
}

TEST_P(FamilyInvariance, TheBatchAround) {
  for (const kernels::Isa isa : isas()) {
    Bench bench(*file_, isa, 2, 3);
    std::vector<KvCache::Id> ids;
    const std::vector<int32_t> all[] = {tokens(0), tokens(1), tokens(2)};
    const auto last = static_cast<size_t>(length()) - 1;
    for (uint64_t s = 0; s < 3; ++s) {
      ids.push_back(*bench.cache().open());
      bench.read(ids[s], std::span(all[s]).first(last / (s + 1)), 64);
    }
    for (const size_t s : {2u, 0u, 1u}) {
      bench.add_chain(ids[s], std::span(all[s]).subspan(last / (s + 1)));
    }
    const std::vector<RowOutputs> rows = bench.run();
    size_t row = 0;
    for (const size_t s : {2u, 0u, 1u}) {
      const std::vector<RowOutputs> expected = one_by_one(isa, s);
      for (size_t p = last / (s + 1); p <= last; ++p) ASSERT_TRUE(rows[row++] == expected[p]);
    }
  }
}

TEST_P(FamilyInvariance, ANodeIsTheEndOfItsChain) {
  const std::vector<int32_t> prompt = tokens(4);
  const TokenTree tree = random_tree(8, kNodes, vocab());
  const auto prefix = std::span(prompt).first(prompt.size() - 1);
  for (const kernels::Isa isa : isas()) {
    Bench alone(*file_, isa, 1, 1);
    const KvCache::Id chain = *alone.cache().open();
    alone.read(chain, prefix, 64);
    Bench bench(*file_, isa, 2, 1);
    const KvCache::Id id = *bench.cache().open();
    bench.read(id, prefix, 64);
    bench.add_tree(id, prompt.back(), tree);
    const std::vector<RowOutputs> rows = bench.run();
    for (int32_t node = -1; node < tree.size(); ++node) {
      std::vector<int32_t> path = {prompt.back()};
      for (const int32_t entry : path_to(tree, node)) {
        if (entry > 0) path.push_back(tree.nodes[static_cast<size_t>(entry) - 1].token);
      }
      alone.add_chain(chain, path);  // not committed: the next one starts at the same place
      ASSERT_TRUE(rows[static_cast<size_t>(1 + node)] == alone.run().back()) << "node " << node;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FamilyInvariance, testing::ValuesIn(family_models()),
                         family_test_name);

}  // namespace aerie::family_invariance_test
