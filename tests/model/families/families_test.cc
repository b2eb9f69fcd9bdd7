// Every family against logits that transformers computed for a tiny random model of it.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "format/converted_file.h"
#include "format/gguf/gguf_write.h"
#include "kernels/backend.h"
#include "model/device/load_device_model.h"
#include "model/import/hugging_face_file.h"
#include "model/model.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/device/test_device.h"

namespace aerie::families_families_test {

ThreadPool& pool() {
  static ThreadPool instance(2);
  return instance;
}

// The logits after each token of a sequence that fills the context.
std::vector<std::vector<float>> compute(const ModelFile& file, kernels::Isa isa,
                                        const std::vector<int32_t>& tokens,
                                        device::Device* device = nullptr) {
  ModelOptions options;
  options.backend = kernels::backend(isa);
  options.pool = &pool();
  options.max_positions = static_cast<int>(tokens.size());
  auto model =
      device != nullptr ? load_device_model(file, options, *device) : load_model(file, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  const ModelCache cache =
      make_cache(**model, {.positions = options.max_positions, .sequences = 1}).value();
  const auto id = cache->open();
  std::vector<std::vector<float>> logits;
  constexpr int kChunk = 11;
  for (int first = 0; first < options.max_positions; first += kChunk) {
    const int rows = std::min(kChunk, options.max_positions - first);
    EXPECT_TRUE(cache->reserve(*id, rows).ok());
    ForwardBatch batch;
    batch.sequences.push_back({cache->pages(*id), first, *id});
    for (int i = 0; i < rows; ++i) {
      batch.rows.push_back({0,
                            tokens[static_cast<size_t>(first + i)],
                            first + i,
                            cache->slot(*id, i),
                            i - 1,
                            {},
                            true,
                            false});
    }
    EXPECT_TRUE(check_batch(batch, (*model)->config(), options).ok());
    const ForwardOutputs out = (*model)->forward(batch, *cache);
    EXPECT_TRUE(out.status.ok()) << out.status.message();
    for (int i = 0; i < rows; ++i) {
      logits.emplace_back(out.logits_of(i).begin(), out.logits_of(i).end());
    }
    cache->commit_first(*id, rows);
  }
  return logits;
}

// What rounding to 8 bits may cost these models: a mean KL divergence.
constexpr double kRounding = 5e-3;

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

// Whether products round rows of activations to 8 bits, which transformers does not.
bool rounds_activations(const ModelFile& file, kernels::Isa isa) {
  return std::ranges::any_of(file.tensors(), [isa](const TensorInfo& tensor) {
    return kernels::backend(isa)->wants_int8(*tensor.dtype);
  });
}

void expect_golden(const ModelFile& file, const FamilyGolden& golden, kernels::Isa isa) {
  const bool rounds = rounds_activations(file, isa);
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
      if (!rounds) {
        EXPECT_EQ(top(logits[i]), top(sequence.logits[i])) << "position " << i;
      }
    }
  }
  EXPECT_LT(kl / positions, rounds ? kRounding : 1e-4) << kernels::isa_name(isa);
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

std::string temporary_gguf() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = fmt::format("aerie_{}_{}.gguf", getpid(), test->name());
  std::replace(name.begin(), name.end(), '/', '_');
  return std::filesystem::path(testing::TempDir()) / name;
}

// The model as a GGUF file, which is removed; what was mapped stays.
std::unique_ptr<ModelFile> through_gguf(const ModelFile& file) {
  const std::string path = temporary_gguf();
  const Status written = write_gguf(file, path);
  EXPECT_TRUE(written.ok()) << written.message();
  auto reopened = open_model_file(path);
  EXPECT_TRUE(reopened.ok()) << reopened.status().message();
  std::filesystem::remove(path);
  return reopened.ok() ? std::move(*reopened) : nullptr;
}

std::unique_ptr<ModelFile> converted(const std::string& name, DType type) {
  auto file = ConvertedFile::wrap(open_family_model(name), {type, true}, pool());
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? std::move(*file) : nullptr;
}

void expect_same_bits(const ModelFile& one, const ModelFile& other, const FamilyGolden& golden) {
  for (const FamilyGolden::Sequence& sequence : golden.sequences) {
    const auto a = compute(one, kernels::best_isa(), sequence.tokens);
    const auto b = compute(other, kernels::best_isa(), sequence.tokens);
    ASSERT_EQ(a.size(), sequence.tokens.size());
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].size(), b[i].size());
      EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)), 0)
          << "position " << i << " of " << a.size();
    }
  }
}

TEST_P(Families, AreComputedByDevices) {
  const auto file = open_family_model(GetParam());
  const Status supported = supported_by_device(*file);
  ASSERT_TRUE(supported.ok()) << supported.message();
  std::vector<double> kls;
  for (const FamilyGolden::Sequence& sequence : read_family_golden(GetParam()).sequences) {
    const auto logits =
        compute(*file, kernels::best_isa(), sequence.tokens, &test::device_of_tests());
    ASSERT_EQ(logits.size(), sequence.tokens.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      kls.push_back(divergence(sequence.logits[i], logits[i]));
    }
  }
  // Where two experts are worth about the same, roundings decide, and another expert makes another
  // row: of models with experts the farthest eighth is left out.
  std::ranges::sort(kls);
  if (read_model_config(*file)->experts > 0) kls.resize(kls.size() - kls.size() / 8);
  const double mean =
      std::accumulate(kls.begin(), kls.end(), 0.0) / static_cast<double>(kls.size());
  EXPECT_LT(mean, kRounding);
  std::printf("device: mean KL %.1e\n", mean);
}

TEST_P(Families, AreTheSameAsGguf) {
  const auto folder = open_family_model(GetParam());
  ASSERT_NE(folder, nullptr);
  const auto gguf = through_gguf(*folder);
  ASSERT_NE(gguf, nullptr);
  EXPECT_EQ(gguf->metadata().size(), folder->metadata().size());
  EXPECT_EQ(gguf->tensors().size(), folder->tensors().size());
  expect_same_bits(*folder, *gguf, read_family_golden(GetParam()));
}

TEST_P(Families, AreTheSameAsConvertedGguf) {
  const FamilyGolden golden = read_family_golden(GetParam());
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(dtype_info(type).name);
    const auto folder = converted(GetParam(), type);
    ASSERT_NE(folder, nullptr);
    const auto gguf = through_gguf(*folder);
    ASSERT_NE(gguf, nullptr);
    expect_same_bits(*folder, *gguf, golden);
  }
}

// What a type costs these models, whose random weights are harder on it than trained ones: a mean
// KL divergence of so much at most.
TEST_P(Families, StayCloseWhenConverted) {
  const struct {
    DType type;
    double bound;
  } kTypes[] = {{DType::kF16, 1e-4}, {DType::kBF16, 2e-3}, {DType::kQ8_0, 2e-2}};
  const FamilyGolden golden = read_family_golden(GetParam());
  for (const auto& [type, bound] : kTypes) {
    const auto file = converted(GetParam(), type);
    ASSERT_NE(file, nullptr);
    const ModelConfig config = *read_model_config(*file);
    double kl = 0.0;
    size_t positions = 0;
    for (const FamilyGolden::Sequence& sequence : golden.sequences) {
      const auto logits = compute(*file, kernels::best_isa(), sequence.tokens);
      ASSERT_EQ(logits.size(), sequence.tokens.size());
      for (size_t i = 0; i < logits.size(); ++i) kl += divergence(sequence.logits[i], logits[i]);
      positions += logits.size();
    }
    // Where two experts are about as good, a rounded router's input chooses the other.
    const double chosen = config.experts > 0 ? 10.0 : 1.0;
    EXPECT_LT(kl / static_cast<double>(positions), chosen * bound) << dtype_info(type).name;
    std::printf("%s: mean KL %.2g\n", std::string(dtype_info(type).name).c_str(),
                kl / static_cast<double>(positions));
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

}  // namespace aerie::families_families_test
