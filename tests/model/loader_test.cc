// What the loader refuses, and that its messages name file, key or tensor.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/model/packed_files.h"
#include "tests/testing/temporary_model.h"
#include "tests/testing/tiny_model.h"

namespace aerie::loader_test {

using test::GgufWriter;
using test::TinySpec;
using ::testing::HasSubstr;

TinySpec one_layer() {
  TinySpec spec;
  spec.layers = 1;
  return spec;
}

GgufWriter without(const std::string& name) {
  TinySpec spec = one_layer();
  spec.omit = {name};
  return tiny_gguf(spec);
}

Status refusal(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.bytes();
  const auto file = GgufFile::parse(bytes, "tiny.gguf");
  if (!file.ok()) return file.status();
  return load_model(**file, test::model_options()).status();
}

void expect_refused(const GgufWriter& writer, StatusCode code, const std::string& name,
                    const std::string& what = "") {
  const Status status = refusal(writer);
  EXPECT_EQ(status.code(), code) << name << ": " << status.message();
  EXPECT_THAT(status.message(), HasSubstr("tiny.gguf"));
  EXPECT_THAT(status.message(), HasSubstr(name));
  EXPECT_THAT(status.message(), HasSubstr(what));
}

constexpr const char* kTensors[] = {
    "token_embd.weight",     "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
    "blk.0.attn_k.weight",   "blk.0.attn_v.weight",    "blk.0.attn_output.weight",
    "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight",  "blk.0.ffn_up.weight",
    "blk.0.ffn_down.weight", "output_norm.weight"};

TEST(Loader, LoadsWhatTheOtherTestsBreak) {
  const Status status = refusal(tiny_gguf(one_layer()));
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Loader, NamesAMissingTensor) {
  for (const char* name : kTensors) expect_refused(without(name), StatusCode::kNotFound, name);
}

TEST(Loader, NamesATensorOfAnotherShape) {
  for (const char* name : kTensors) {
    if (std::string(name) == "token_embd.weight") continue;
    GgufWriter writer = without(name);
    writer.add_tensor(name, DType::kF32, {64, 3}, std::vector<float>(192));
    expect_refused(writer, StatusCode::kInvalidData, name, "[64, 3]");
  }
  GgufWriter transposed = without("blk.0.ffn_down.weight");
  transposed.add_tensor("blk.0.ffn_down.weight", DType::kF32, {64, 96},
                        std::vector<float>(64 * 96));
  expect_refused(transposed, StatusCode::kInvalidData, "blk.0.ffn_down.weight", "[96, 64]");
  GgufWriter embedding = without("token_embd.weight");
  embedding.add_tensor("token_embd.weight", DType::kF32, {32, 96}, std::vector<float>(32 * 96));
  expect_refused(embedding, StatusCode::kInvalidData, "token_embd.weight", "[32, 96]");
  // The head has as many rows as the embedding.
  GgufWriter head = without("output.weight");
  head.add_tensor("output.weight", DType::kF32, {64, 95}, std::vector<float>(64 * 95));
  expect_refused(head, StatusCode::kInvalidData, "output.weight", "[64, 96]");
}

// A norm, say: leaving it out would compute another model.
TEST(Loader, NamesATensorThatHasNoPlace) {
  for (const char* name :
       {"blk.0.attn_q_norm.weight", "blk.1.attn_q.weight", "blk.0.ffn_gate_inp.weight"}) {
    GgufWriter writer = tiny_gguf(one_layer());
    writer.add_tensor(name, DType::kF32, {64}, std::vector<float>(64));
    expect_refused(writer, StatusCode::kUnsupported, name, "llama");
  }
}

TEST(Loader, NamesATypeThatItDoesNotRead) {
  GgufWriter writer = without("blk.0.ffn_up.weight");
  const std::vector<std::byte> data(50 * 64 * 96 / 256);
  writer.add_raw_tensor("blk.0.ffn_up.weight", 19, {256, 24}, data);  // iq1_s
  expect_refused(writer, StatusCode::kUnsupported, "blk.0.ffn_up.weight", "iq1_s");
}

// NAME.scale beside NAME.weight is a factor. By halves nothing is rounded, so a matrix twice as
// large with one of them computes the same.
TEST(Loader, FactorsBesideWeightsCount) {
  const auto logits = [](const GgufWriter& writer) {
    return logits_of(test::TinyFile(writer).gguf(), "");
  };
  const auto with = [](float weight, std::vector<float> factors) {
    GgufWriter writer = without("blk.0.ffn_down.weight");
    std::vector<float> values(96 * 64);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = weight * (static_cast<float>(i * 7 % 31) - 15.0f);
    }
    writer.add_tensor("blk.0.ffn_down.weight", DType::kF32, {96, 64}, values);
    const auto count = static_cast<int64_t>(factors.size());
    if (count > 0) writer.add_tensor("blk.0.ffn_down.scale", DType::kF32, {count}, factors);
    return writer;
  };
  const std::vector<float> plain = logits(with(0.01f, {}));
  EXPECT_EQ(logits(with(0.02f, {0.5f})), plain);
  EXPECT_NE(logits(with(0.01f, {0.5f})), plain);
  GgufWriter more = with(0.02f, {0.5f});
  more.add_tensor("blk.0.ffn_down.input_scale", DType::kF32, {1}, std::vector<float>{3.0f});
  EXPECT_EQ(logits(more), plain);
  expect_refused(with(0.02f, {0.5f, 0.5f}), StatusCode::kInvalidData, "blk.0.ffn_down.scale", "[2");
}

TEST(Loader, FactorsWithoutAPlaceAreRefused) {
  for (const char* name : {"blk.0.attn_norm.scale", "token_embd.scale", "blk.0.other.scale"}) {
    GgufWriter writer = tiny_gguf(one_layer());
    writer.add_tensor(name, DType::kF32, {1}, std::vector<float>{1.0f});
    expect_refused(writer, StatusCode::kUnsupported, std::string(name).substr(0, 8));
  }
}

TEST(Loader, NamesTheFamiliesThatThereAre) {
  GgufWriter writer;
  writer.add_string("general.architecture", "mamba");
  expect_refused(writer, StatusCode::kUnsupported, "'mamba'", "llama");
  expect_refused(GgufWriter(), StatusCode::kNotFound, "general.architecture");
}

GgufWriter granite_with_heads(const std::string& family, const std::vector<int32_t>& heads) {
  GgufWriter writer;
  writer.add_string("general.architecture", family).add_u32(family + ".block_count", 2);
  writer.add_u32(family + ".embedding_length", 32).add_u32(family + ".feed_forward_length", 32);
  writer.add_u32(family + ".attention.head_count", 2).add_u32(family + ".context_length", 64);
  writer.add_array<int32_t>(family + ".attention.head_count_kv", heads);
  writer.add_tensor("token_embd.weight", DType::kF32, {32, 32}, std::vector<float>(1024));
  return writer;
}

// A number for each layer, which may be none where layers keep states.
TEST(Loader, NamesHeadsOfKeysThatDiffer) {
  const std::string key = "attention.head_count_kv";
  expect_refused(granite_with_heads("granite", {2, 0}), StatusCode::kUnsupported, key, "layer 1");
  expect_refused(granite_with_heads("granite", {2, 1}), StatusCode::kUnsupported, key, "layer 1");
  expect_refused(granite_with_heads("granite", {2}), StatusCode::kInvalidData, key, "1 entries");
  expect_refused(granite_with_heads("granite", {2, -1}), StatusCode::kInvalidData, key, "-1");
  expect_refused(granite_with_heads("granitehybrid", {0, 0}), StatusCode::kUnsupported, key,
                 "no layer has attention");
  expect_refused(granite_with_heads("granitehybrid", {0, 2}), StatusCode::kNotFound, "ssm.");
  expect_refused(granite_with_heads("lfm2", {0, 2}), StatusCode::kNotFound, "shortconv.l_cache");
}

TEST(Loader, NamesAMissingKey) {
  for (const char* key :
       {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.context_length"}) {
    expect_refused(without(key), StatusCode::kNotFound, key);
  }
}

TEST(Loader, NamesAKeyOutOfRange) {
  struct Case {
    const char* key;
    uint32_t value;
    StatusCode code = StatusCode::kInvalidData;
  };
  const Case cases[] = {
      {"llama.block_count", 0},
      {"llama.block_count", 100000},
      {"llama.embedding_length", 0},
      {"llama.embedding_length", 1u << 30},
      {"llama.feed_forward_length", 0},
      {"llama.attention.head_count", 0},
      {"llama.attention.head_count_kv", 0},
      {"llama.attention.head_count_kv", 3},
      {"llama.attention.head_count_kv", 8},
      {"llama.attention.key_length", 0},
      {"llama.attention.key_length", 24, StatusCode::kUnsupported},
      {"llama.attention.key_length", 528, StatusCode::kUnsupported},
      {"llama.attention.value_length", 32, StatusCode::kUnsupported},
      {"llama.context_length", 0},
      {"llama.rope.dimension_count", 0},
      {"llama.rope.dimension_count", 18},
      {"llama.rope.dimension_count", 7},
      {"llama.expert_count", 70000},
  };
  for (const Case& c : cases) {
    TinySpec spec = one_layer();
    spec.omit = {c.key};
    if (std::string(c.key) == "llama.attention.key_length") {
      spec.omit.emplace_back("llama.attention.value_length");
    }
    GgufWriter writer = tiny_gguf(spec);
    writer.add_u32(c.key, c.value);
    expect_refused(writer, c.code, c.key);
  }
}

TEST(Loader, NamesANumberThatMakesNoSense) {
  for (const char* key :
       {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base",
        "llama.rope.scaling.factor", "llama.rope.scale_linear", "llama.rope.scaling.attn_factor"}) {
    for (const float value : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
      GgufWriter writer = tiny_gguf(one_layer());
      writer.add_f32(key, value);
      expect_refused(writer, StatusCode::kInvalidData, key);
    }
  }
  GgufWriter text = tiny_gguf(one_layer());
  text.add_string("llama.rope.freq_base", "much");
  expect_refused(text, StatusCode::kInvalidData, "llama.rope.freq_base");
}

TEST(Loader, NamesAScalingThatItDoesNotKnow) {
  GgufWriter writer = tiny_gguf(one_layer());
  writer.add_string("llama.rope.scaling.type", "spiral");
  expect_refused(writer, StatusCode::kUnsupported, "llama.rope.scaling.type", "spiral");
}

// Each alone would be read; together one of them would be left out.
TEST(Loader, RefusesTwoScalingsAtOnce) {
  GgufWriter writer = tiny_gguf(one_layer());
  writer.add_string("llama.rope.scaling.type", "linear").add_f32("llama.rope.scaling.factor", 2.0f);
  writer.add_tensor("rope_freqs.weight", DType::kF32, {8}, std::vector<float>(8, 1.0f));
  expect_refused(writer, StatusCode::kUnsupported, "rope_freqs.weight", "linear");
}

TEST(Loader, RefusesFactorsThatMakeNoSense) {
  GgufWriter wrong_length = tiny_gguf(one_layer());
  wrong_length.add_tensor("rope_freqs.weight", DType::kF32, {7}, std::vector<float>(7, 1.0f));
  expect_refused(wrong_length, StatusCode::kInvalidData, "rope_freqs.weight", "8 pairs");
  for (const float factor : {0.0f, -1.0f, std::nanf("")}) {
    GgufWriter writer = tiny_gguf(one_layer());
    std::vector<float> factors(8, 1.0f);
    factors[5] = factor;
    writer.add_tensor("rope_freqs.weight", DType::kF32, {8}, factors);
    expect_refused(writer, StatusCode::kInvalidData, "rope_freqs.weight");
  }
}

TEST(Loader, LongRopeNeedsBothSetsOfFactors) {
  GgufWriter neither = tiny_gguf(one_layer());
  neither.add_string("llama.rope.scaling.type", "longrope");
  expect_refused(neither, StatusCode::kNotFound, "rope_factors_short.weight");
  GgufWriter one = tiny_gguf(one_layer());
  one.add_tensor("rope_factors_short.weight", DType::kF32, {8}, std::vector<float>(8, 1.0f));
  expect_refused(one, StatusCode::kNotFound, "rope_factors_long.weight");
}

TEST(Loader, RefusesABiasOfAnotherLength) {
  GgufWriter writer = tiny_gguf(one_layer());
  writer.add_tensor("blk.0.attn_q.bias", DType::kF32, {32}, std::vector<float>(32));
  expect_refused(writer, StatusCode::kInvalidData, "blk.0.attn_q.bias", "[64]");
}

TEST(Loader, RefusesAPatternOfWindowsForOtherLayers) {
  GgufWriter writer = tiny_gguf(one_layer());
  writer.add_array("llama.attention.sliding_window_pattern", std::vector<bool>{true, false});
  expect_refused(writer, StatusCode::kInvalidData, "sliding_window_pattern", "2 entries");
  GgufWriter text = tiny_gguf(one_layer());
  text.add_string("llama.attention.sliding_window_pattern", "all");
  expect_refused(text, StatusCode::kInvalidData, "sliding_window_pattern", "string");
}

// More heads than the width, without a length of their own.
TEST(Loader, RefusesHeadsOfNoLength) {
  TinySpec spec = one_layer();
  spec.omit = {"llama.attention.key_length", "llama.attention.value_length",
               "llama.attention.head_count", "llama.attention.head_count_kv"};
  GgufWriter writer = tiny_gguf(spec);
  writer.add_u32("llama.attention.head_count", 128);
  EXPECT_FALSE(refusal(writer).ok());
}

TEST(Loader, TakesWhatOldConvertersWrote) {
  GgufWriter writer = tiny_gguf(one_layer());
  writer.add_tensor("blk.0.attn_rot_embd", DType::kF32, {8}, std::vector<float>(8));
  EXPECT_TRUE(refusal(writer).ok());
}

TEST(Loader, TellsWhatItTakes) {
  const test::TinyFile file(one_layer());
  const auto model = file.load(test::model_options());
  const int64_t matrices = 4LL * (64 * (64 + 32 + 32 + 64 + 96 * 3) + 64 * 96);
  EXPECT_GE(model->weight_bytes(), matrices);
  EXPECT_LE(model->weight_bytes(), 2 * matrices);
  EXPECT_GE(packed_weight_bytes(file.gguf(), *test::model_options().backend),
            model->weight_bytes());
  EXPECT_EQ(model->config().name, "tiny");
  EXPECT_EQ(model->config().vocab, 96);
}

// After each of a few tokens.
std::vector<float> logits_after(Model& model) {
  constexpr int kRows = 5;
  const ModelCache cache = make_cache(model, {.positions = 16, .sequences = 1}).value();
  const auto id = cache->open();
  EXPECT_TRUE(cache->reserve(*id, kRows).ok());
  ForwardBatch batch;
  batch.sequences.push_back({cache->pages(*id), 0, *id});
  for (int i = 0; i < kRows; ++i) {
    batch.rows.push_back({0, 17 * i + 3, i, cache->slot(*id, i), i - 1, {}, true, false});
  }
  const ForwardOutputs out = model.forward(batch, *cache);
  std::vector<float> memory;
  const std::span<const float> logits = out.all_logits(kRows, memory);
  return {logits.begin(), logits.end()};
}

// Nothing is read of the file behind loading: cut short or overwritten, the model is the same.
TEST(Loader, NeedsTheFileNoLonger) {
  for (const bool tied : {false, true}) {
    TinySpec spec = one_layer();
    spec.tied = tied;
    const test::TemporaryModel on_disk("loaded", spec);
    const auto file = GgufFile::open(on_disk.path());
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto model = load_model(**file, test::model_options());
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::vector<float> before = logits_after(**model);
    ASSERT_EQ(truncate(on_disk.path().c_str(), 0), 0);
    EXPECT_EQ(logits_after(**model), before);
    EXPECT_FALSE((*file)->check_intact().ok());
  }
}

TEST(Loader, RefusesWhatIsCutShortMeanwhile) {
  const test::TemporaryModel on_disk("cut", one_layer());
  const auto file = GgufFile::open(on_disk.path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(truncate(on_disk.path().c_str(), 4096), 0);
  const Status status = load_model(**file, test::model_options()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(status.message(), HasSubstr(on_disk.path()));
  EXPECT_THAT(status.message(), HasSubstr("cut short"));
}

TEST(Loader, RefusesWhatIsWrittenToMeanwhile) {
  const test::TemporaryModel on_disk("written", one_layer());
  const auto file = GgufFile::open(on_disk.path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  namespace fs = std::filesystem;
  fs::last_write_time(on_disk.path(),
                      fs::last_write_time(on_disk.path()) + std::chrono::seconds(1));
  const Status status = load_model(**file, test::model_options()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(status.message(), HasSubstr("written to"));
}

}  // namespace aerie::loader_test
