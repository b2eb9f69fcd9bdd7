// Every family against logits that transformers computed for a tiny random model of it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "kernels/backend.h"
#include "model/hugging_face_file.h"
#include "model/model.h"
#include "tests/model/family_goldens.h"

namespace aerie {
namespace {

ThreadPool& pool() {
  static ThreadPool instance(2);
  return instance;
}

// The logits after each token of a sequence that fills the context.
std::vector<std::vector<float>> compute(const ModelFile& file, kernels::Isa isa,
                                        const std::vector<int32_t>& tokens) {
  ModelOptions options;
  options.backend = kernels::backend(isa);
  options.pool = &pool();
  options.max_positions = static_cast<int>(tokens.size());
  auto model = load_model(file, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  auto cache = KvCache::create((*model)->config(), options.max_positions, 1);
  const auto id = cache->open();
  std::vector<std::vector<float>> logits;
  constexpr int kChunk = 11;
  for (int first = 0; first < options.max_positions; first += kChunk) {
    const int rows = std::min(kChunk, options.max_positions - first);
    EXPECT_TRUE(cache->reserve(*id, rows).ok());
    ForwardBatch batch;
    batch.sequences.push_back({cache->pages(*id), first});
    for (int i = 0; i < rows; ++i) {
      batch.rows.push_back({0, tokens[static_cast<size_t>(first + i)], first + i,
                            cache->slot(*id, i), i - 1, true, false});
    }
    EXPECT_TRUE(check_batch(batch, (*model)->config(), options).ok());
    const ForwardOutputs out = (*model)->forward(batch, *cache);
    for (int i = 0; i < rows; ++i) {
      logits.emplace_back(out.logits_of(i).begin(), out.logits_of(i).end());
    }
    cache->commit_first(*id, rows);
  }
  return logits;
}

double divergence(const std::vector<float>& golden, const std::vector<float>& ours) {
  const auto log_sum = [](const std::vector<float>& logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const float x : logits) sum += std::exp(double{x} - largest);
    return largest + std::log(sum);
  };
  const double a = log_sum(golden), b = log_sum(ours);
  double kl = 0.0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double p = double{golden[i]} - a;
    kl += std::exp(p) * (p - (double{ours[i]} - b));
  }
  return kl;
}

size_t top(const std::vector<float>& logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void expect_golden(const ModelFile& file, const FamilyGolden& golden, kernels::Isa isa) {
  double kl = 0.0, worst = 0.0;
  int positions = 0;
  for (const FamilyGolden::Sequence& sequence : golden.sequences) {
    const auto logits = compute(file, isa, sequence.tokens);
    ASSERT_EQ(logits.size(), sequence.tokens.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      ASSERT_EQ(logits[i].size(), sequence.logits[i].size());
      const double one = divergence(sequence.logits[i], logits[i]);
      kl += one;
      worst = std::max(worst, one);
      ++positions;
      EXPECT_EQ(top(logits[i]), top(sequence.logits[i])) << "position " << i;
    }
  }
  EXPECT_LT(kl / positions, 1e-4) << kernels::isa_name(isa);
  std::printf("%s, %s: mean KL %.2g, largest %.2g\n", file.name().c_str(),
              std::string(kernels::isa_name(isa)).c_str(), kl / positions, worst);
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, ComputesWhatTransformersComputes) {
  const auto file = open_family_model(GetParam());
  ASSERT_NE(file, nullptr);
  const FamilyGolden golden = read_family_golden(GetParam());
  for (const auto isa : {kernels::Isa::kReference, kernels::best_isa()}) {
    expect_golden(*file, golden, isa);
  }
}

// The same model with its configuration as transformers 5 writes it.
class NewerSpelling : public testing::TestWithParam<std::string> {};

TEST_P(NewerSpelling, IsRead) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::absolute("tests/golden/families") / GetParam();
  const fs::path other = fs::temp_directory_path() / fmt::format("aerie_families_{}", GetParam());
  fs::remove_all(other);
  fs::create_directory(other);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    if (name == "config.json") continue;
    fs::create_symlink(entry.path(), other / (name == "config.v5.json" ? "config.json" : name));
  }
  const auto file = open_model_file(other.string());
  ASSERT_TRUE(file.ok()) << file.status().message();
  expect_golden(**file, read_family_golden(GetParam()), kernels::best_isa());
  fs::remove_all(other);
}

std::vector<std::string> models_in_two_spellings() {
  std::vector<std::string> names = family_models();
  std::erase_if(names, [](const std::string& name) {
    return !std::filesystem::exists("tests/golden/families/" + name + "/config.v5.json");
  });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, Families, testing::ValuesIn(family_models()), family_test_name);
INSTANTIATE_TEST_SUITE_P(Models, NewerSpelling, testing::ValuesIn(models_in_two_spellings()),
                         family_test_name);

}  // namespace
}  // namespace aerie
