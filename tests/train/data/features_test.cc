// Taps of samples: computed ones are the model's, stored ones are those, rounded.

#include "train/data/features/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "tensor/dtype.h"
#include "tests/testing/file_size_limit.h"
#include "tests/train/data/data_folder.h"
#include "train/data/dataset.h"
#include "train/data/features/feature_store.h"

namespace aerie::train::features_test {

namespace fs = std::filesystem;
using test::generate;
using test::options_for;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kLayers = 2;  // of the tiny model, of
constexpr int kHidden = 64;

std::vector<float> read(FeatureSource& source, const Sample& sample) {
  std::vector<float> out(sample.tokens.size() * source.tap_layers().size() * kHidden);
  const Status status = source.read(sample, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

class FeaturesTest : public testing::Test {
 protected:
  FeaturesTest() {
    store_.folder = options_.out;
    store_.model = model_;
    store_.tap_layers = {0, 1, kLayers};
  }
  std::unique_ptr<FeatureSource> compute(std::vector<int32_t> layers, int max_tokens) {
    auto source = compute_features(model_, std::move(layers), 1, max_tokens);
    EXPECT_TRUE(source.ok()) << source.status().message();
    return source.ok() ? std::move(*source) : nullptr;
  }
  std::unique_ptr<FeatureSource> stored(std::vector<int32_t> layers) {
    auto source = stored_features(options_.out, std::move(layers));
    EXPECT_TRUE(source.ok()) << source.status().message();
    return source.ok() ? std::move(*source) : nullptr;
  }
  StoreResult store() {
    const auto result = store_features(store_);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : StoreResult();
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(options_.out)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("answers-") && name != "data.json") names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  Dataset make_samples() {
    generate(options_);
    auto dataset = read_dataset(options_.out);
    EXPECT_TRUE(dataset.ok()) << dataset.status().message();
    return dataset.ok() ? std::move(*dataset) : Dataset();
  }

  test::Scratch scratch_;
  std::string model_ = write_target(scratch_);
  GenerateOptions options_ =
      options_for(scratch_, model_, {write_prompts(scratch_, "prompts.jsonl", 12)});
  StoreOptions store_;
};

// Against one pass over all rows.
TEST_F(FeaturesTest, ComputedAreTheModelsTaps) {
  Sample sample;
  sample.id = "0-0";
  sample.tokens = aerie::test::random_tokens(3, 700, aerie::test::kByteVocab);
  aerie::test::TinySpec spec;
  spec.tokenizer = true;
  spec.vocab = aerie::test::kByteVocab;
  const aerie::test::TinyFile file(spec);
  ModelOptions options = aerie::test::model_options();
  options.max_rows = 700;
  options.max_positions = 700;
  const auto model = file.load(options);
  ASSERT_NE(model, nullptr);
  const ModelCache cache = make_cache(*model, {.positions = 700, .sequences = 1}).value();
  const auto sequence = cache->open();
  ASSERT_TRUE(sequence.ok() && cache->reserve(*sequence, 700).ok());
  ForwardBatch batch;
  batch.tap_layers = {kLayers, 0};
  batch.sequences.push_back({cache->pages(*sequence), 0, *sequence});
  for (int i = 0; i < 700; ++i) {
    BatchRow& row = batch.rows.emplace_back();
    row.token = sample.tokens[static_cast<size_t>(i)];
    row.position = i;
    row.slot = cache->slot(*sequence, i);
    row.parent = i - 1;
    row.wants_taps = true;
  }
  const auto taps = model->forward(batch, *cache).taps;

  const auto source = compute({kLayers, 0}, 700);
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->hidden(), kHidden);
  EXPECT_THAT(source->tap_layers(), ElementsAre(kLayers, 0));
  const std::vector<float> expected(taps.begin(), taps.end());
  EXPECT_EQ(read(*source, sample), expected);
  // Nothing is left of one sample when the next is read.
  Sample other = sample;
  std::ranges::reverse(other.tokens);
  EXPECT_NE(read(*source, other), expected);
  EXPECT_EQ(read(*source, sample), expected);
}

TEST_F(FeaturesTest, LayersAboveTheTapsDoNotMatter) {
  Sample sample;
  sample.tokens = aerie::test::random_tokens(4, 20, aerie::test::kByteVocab);
  const auto all = read(*compute({0, 1, kLayers}, 20), sample);
  for (int layer = 0; layer <= kLayers; ++layer) {
    const auto one = read(*compute({layer}, 20), sample);
    for (size_t t = 0; t < 20; ++t) {
      for (size_t h = 0; h < kHidden; ++h) {
        ASSERT_EQ(one[t * kHidden + h],
                  all[(t * (kLayers + 1) + static_cast<size_t>(layer)) * kHidden + h]);
      }
    }
  }
}

// Several turns, both temperatures, a batch of several: what answering leaves is what reading the
// finished text gives, to the bit. The last token is read by nobody.
TEST_F(FeaturesTest, AnsweringStoresWhatReadingTheTextsAgainWouldGive) {
  options_.target.sequences = 4;
  options_.features = store_.tap_layers;
  const Dataset dataset = make_samples();
  ASSERT_GT(dataset.samples.size(), 10U);
  const auto source = stored(store_.tap_layers);
  const auto computed = compute(store_.tap_layers, 512);
  ASSERT_TRUE(source != nullptr && computed != nullptr);
  const size_t row = store_.tap_layers.size() * kHidden;
  for (const Sample& sample : dataset.samples) {
    std::vector<float> expected = read(*computed, sample);
    for (float& value : expected) value = bf16_to_f32(f32_to_bf16(value));
    std::fill(expected.end() - static_cast<ptrdiff_t>(row), expected.end(), 0.0F);
    EXPECT_EQ(read(*source, sample), expected) << sample.id;
    // Both sources give the same 16 bits, too.
    std::vector<uint16_t> bits(expected.size()), made(expected.size());
    ASSERT_TRUE(source->read_bfloats(sample, bits).ok());
    ASSERT_TRUE(computed->read_bfloats(sample, made).ok());
    std::fill(made.end() - static_cast<ptrdiff_t>(row), made.end(), 0);
    EXPECT_EQ(bits, made);
    for (size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(bf16_to_f32(bits[i]), expected[i]);
    EXPECT_FALSE(source->read_bfloats(sample, std::span(bits).first(row)).ok());
  }
  // So nothing is left for store_features() to do, and nothing is made twice.
  const StoreResult result = store();
  EXPECT_EQ(result.there, static_cast<int>(dataset.samples.size()));
  EXPECT_EQ(result.stored, 0);
}

TEST_F(FeaturesTest, AnsweringGoesOnWithFeaturesAndWithout) {
  options_.selection.limit = 4;
  make_samples();
  options_.selection.limit = 8;
  options_.features = {1, kLayers};
  make_samples();
  store_.tap_layers = options_.features;
  EXPECT_EQ(store().there, 4);
  EXPECT_NE(stored(options_.features), nullptr);
  // A line that was lost is answered again; its features are there.
  const std::string answers = options_.out + "/answers-1-of-1.jsonl";
  const std::string text = test::read_file(answers);
  const auto before = test::lines_in(options_.out);
  std::ofstream(answers) << text.substr(0, text.rfind('\n', text.size() - 2) + 1);
  make_samples();
  EXPECT_EQ(test::lines_in(options_.out), before);
  EXPECT_NE(stored(options_.features), nullptr);

  options_.features = {0};
  EXPECT_THAT(generate_data(options_).status().message(), HasSubstr("features of layers 1,2"));
  options_.features = {9};
  EXPECT_THAT(generate_data(options_).status().message(), HasSubstr("layer 9"));
}

TEST_F(FeaturesTest, ComputingRefusesWhatCannotBe) {
  EXPECT_THAT(compute_features(model_, {0, kLayers + 1}, 1, 20).status().message(),
              HasSubstr("layer 3"));
  EXPECT_EQ(compute_features(model_, {-1}, 1, 20).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(compute_features(model_, {}, 1, 20).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(compute_features(model_, {0}, 1, 5000).ok());
  EXPECT_FALSE(compute_features("/nowhere", {0}, 1, 20).ok());
  const auto source = compute({0}, 20);
  ASSERT_NE(source, nullptr);
  Sample sample;
  sample.tokens.assign(21, 0);
  std::vector<float> out(21 * kHidden);
  EXPECT_EQ(source->read(sample, out).code(), StatusCode::kInvalidArgument);
  sample.tokens.assign(20, 0);
  EXPECT_EQ(source->read(sample, out).code(), StatusCode::kInvalidArgument);
  out.resize(20 * kHidden);
  EXPECT_TRUE(source->read(sample, out).ok());
  sample.tokens[7] = aerie::test::kByteVocab;
  EXPECT_EQ(source->read(sample, out).code(), StatusCode::kInvalidArgument);
}

TEST_F(FeaturesTest, StoredAreTheComputedRounded) {
  const Dataset dataset = make_samples();
  store_.file_bytes = 100000;
  const StoreResult result = store();
  EXPECT_EQ(result.stored, 12);
  EXPECT_GT(files().size(), 2u);
  const auto computed = compute({0, 1, kLayers}, 256);
  const auto from_disk = stored({0, 1, kLayers});
  const auto some = stored({kLayers, 0});
  ASSERT_TRUE(computed != nullptr && from_disk != nullptr && some != nullptr);
  EXPECT_EQ(some->hidden(), kHidden);
  for (const Sample& sample : dataset.samples) {
    std::vector<float> expected = read(*computed, sample);
    for (float& value : expected) value = bf16_to_f32(f32_to_bf16(value));
    EXPECT_EQ(read(*from_disk, sample), expected) << sample.id;
    std::vector<float> picked;
    for (size_t t = 0; t < sample.tokens.size(); ++t) {
      for (const size_t layer : {size_t{kLayers}, size_t{0}}) {
        const auto at = expected.begin() + static_cast<int64_t>((t * 3 + layer) * kHidden);
        picked.insert(picked.end(), at, at + kHidden);
      }
    }
    EXPECT_EQ(read(*some, sample), picked) << sample.id;
  }
}

TEST_F(FeaturesTest, StoringGoesOn) {
  const Dataset dataset = make_samples();
  store_.file_bytes = 100000;
  for (const int part : {1, 2}) {
    store_.shard = {part, 2};
    EXPECT_EQ(store().stored, 6);
  }
  const auto whole = files();
  const auto source = stored({1});
  std::vector<std::vector<float>> expected;
  for (const Sample& sample : dataset.samples) expected.push_back(read(*source, sample));

  // A file that is lost is made again, by whatever shard, and nothing else is.
  fs::remove(options_.out + "/" + whole[0]);
  EXPECT_EQ(stored({1})->read(dataset.samples[0], expected[0]).code(), StatusCode::kNotFound);
  store_.shard = {1, 1};
  const StoreResult result = store();
  EXPECT_GT(result.stored, 0);
  EXPECT_EQ(result.there + result.stored, 12);
  EXPECT_EQ(store().there, 12);
  const auto again = stored({1});
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(read(*again, dataset.samples[i]), expected[i]);
}

// No part of a file is left.
TEST_F(FeaturesTest, FilesAreWholeOrNotThere) {
  make_samples();
  std::atomic<bool> cancel = true;
  store_.cancel = &cancel;
  EXPECT_EQ(store().missing, 12);
  EXPECT_THAT(files(), ElementsAre());
  store_.cancel = nullptr;
  {
    const aerie::test::FileSizeLimit limit(20000);
    EXPECT_EQ(store_features(store_).status().code(), StatusCode::kResourceExhausted);
  }
  EXPECT_THAT(files(), ElementsAre());
  EXPECT_EQ(store().stored, 12);
}

TEST_F(FeaturesTest, RefusesOtherLayersAndModels) {
  EXPECT_EQ(store_features(store_).status().code(), StatusCode::kNotFound);
  make_samples();
  EXPECT_EQ(stored_features(options_.out, {0}).status().code(), StatusCode::kNotFound);
  StoreOptions other = store_;
  other.model = write_target(scratch_, "other.gguf", 2);
  EXPECT_THAT(store_features(other).status().message(), HasSubstr("not of"));
  store();
  other = store_;
  other.tap_layers = {0, 1};
  const auto refused = store_features(other);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("0,1,2"));
  EXPECT_EQ(stored_features(options_.out, {0, 3}).status().code(), StatusCode::kNotFound);

  // The folder of another model with the same prompts.
  const std::string here = options_.out;
  options_.target.model = scratch_.path("other.gguf");
  options_.out = scratch_.path("foreign");
  generate(options_);
  fs::copy(here + "/features-1-of-1-000.safetensors",
           options_.out + "/features-1-of-1-000.safetensors");
  EXPECT_EQ(stored_features(options_.out, {0}).status().code(), StatusCode::kInvalidData);
}

TEST_F(FeaturesTest, NamesBrokenFiles) {
  const Dataset dataset = make_samples();
  store();
  const std::string path = options_.out + "/features-1-of-1-000.safetensors";
  const std::string bytes = test::read_file(path);
  const auto refusal = [&](const std::string& text) {
    scratch_.write("out/features-1-of-1-000.safetensors", text);
    const auto source = stored_features(options_.out, {0});
    EXPECT_EQ(source.status().code(), StatusCode::kInvalidData);
    EXPECT_THAT(source.status().message(), HasSubstr("features-1-of-1-000.safetensors"));
    return source.status().message();
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = bytes;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    return text.replace(at, from.size(), to);
  };
  refusal(bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(refusal(replaced("\"BF16\"", "\"F16\" ")), HasSubstr("no bfloat16"));
  EXPECT_THAT(refusal(replaced("\"0,1,2\"", "\"0,1,a\"")), HasSubstr("metadata"));
  EXPECT_THAT(refusal(replaced("\"0,1,2\"", "\"0,1,,\"")), HasSubstr("metadata"));
  EXPECT_THAT(refusal(replaced("\"0,1,2\"", "\"0,112\"")), HasSubstr("no bfloat16 [tokens, 2"));
  EXPECT_THAT(refusal(replaced("\"hidden\":\"64\"", "\"hidden\":\"65\"")), HasSubstr("3, 65]"));
  scratch_.write("out/features-1-of-1-000.safetensors", bytes);
  scratch_.write("out/features-1-of-1-007.safetensors", bytes);
  EXPECT_THAT(stored_features(options_.out, {0}).status().message(), HasSubstr("another file"));
  scratch_.write("out/features-1-of-1-007.safetensors", replaced("\"0,1,2\"", "\"0,1,3\""));
  EXPECT_THAT(stored_features(options_.out, {0}).status().message(), HasSubstr("other layers"));
  fs::remove(options_.out + "/features-1-of-1-007.safetensors");

  const auto source = stored({0});
  Sample sample = dataset.samples[0];
  sample.tokens.push_back(0);
  std::vector<float> out(sample.tokens.size() * kHidden);
  EXPECT_EQ(source->read(sample, out).code(), StatusCode::kInvalidArgument);
  sample.id = "99-0";
  EXPECT_EQ(source->read(sample, out).code(), StatusCode::kNotFound);
}

}  // namespace aerie::train::features_test
