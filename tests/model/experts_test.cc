// Experts: how they are chosen and ordered, and what of a file is refused.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <random>

#include "measure/passes/counting_backend.h"
#include "model/expert_routing.h"
#include "model/import/hugging_face_file.h"
#include "tests/model/batches.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/tiny_model.h"

namespace aerie::experts_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kExperts = 7;
constexpr int kUsed = 3;

std::vector<float> random_logits(uint64_t seed, int rows) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> logits(static_cast<size_t>(rows) * kExperts);
  for (float& logit : logits) logit = 3.0f * normal(random);
  return logits;
}

constexpr ExpertRouter kNormalized = {.normalized = true};

TEST(ChooseExperts, AreTheLargestWithTheirShares) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> logits = random_logits(seed, 1);
    std::vector<int32_t> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    const auto of = [&](int32_t e) { return double{logits[static_cast<size_t>(e)]}; };
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return of(a) > of(b); });
    for (const bool normalized : {false, true}) {
      int32_t chosen[kUsed];
      float weights[kUsed];
      choose_experts(logits, {.normalized = normalized}, nullptr, kUsed, chosen, weights);
      double sum = 0.0;
      for (int i = 0; i < (normalized ? kUsed : kExperts); ++i) {
        sum += std::exp(of(order[static_cast<size_t>(i)]));
      }
      for (int i = 0; i < kUsed; ++i) {
        EXPECT_EQ(chosen[i], order[static_cast<size_t>(i)]);
        EXPECT_NEAR(double{weights[i]}, std::exp(of(chosen[i])) / sum, 1e-6);
      }
    }
  }
}

TEST(ChooseExperts, OfEqualsTheFirst) {
  int32_t chosen[3];
  float weights[3];
  choose_experts(std::vector<float>{1, 2, 1, 2, 1}, kNormalized, nullptr, 3, chosen, weights);
  EXPECT_THAT(chosen, ElementsAre(1, 3, 0));
}

TEST(ChooseExperts, ChoosesWhateverTheLogitsAre) {
  const float nan = NAN, infinity = INFINITY;
  const std::vector<std::vector<float>> hostile = {{nan, nan, nan, nan},
                                                   {nan, 1, nan, 0},
                                                   {infinity, infinity, 0, nan},
                                                   {-infinity, -infinity, -infinity, -infinity}};
  for (const std::vector<float>& logits : hostile) {
    int32_t chosen[4];
    float weights[4];
    for (int used = 1; used <= 4; ++used) {
      choose_experts(logits, kNormalized, nullptr, used, chosen, weights);
      std::ranges::sort(chosen, chosen + used);
      EXPECT_TRUE(std::ranges::adjacent_find(chosen, chosen + used) == chosen + used);
      EXPECT_GE(chosen[0], 0);
      EXPECT_LT(chosen[used - 1], 4);
    }
  }
  int32_t chosen[2];
  float weights[2];
  choose_experts(hostile[1], kNormalized, nullptr, 2, chosen, weights);
  EXPECT_THAT(chosen, ElementsAre(1, 3)) << "numbers come before NaN";
}

// DeepSeek-V3's, by hand: of four groups of two the best two by the sum of sigmoid and correction.
TEST(ChooseExperts, LooksIntoTheBestGroupsAndWeighsWithoutCorrections) {
  const std::vector<float> logits = {0, 0, 2, -1, 1, 1, 3, -9};
  const float corrections[] = {0.9f, 0, 0, 0, 0, 0, 0, 0};
  ExpertRouter router = {.score = ExpertRouter::Score::kSigmoid, .scale = 2.5};
  router.groups = 4;
  router.used_groups = 2;
  router.by_best_two = true;
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  // Groups are worth 1.9, 1.15, 1.46 and 0.95.
  int32_t chosen[3];
  float weights[3];
  choose_experts(logits, router, corrections, 3, chosen, weights);
  EXPECT_THAT(chosen, ElementsAre(0, 4, 5));
  EXPECT_NEAR(double{weights[0]}, 2.5 * 0.5, 1e-6);
  EXPECT_NEAR(double{weights[1]}, 2.5 * sigmoid(1), 1e-6);
  router.normalized = true;
  choose_experts(logits, router, corrections, 3, chosen, weights);
  const double sum = 0.5 + 2 * sigmoid(1);
  EXPECT_NEAR(double{weights[0]}, 2.5 * 0.5 / sum, 1e-6);
  EXPECT_NEAR(double{weights[2]}, 2.5 * sigmoid(1) / sum, 1e-6);
  choose_experts(logits, router, nullptr, 3, chosen, weights);
  EXPECT_THAT(chosen, ElementsAre(2, 4, 5)) << "groups are worth 1.0, 1.15, 1.46 and 0.95";
}

// DeepSeek-V2's: a group is as good as its best expert, and shares are of all experts.
TEST(ChooseExperts, GroupsMayBeWorthTheirBest) {
  const std::vector<float> logits = {1, 1, 0, 1.5f, -1, 2};
  ExpertRouter router;
  router.groups = 3;
  router.used_groups = 2;
  int32_t chosen[2];
  float weights[2];
  choose_experts(logits, router, nullptr, 2, chosen, weights);
  EXPECT_THAT(chosen, ElementsAre(5, 3));
  router.used_groups = 1;
  choose_experts(logits, router, nullptr, 2, chosen, weights);
  EXPECT_THAT(chosen, ElementsAre(5, 4));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit});
  EXPECT_NEAR(double{weights[0]}, std::exp(2.0) / sum, 1e-6);
  EXPECT_NEAR(double{weights[1]}, std::exp(-1.0) / sum, 1e-6);
}

TEST(ChooseExperts, ChoosesInGroupsWhateverTheLogitsAre) {
  const float nan = NAN, infinity = INFINITY;
  for (const float odd : {nan, infinity, -infinity}) {
    for (const auto score : {ExpertRouter::Score::kSoftmax, ExpertRouter::Score::kSigmoid}) {
      ExpertRouter router = {.score = score, .groups = 2, .used_groups = 1};
      router.by_best_two = score == ExpertRouter::Score::kSigmoid;
      int32_t chosen[2];
      float weights[2];
      choose_experts(std::vector<float>(4, odd), router, nullptr, 2, chosen, weights);
      EXPECT_THAT(chosen, ElementsAre(0, 1)) << odd;
    }
  }
}

TEST(ExpertRouting, GroupsRowsByExpert) {
  constexpr int kRows = 40;
  const std::vector<float> logits = random_logits(1, kRows);
  ExpertRouting routing(kRows, kExperts, kUsed);
  for (const int rows : {kRows, 1, 9}) {
    routing.route(logits.data(), rows, kNormalized);
    ASSERT_EQ(routing.rows().size(), static_cast<size_t>(rows * kUsed));
    int64_t next = 0;
    std::vector<int32_t> expert_of;
    for (size_t g = 0; g < routing.groups().size(); ++g) {
      EXPECT_EQ(routing.groups()[g].begin, next);
      EXPECT_GT(routing.groups()[g].rows, 0);
      next += routing.groups()[g].rows;
      expert_of.resize(static_cast<size_t>(next), routing.experts()[g]);
      if (g > 0) {
        EXPECT_LT(routing.experts()[g - 1], routing.experts()[g]);
      }
    }
    EXPECT_EQ(next, rows * kUsed);
    for (int r = 0; r < rows; ++r) {
      int32_t chosen[kUsed];
      float weights[kUsed];
      choose_experts(std::span(logits).subspan(static_cast<size_t>(r) * kExperts, kExperts),
                     kNormalized, nullptr, kUsed, chosen, weights);
      for (int i = 0; i < kUsed; ++i) {
        const auto place =
            static_cast<size_t>(routing.places()[static_cast<size_t>(r * kUsed + i)]);
        EXPECT_EQ(routing.rows()[place], r);
        EXPECT_EQ(expert_of[place], chosen[i]);
        EXPECT_EQ(routing.weights()[r * kUsed + i], weights[i]);
      }
    }
  }
}

// A golden model's file with other metadata or fewer tensors.
class ChangedFile final : public ModelFile {
 public:
  explicit ChangedFile(const ModelFile& file, std::string_view key = {}, int64_t value = 0,
                       std::string_view left_out = {})
      : ModelFile("changed"), file_(file) {
    Metadata metadata(file.metadata().begin(), file.metadata().end());
    const auto at = std::ranges::find(metadata, key, [](const auto& entry) { return entry.first; });
    const MetadataValue changed = {"i64", MetadataScalar(value)};
    if (at != metadata.end()) {
      at->second = changed;
    } else if (!key.empty()) {
      metadata.emplace_back(key, changed);
    }
    std::vector<TensorInfo> tensors;
    for (const TensorInfo& tensor : file.tensors()) {
      if (tensor.name != left_out) tensors.push_back(tensor);
    }
    set_contents(std::move(metadata), std::move(tensors));
  }

  std::string format() const override { return "test"; }
  int64_t file_bytes() const override { return 0; }

 private:
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override {
    return file_.read(tensor.name);
  }

  const ModelFile& file_;
};

void expect_refused(const ModelFile& file, StatusCode code, std::string_view what) {
  const auto model = load_model(file, test::model_options());
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  EXPECT_THAT(model.status().message(), HasSubstr(std::string(what)));
}

TEST(Experts, WhatTheFileSaysOfThemIsChecked) {
  const auto file = open_family_model("qwen3-moe");
  const struct {
    const char* key;
    int64_t value;
    StatusCode code;
  } kCases[] = {
      {"expert_count", 0, StatusCode::kInvalidData},
      {"expert_count", -1, StatusCode::kInvalidData},
      {"expert_count", 1 << 20, StatusCode::kInvalidData},
      {"expert_used_count", 0, StatusCode::kInvalidData},
      {"expert_used_count", 1000, StatusCode::kInvalidData},
      {"expert_feed_forward_length", 0, StatusCode::kInvalidData},
      {"expert_gating_func", 2, StatusCode::kUnsupported},
      {"expert_weights_scale", 3, StatusCode::kUnsupported},
  };
  for (const auto& [key, value, code] : kCases) {
    expect_refused(ChangedFile(*file, std::string("qwen3moe.") + key, value), code, key);
  }
  // Another number of experts than the tensors have.
  const int64_t count = read_model_config(*file)->experts;
  expect_refused(ChangedFile(*file, "qwen3moe.expert_count", count + 1), StatusCode::kInvalidData,
                 "blk.0.");
  expect_refused(ChangedFile(*file, "qwen3moe.expert_feed_forward_length", 48),
                 StatusCode::kInvalidData, "blk.0.");
}

TEST(Experts, NoTensorMayBeMissing) {
  const auto file = open_family_model("qwen2-moe");
  for (const char* name : {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
                           "blk.1.ffn_down_exps.weight", "blk.0.ffn_gate_shexp.weight",
                           "blk.1.ffn_down_shexp.weight", "blk.0.ffn_gate_inp_shexp.weight"}) {
    expect_refused(ChangedFile(*file, {}, 0, name), StatusCode::kNotFound, name);
  }
  // Without a router the layer would have an ordinary feed-forward, which the file lacks.
  expect_refused(ChangedFile(*file, {}, 0, "blk.0.ffn_gate_inp.weight"), StatusCode::kNotFound,
                 "blk.0.ffn_");
  // And a shared expert that nobody announced has no place.
  expect_refused(ChangedFile(*file, "qwen2moe.expert_shared_feed_forward_length", 0),
                 StatusCode::kUnsupported, "shexp");
}

// A dense model as a mixture of experts that are all the same ("upcycled": Komatsuzaki et al. 2022,
// 2212.05055), with a router that chooses differently for each row.
class Upcycled final : public ModelFile {
 public:
  static constexpr int64_t kCopies = 5;

  explicit Upcycled(const ModelFile& file) : ModelFile("upcycled"), file_(file) {
    Metadata metadata(file.metadata().begin(), file.metadata().end());
    const auto add = [&](const char* key, int64_t value) {
      metadata.emplace_back(key, MetadataValue{"i64", MetadataScalar(value)});
    };
    add("llama.expert_count", kCopies);
    add("llama.expert_used_count", 3);
    std::vector<TensorInfo> tensors;
    for (TensorInfo tensor : file.tensors()) {
      const std::string name(tensor.name);
      const size_t at = name.find(".ffn_");
      const bool copied = at != std::string::npos && name.find("norm") == std::string::npos;
      if (copied) {
        origins_[names_.emplace_back(name.substr(0, name.rfind('.')) + "_exps.weight")] = name;
        tensor.name = names_.back();
        tensor.shape[2] = kCopies;
        tensor.bytes *= kCopies;
        if (name.find("ffn_gate") != std::string::npos) {
          TensorInfo router = tensor;
          router.name = names_.emplace_back(name.substr(0, at) + ".ffn_gate_inp.weight");
          router.shape = {tensor.shape[0], kCopies, 1, 1};
          set_type(router, DType::kF32);
          tensors.push_back(router);
        }
      }
      tensors.push_back(tensor);
    }
    set_contents(std::move(metadata), std::move(tensors));
  }

  std::string format() const override { return "test"; }
  int64_t file_bytes() const override { return 0; }

 private:
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override {
    const auto origin = origins_.find(std::string(tensor.name));
    const bool router = tensor.name.ends_with("ffn_gate_inp.weight");
    if (origin == origins_.end() && !router) return file_.read(tensor.name);
    TensorData data;
    AERIE_ASSIGN_OR_RETURN(data.owned, Buffer::allocate(static_cast<size_t>(tensor.bytes)));
    data.view = {*tensor.dtype, Device::kCpu, tensor.shape, data.owned.data()};
    if (router) {
      std::mt19937_64 random(7);
      for (float& weight : data.owned.as<float>()) {
        weight = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
      }
      return data;
    }
    AERIE_ASSIGN_OR_RETURN(const TensorData one, file_.read(origin->second));
    for (int64_t copy = 0; copy < kCopies; ++copy) {
      std::memcpy(data.owned.data() + copy * one.view.bytes(), one.view.data,
                  static_cast<size_t>(one.view.bytes()));
    }
    return data;
  }

  const ModelFile& file_;
  std::deque<std::string> names_;
  std::map<std::string, std::string> origins_;
};

TEST(Experts, AllAlikeAreTheDenseModel) {
  const auto dense = open_family_model("llama3");
  const Upcycled mixture(*dense);
  const int vocab = read_model_config(*dense)->vocab;
  const std::vector<int32_t> tokens = test::random_tokens(3, 60, vocab);
  for (const kernels::Isa isa : {kernels::Isa::kReference, kernels::best_isa()}) {
    Bench one(*dense, isa, 1, 1), other(mixture, isa, 2, 1);
    const auto expected = one.read(*one.cache().open(), tokens, 64);
    const auto rows = other.read(*other.cache().open(), tokens, 64);
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t i = 0; i < static_cast<size_t>(vocab); ++i) {
        EXPECT_NEAR(double{rows[r].logits[i]}, double{expected[r].logits[i]}, 2e-4);
      }
    }
  }
}

TEST(Experts, AFamilyWithoutThemRefusesThem) {
  const auto file = open_family_model("gemma2");
  expect_refused(ChangedFile(*file, "gemma2.expert_count", 8), StatusCode::kUnsupported,
                 "expert_count");
}

TEST(Experts, OfAFolderMustBeAllThere) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / fmt::format("aerie_experts_{}", getpid());
  const fs::path golden = fs::absolute("tests/golden/families/qwen3-moe");
  fs::create_directories(folder);
  for (const char* name : {"model.safetensors", "generation_config.json"}) {
    if (fs::exists(golden / name)) fs::create_symlink(golden / name, folder / name);
  }
  std::ifstream in(golden / "config.json");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const int64_t count = read_model_config(*open_family_model("qwen3-moe"))->experts;
  const std::string said = fmt::format("\"num_experts\": {}", count);
  ASSERT_NE(text.find(said), std::string::npos);
  const struct {
    int64_t experts;
    const char* what;
  } kCases[] = {{count + 1, "there is no tensor"}, {count - 1, "is of expert"}, {0, "num_experts"}};
  for (const auto& [experts, what] : kCases) {
    std::string changed = text;
    changed.replace(changed.find(said), said.size(), fmt::format("\"num_experts\": {}", experts));
    std::ofstream(folder / "config.json") << changed;
    const auto file = open_model_file(folder.string());
    EXPECT_THAT(file.status().message(), HasSubstr(what));
  }
  fs::remove_all(folder);
}

// Hands the experts' rows on in turns: each gets what its neighbour should have got.
class MistakenBackend final : public measure::CountingBackend {
 public:
  using CountingBackend::CountingBackend;
  void gather(ThreadPool& pool, const float* x, std::span<const int32_t> from,
              kernels::Activations& out) const override {
    std::vector<int32_t> turned(from.begin(), from.end());
    std::ranges::rotate(turned, turned.begin() + 1);
    CountingBackend::gather(pool, x, turned, out);
  }
};

// What row invariance is tested by notices it.
TEST(PlantedFault, AnExpertThatGetsANeighboursRow) {
  for (const char* family : {"mixtral", "qwen3-moe", "qwen35-moe"}) {
    const auto file = open_family_model(family);
    ASSERT_NE(file, nullptr);
    const kernels::Backend& right = *kernels::backend(kernels::best_isa());
    const MistakenBackend mistaken(right);
    const std::vector<int32_t> tokens = test::random_tokens(3, 20, read_model_config(*file)->vocab);
    const auto read = [&](const kernels::Backend& backend, int chunk) {
      Bench bench(*file, backend, 2, 1);
      return bench.read(*bench.cache().open(), tokens, chunk);
    };
    EXPECT_TRUE(read(right, 1) == read(right, 20)) << family;
    EXPECT_FALSE(read(mistaken, 1) == read(mistaken, 20)) << family;
  }
}

}  // namespace aerie::experts_test
