// The parts of a training run, one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "tests/train/temporary_folder.h"
#include "tests/train/trainer/toy_method.h"
#include "train/batches/batch_plan.h"
#include "train/batches/collate.h"
#include "train/batches/loader.h"
#include "train/batches/training_vocabulary.h"
#include "train/nn/adamw.h"
#include "train/nn/adamw_update.h"
#include "train/run/checkpoint_files.h"
#include "train/run/groups/group.h"
#include "train/run/run_folder.h"
#include "train/run/run_log.h"
#include "train/run/run_state.h"
#include "train/run/schedule.h"

namespace aerie::train::parts_test {

using test::TemporaryFolder;
using test::ToyFeatures;
using test::ToyMethod;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Schedule, RisesThenFallsToItsFloor) {
  const Schedule cosine = {.rate = 2.0, .warmup = 0.2, .decay = Decay::kCosine, .floor = 0.1};
  EXPECT_DOUBLE_EQ(rate_at(cosine, 0.0), 0.0);
  EXPECT_DOUBLE_EQ(rate_at(cosine, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(rate_at(cosine, 0.2), 2.0);
  EXPECT_DOUBLE_EQ(rate_at(cosine, 0.6), 2.0 * (0.1 + 0.9 * 0.5));
  EXPECT_NEAR(rate_at(cosine, 1.0), 0.2, 1e-15);
  EXPECT_NEAR(rate_at(cosine, 1.5), 0.2, 1e-15);  // time may run over
  const Schedule linear = {.rate = 2.0, .warmup = 0.0, .decay = Decay::kLinear, .floor = 0.5};
  EXPECT_DOUBLE_EQ(rate_at(linear, 0.0), 2.0);
  EXPECT_DOUBLE_EQ(rate_at(linear, 0.5), 1.5);
  EXPECT_DOUBLE_EQ(rate_at(linear, 1.0), 1.0);
  const Schedule constant = {.rate = 2.0, .warmup = 0.0, .decay = Decay::kConstant};
  EXPECT_DOUBLE_EQ(rate_at(constant, 0.9), 2.0);
}

TEST(Schedule, RefusesWhatCannotBe) {
  EXPECT_FALSE(check(Schedule{.rate = 0.0}).ok());
  EXPECT_FALSE(check(Schedule{.warmup = 1.0}).ok());
  EXPECT_FALSE(check(Schedule{.floor = 1.1}).ok());
  EXPECT_TRUE(check(Schedule{}).ok());
  EXPECT_FALSE(check(Budget{}).ok());
  EXPECT_FALSE(check(Budget{.steps = 1, .epochs = 1}).ok());
  EXPECT_TRUE(check(Budget{.seconds = 1.0}).ok());
  EXPECT_FALSE(parse_decay("quick").ok());
}

// The paper's algorithm 2, value by value in doubles.
TEST(AdamW, StepsAsThePaperHasIt) {
  Parameters parameters;
  const at::Tensor matrix = parameters.add("matrix", at::arange(6, at::kFloat).view({2, 3}));
  const at::Tensor vector = parameters.add("vector", at::ones({3}), 0.1);
  const AdamWOptions options = {.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.5};
  AdamW optimizer(parameters, options);
  std::vector<double> value = {0, 1, 2, 3, 4, 5, 1, 1, 1}, first(9), second(9);
  for (int step = 1; step <= 3; ++step) {
    ((matrix * matrix).sum() * step + vector.sum()).backward();
    optimizer.step(step, 0.1, 0.5);
    for (size_t i = 0; i < 9; ++i) {
      const bool in_matrix = i < 6;
      const double g = 0.5 * (in_matrix ? 2.0 * step * value[i] : 1.0);
      const double rate = in_matrix ? 0.1 : 0.01;
      first[i] = 0.8 * first[i] + 0.2 * g;
      second[i] = 0.9 * second[i] + 0.1 * g * g;
      const double m = first[i] / (1.0 - std::pow(0.8, step));
      const double v = second[i] / (1.0 - std::pow(0.9, step));
      value[i] -= rate * (m / (std::sqrt(v) + 1e-3) + (in_matrix ? 0.5 * value[i] : 0.0));
    }
  }
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(matrix.detach().data_ptr<float>()[i], value[static_cast<size_t>(i)], 1e-5);
  }
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(vector.detach().data_ptr<float>()[i], value[static_cast<size_t>(6 + i)], 1e-5);
  }
  EXPECT_EQ(optimizer.gradients().abs().sum().item<double>(), 0.0);
}

TEST(AdamW, StepsOfTensorsAreThoseOfMemory) {
  const AdamWUpdate update = {0.9F, 0.95F, 0.999F, 0.01F, 1.7F, 1e-8F, 0.25F};
  at::manual_seed(1);
  std::vector<at::Tensor> a, b;
  for (int i = 0; i < 4; ++i) {
    a.push_back(i == 3 ? at::rand({1000}) : at::randn({1000}));  // squares are above 0
    b.push_back(a.back().clone());
  }
  update_tensors(update, a[0], a[1], a[2], a[3]);
  update_floats(update, 1000, b[0].data_ptr<float>(), b[1].data_ptr<float>(),
                b[2].data_ptr<float>(), b[3].data_ptr<float>());
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-5, 1e-6)) << i;
  EXPECT_EQ(a[1].abs().sum().item<double>(), 0.0);
  EXPECT_EQ(b[1].abs().sum().item<double>(), 0.0);
}

TEST(BatchPlan, GoesThroughAllSamplesOnceInAnotherOrderEachEpoch) {
  const std::vector<int64_t> lengths = {7, 3, 30, 12, 5, 9, 1, 14, 22, 6};
  const PlanOptions options = {.batch_tokens = 20, .max_length = 16, .seed = 5};
  std::vector<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> order;
    for (const BatchSamples& batch : plan_epoch(lengths, options, epoch)) {
      ASSERT_FALSE(batch.empty());
      int64_t rows = 0;
      for (const int32_t sample : batch) {
        rows += std::min<int64_t>(lengths[static_cast<size_t>(sample)], 16);
        order.push_back(sample);
      }
      EXPECT_LE(rows, 20);
    }
    EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()).size(), lengths.size());
    EXPECT_EQ(order.size(), lengths.size());
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  EXPECT_EQ(plan_epoch(lengths, options, 1), plan_epoch(lengths, options, 1));
  EXPECT_NE(plan_epoch(lengths, options, 1),
            plan_epoch(lengths, {.batch_tokens = 20, .max_length = 16, .seed = 6}, 1));
  EXPECT_THAT(plan_in_order(lengths, {.batch_tokens = 40, .max_length = 100}).front(),
              ElementsAre(0, 1, 2));
}

TEST(BatchPlan, LongSamplesHaveBatchesOfTheirOwn) {
  const std::vector<int64_t> lengths = {50, 50};
  EXPECT_EQ(plan_epoch(lengths, {.batch_tokens = 20, .max_length = 64}, 0).size(), 2U);
}

// The oldest of 200 takes part in a quarter of the epochs, the newest in all.
TEST(BatchPlan, NewerSamplesCountForMore) {
  const std::vector<int64_t> lengths(200, 4);
  PlanOptions options = {.batch_tokens = 16, .max_length = 16, .seed = 5};
  options.oldest = 0.25;
  std::vector<int> taken(lengths.size());
  for (int64_t epoch = 0; epoch < 400; ++epoch) {
    for (const BatchSamples& batch : plan_epoch(lengths, options, epoch)) {
      for (const int32_t sample : batch) ++taken[static_cast<size_t>(sample)];
    }
    ASSERT_EQ(plan_epoch(lengths, options, epoch), plan_epoch(lengths, options, epoch));
  }
  EXPECT_EQ(taken.back(), 400);
  const auto share = [&](size_t first) {
    return std::accumulate(taken.begin() + static_cast<ptrdiff_t>(first),
                           taken.begin() + static_cast<ptrdiff_t>(first) + 20, 0.0) /
           (20 * 400);
  };
  EXPECT_NEAR(share(0), 0.29, 0.04);
  EXPECT_NEAR(share(90), 0.625, 0.04);
  EXPECT_NEAR(share(180), 0.96, 0.04);
}

TEST(BatchPlan, SeedsDiffer) {
  std::set<uint64_t> seeds;
  for (int64_t step = -1; step < 20; ++step) {
    for (int64_t batch = 0; batch < 20; ++batch) seeds.insert(batch_seed(1, step, batch));
  }
  EXPECT_EQ(seeds.size(), 21U * 20U);
}

TEST(Collate, PutsTokensMasksAndFeaturesInTheirRows) {
  const std::vector<Sample> samples = test::toy_samples(3);
  ToyFeatures features;
  const ToyMethod method;
  const std::vector<const Sample*> chosen = {&samples[2], &samples[0]};
  const auto batch = collate(chosen, 6, method.needs(), &features);
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  ASSERT_EQ(batch->documents.count(), 2);
  for (int64_t d = 0; d < 2; ++d) {
    const Sample& sample = *chosen[static_cast<size_t>(d)];
    ASSERT_EQ(batch->documents.length(d), std::min<int64_t>(6, std::ssize(sample.tokens)));
    for (int64_t t = 0; t < batch->documents.length(d); ++t) {
      const int64_t row = batch->documents.start(d) + t;
      EXPECT_EQ(batch->tokens[row].item<int64_t>(), sample.tokens[static_cast<size_t>(t)]);
      EXPECT_EQ(batch->positions[row].item<int64_t>(), t);
      EXPECT_EQ(batch->mask[row].item<float>(), t < 2 ? 0.0F : 1.0F);
      for (int64_t column = 0; column < test::kToyHidden; ++column) {
        EXPECT_EQ(batch->taps[row][column].item<float>(),
                  ToyFeatures::value(sample.prompt, t, 0, column));
        EXPECT_EQ(batch->last[row][column].item<float>(),
                  ToyFeatures::value(sample.prompt, t, 1, column));
      }
    }
  }
  EXPECT_FALSE(collate(chosen, 6, method.needs(), nullptr).ok());
}

// Features are the same 16 bits, whichever way they go.
TEST(Collate, ForADeviceIsTheSameBehindTheWayThere) {
  const std::vector<Sample> samples = test::toy_samples(3);
  ToyFeatures features;
  const ToyMethod method;
  const std::vector<const Sample*> chosen = {&samples[2], &samples[0], &samples[1]};
  const auto here = collate(chosen, 6, method.needs(), &features);
  auto there = collate(chosen, 6, method.needs(), &features, true);
  ASSERT_TRUE(there.ok()) << there.status().message();
  EXPECT_FALSE(there->taps.defined());
  EXPECT_EQ(there->features.scalar_type(), at::kBFloat16);
  const Batch arrived = to_device(*std::move(there), at::kCPU);
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  EXPECT_TRUE(arrived.taps.equal(rounded(here->taps)));
  EXPECT_TRUE(arrived.last.equal(rounded(here->last)));
  EXPECT_TRUE(arrived.tokens.equal(here->tokens));
}

TEST(Batch, ShiftsWithinDocuments) {
  Batch batch;
  batch.documents.starts = {0, 3, 4, 9};
  batch.positions = at::tensor({0, 1, 2, 0, 0, 1, 2, 3, 4}, at::kLong);
  const at::Tensor x = at::arange(1, 10, at::kLong);
  EXPECT_TRUE(batch.shifted(x, 0).equal(x));
  EXPECT_TRUE(batch.shifted(x, 1).equal(at::tensor({2, 3, 0, 0, 6, 7, 8, 9, 0}, at::kLong)));
  EXPECT_TRUE(batch.shifted(x, 2).equal(at::tensor({3, 0, 0, 0, 7, 8, 9, 0, 0}, at::kLong)));
  EXPECT_TRUE(batch.shifted(x, 100).equal(at::zeros({9}, at::kLong)));
  const at::Tensor wide = at::stack({x, x * 10}, 1).to(at::kFloat);
  EXPECT_TRUE(batch.shifted(wide, 1).select(1, 1).equal(
      at::tensor({20.0F, 30.0F, 0.0F, 0.0F, 60.0F, 70.0F, 80.0F, 90.0F, 0.0F})));
}

// Whatever share of the processes reads them and wherever it begins.
TEST(Loader, GivesThePlansBatches) {
  const std::vector<Sample> samples = test::toy_samples(40);
  ToyFeatures features;
  const TrainingSet set = test::toy_set(samples, features);
  const ToyMethod method;
  const PlanOptions plan = {.batch_tokens = 40, .max_length = 14, .seed = 3};
  const std::vector<int64_t> lengths = lengths_of(set.training);
  const auto epochs = {plan_epoch(lengths, plan, 1), plan_epoch(lengths, plan, 2)};
  for (const auto& [world, rank, start] : {std::tuple(1, 0, 0), {2, 0, 0}, {2, 1, 4}}) {
    Loader loader(set, method.needs(), {plan, 4, rank, world}, {1, start});
    size_t skip = static_cast<size_t>(start);
    for (const auto& epoch : epochs) {
      for (size_t i = skip; i < epoch.size(); ++i) {
        if (static_cast<int>(i % 4) % world != rank) continue;
        const auto batch = loader.next();
        ASSERT_TRUE(batch.ok());
        std::vector<const Sample*> wanted;
        for (const int32_t place : epoch[i]) {
          wanted.push_back(set.training[static_cast<size_t>(place)]);
        }
        EXPECT_TRUE(batch->taps.equal(collate(wanted, 14, method.needs(), &features)->taps));
      }
      skip = 0;
    }
  }
}

class FailingFeatures final : public FeatureSource {
 public:
  std::span<const int32_t> tap_layers() const override { return layers_; }
  int hidden() const override { return test::kToyHidden; }
  Status read(const Sample&, std::span<float>) override {
    return {StatusCode::kInvalidData, "features are broken"};
  }

 private:
  std::vector<int32_t> layers_ = {1, test::kToyLayers};
};

TEST(Loader, HandsErrorsOn) {
  const std::vector<Sample> samples = test::toy_samples(10);
  FailingFeatures features;
  const TrainingSet set = test::toy_set(samples, features);
  Loader loader(set, ToyMethod().needs(), {}, {});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(loader.next().status().message(), HasSubstr("features are broken"));
  }
}

TEST(Group, RefusesWhatCannotBe) {
  EXPECT_EQ(join_group({.world = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(join_group({.world = 2, .rank = 2}).status().code(), StatusCode::kInvalidArgument);
  const auto lone = join_group({});
  ASSERT_TRUE(lone.ok());
  EXPECT_EQ((*lone)->world(), 1);
}

TEST(RunLog, CutsOffWhatCameAfterTheCheckpoint) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/log.jsonl";
  {
    auto log = RunLog::open(path, 0);
    ASSERT_TRUE(log.ok());
    for (const int step : {1, 2, 2, 3}) ASSERT_TRUE(log->add({{"step", step}}).ok());
  }
  std::ofstream(path, std::ios::app) << R"({"step": 4, "los)";
  auto log = RunLog::open(path, 2);
  ASSERT_TRUE(log.ok()) << log.status().message();
  EXPECT_EQ(log->lines().size(), 3U);
  ASSERT_TRUE(log->add({{"step", 9}}).ok());
  EXPECT_EQ(RunLog::open(path, 100)->lines().size(), 4U);
  std::ofstream(path, std::ios::app) << "nonsense\n{\"step\": 9}\n";
  EXPECT_EQ(RunLog::open(path, 100).status().code(), StatusCode::kInvalidData);
}

TEST(RunState, ComesBackAsItWas) {
  const TemporaryFolder folder;
  ToyMethod method;
  AdamW optimizer(method.parameters(), {});
  EXPECT_FALSE(load_state(folder.path(), method.parameters(), optimizer)->has_value());
  optimizer.values().uniform_();
  optimizer.first_moments().uniform_();
  optimizer.second_moments().uniform_();
  RunState state;
  state.step = 7;
  state.position = {2, 3};
  state.rows = 99;
  state.seconds = 1.25;
  state.best = -0.5;
  state.best_step = 5;
  ASSERT_TRUE(save_state(folder.path(), state, method.parameters(), optimizer).ok());

  ToyMethod other;
  AdamW restored(other.parameters(), {});
  const auto back = load_state(folder.path(), other.parameters(), restored);
  ASSERT_TRUE(back.ok() && back->has_value()) << back.status().message();
  EXPECT_EQ((*back)->step, 7);
  EXPECT_EQ((*back)->position, (Position{2, 3}));
  EXPECT_EQ((*back)->rows, 99);
  EXPECT_EQ((*back)->seconds, 1.25);
  EXPECT_EQ((*back)->best, -0.5);
  EXPECT_EQ(other.values(), method.values());
  EXPECT_TRUE(restored.first_moments().equal(optimizer.first_moments()));
  EXPECT_TRUE(restored.second_moments().equal(optimizer.second_moments()));
  EXPECT_EQ(values_checksum(restored), values_checksum(optimizer));
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(RunState, KeepsTwoAndPassesOverADamagedOne) {
  const TemporaryFolder folder;
  ToyMethod method;
  AdamW optimizer(method.parameters(), {});
  for (const int64_t step : {8, 9, 10}) {
    optimizer.values().fill_(static_cast<double>(step));
    RunState state;
    state.step = step;
    ASSERT_TRUE(save_state(folder.path(), state, method.parameters(), optimizer).ok());
  }
  const std::vector<std::string> names = checkpoints_in(folder.path());
  ASSERT_THAT(names,
              ElementsAre("checkpoint-00000009.safetensors", "checkpoint-00000010.safetensors"));
  const auto damage = [&](const std::string& name) {
    std::fstream file(folder.path() + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  };
  damage(names[1]);
  const auto state = load_state(folder.path(), method.parameters(), optimizer);
  ASSERT_TRUE(state.ok() && state->has_value());
  EXPECT_EQ((*state)->step, 9);
  EXPECT_EQ(method.values().front(), 9.0F);
  damage(names[0]);
  EXPECT_EQ(load_state(folder.path(), method.parameters(), optimizer).status().code(),
            StatusCode::kInvalidData);
}

TEST(RunState, RefusesOtherParameters) {
  const TemporaryFolder folder;
  ToyMethod method;
  AdamW optimizer(method.parameters(), {});
  ASSERT_TRUE(save_state(folder.path(), {}, method.parameters(), optimizer).ok());
  Parameters others;
  others.add("table", at::zeros({test::kToyVocab, test::kToyVocab + 1}));
  AdamW other(others, {});
  const auto state = load_state(folder.path(), others, other);
  EXPECT_EQ(state.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(state.status().message(), HasSubstr("table [12, 13]"));
}

TEST(Checkpoint, GivesParametersOfTheSameNames) {
  const TemporaryFolder folder;
  const auto make = [](int64_t columns, int64_t fixed) {
    Parameters parameters;
    parameters.add("matrix", at::arange(2 * columns).reshape({2, columns}));
    parameters.add("norm", at::ones({3}) * 7.5);
    parameters.add_fixed("d2t", at::full({4}, fixed, at::kLong));
    return parameters;
  };
  const Parameters stored = make(4, 1);
  ASSERT_TRUE(write_checkpoint(folder.path(), stored_parameters(stored, true), {{"a", 1}}).ok());

  Parameters own;
  const at::Tensor matrix = own.add("matrix", at::zeros({2, 4}));
  const at::Tensor other = own.add("other", at::zeros({3}));
  own.add_fixed("d2t", at::ones({4}, at::kLong));
  const auto missing = read_parameters(folder.path(), own);
  ASSERT_TRUE(missing.ok()) << missing.status().message();
  EXPECT_EQ(*missing, std::vector<std::string>{"other"});
  EXPECT_TRUE(matrix.equal(stored.list()[0].value));
  EXPECT_EQ(other.sum().item<float>(), 0.0F);

  const auto refused = [&](const Parameters& parameters, const char* why) {
    const auto status = read_parameters(folder.path(), parameters).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused(make(5, 1), "matrix has another type or shape");
  refused(make(4, 2), "--draft-vocab");
  Parameters stranger;
  stranger.add("stranger", at::zeros({1}));
  refused(stranger, "none of its tensors");
}

TEST(RunFolder, IsOfOneRun) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/run";
  const RunConfig config = {"toy", {{"--rate", "0.001"}, {"--seed", "1"}}, {{"--threads", "2"}}};
  ASSERT_TRUE(claim_run(path, config).ok());
  ASSERT_TRUE(claim_run(path, {"toy", {{"--rate", "1e-3"}, {"--seed", "1"}}, {}}).ok());
  const auto refused = [&](const RunConfig& other) {
    const Status status = claim_run(path, other);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(refused({"toy", {{"--rate", "0.002"}, {"--seed", "1"}}, {}}),
              HasSubstr("--rate is 1e-3 there and 0.002 now"));
  EXPECT_THAT(refused({"toy", {{"--rate", "0.001"}}, {}}), HasSubstr("--seed"));
  EXPECT_THAT(refused({"other", config.fixed, {}}), HasSubstr("toy, not other"));
  std::filesystem::create_directories(folder.path() + "/foreign/things");
  EXPECT_EQ(claim_run(folder.path() + "/foreign", config).code(), StatusCode::kInvalidArgument);
}

TEST(RunFolder, ReplacesWholeFolders) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/best";
  const auto put = [&](const std::string& text, Status status) {
    return replace_folder(path, [&](const std::string& at) {
      std::ofstream(at + "/file") << text;
      return status;
    });
  };
  const auto text = [&] {
    std::string all;
    std::ifstream(path + "/file") >> all;
    return all;
  };
  ASSERT_TRUE(put("one", {}).ok());
  ASSERT_TRUE(put("two", {}).ok());
  EXPECT_EQ(text(), "two");
  EXPECT_FALSE(put("three", {StatusCode::kResourceExhausted, "full"}).ok());
  EXPECT_EQ(text(), "two");
  // Stopped between the two renames.
  std::filesystem::rename(path, path + ".old");
  ASSERT_TRUE(recover_folder(path).ok());
  EXPECT_EQ(text(), "two");
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST(Vocabulary, TakesTheMostFrequentTokens) {
  const std::vector<int64_t> counts = {0, 5, 0, 7, 5, 1};
  EXPECT_THAT(most_frequent(counts, 3), ElementsAre(1, 3, 4));
  EXPECT_THAT(most_frequent(counts, 2), ElementsAre(1, 3));
  EXPECT_THAT(most_frequent(counts, 5), ElementsAre(0, 1, 3, 4, 5));
  EXPECT_EQ(most_frequent(counts, 99).size(), counts.size());
}

}  // namespace aerie::train::parts_test
