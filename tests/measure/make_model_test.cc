#include "measure/models/make_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "format/gguf/gguf.h"
#include "measure/models/random_weights.h"
#include "measure/models/shapes.h"

namespace aerie::measure::make_model_test {

using testing::ElementsAre;
using testing::HasSubstr;

// A file that goes when the test ends.
struct TemporaryFile {
  std::string path;
  explicit TemporaryFile(const std::string& name) : path(testing::TempDir() + name) {}
  ~TemporaryFile() { std::remove(path.c_str()); }
  std::string bytes() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

MakeModelOptions options_of(const std::string& shape, DType type, const std::string& output) {
  MakeModelOptions options;
  options.shape = shape;
  options.type = type;
  options.output = output;
  return options;
}

class MakeModelOfType : public testing::TestWithParam<int> {
 protected:
  DType type() const { return static_cast<DType>(GetParam()); }
};

TEST_P(MakeModelOfType, LoadsAndGenerates) {
  const TemporaryFile file("make_model_" + std::string(dtype_info(type()).name) + ".gguf");
  const auto report = make_model(options_of("tiny", type(), file.path));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->notes, ElementsAre());
  EXPECT_EQ(report->bytes, static_cast<int64_t>(file.bytes().size()));

  EngineOptions options;
  options.model = file.path;
  options.threads = 1;
  auto engine = Engine::open(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->parts().config().layers, 2);
  EXPECT_EQ((*engine)->parts().tokenizer().vocab_size(), 320);
  Request request;
  ASSERT_TRUE((*engine)->parts().tokenizer().encode("Hello", {true, false}, request.prompt).ok());
  EXPECT_EQ(request.prompt.size(), 5u);  // a byte is a token
  request.max_tokens = 6;
  request.ignore_eos = true;
  const auto generation = (*engine)->generate(request, nullptr);
  ASSERT_TRUE(generation.ok()) << generation.status().message();
  EXPECT_EQ(generation->tokens.size(), 6u);
}

TEST_P(MakeModelOfType, WeightsHaveTheDeviation) {
  constexpr int64_t kElements = 1 << 16;
  std::vector<std::byte> data(static_cast<size_t>(dtype_bytes(type(), kElements)));
  RandomWeights(type()).fill({7, 8, 9}, kElements, data.data());
  std::vector<float> values(kElements);
  dequantize(type(), data.data(), kElements, values.data());
  double sum = 0, squares = 0;
  for (const float value : values) {
    ASSERT_TRUE(std::isfinite(value));
    ASSERT_LT(std::fabs(value), 10 * kWeightDeviation);
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  // A power of two as the only scale misses by up to the root of 2, one of E4M3 of few bits by a
  // fifth; codes from -8 to 7 have the mean -1/2.
  EXPECT_NEAR(std::sqrt(squares / kElements) / kWeightDeviation, 1.0,
              type() == DType::kMXFP4   ? 0.42
              : type() == DType::kNVFP4 ? 0.2
                                        : 0.05);
  EXPECT_NEAR(sum / kElements / kWeightDeviation, 0.0, 0.13);
}

INSTANTIATE_TEST_SUITE_P(All, MakeModelOfType, testing::Range(0, kDTypeCount), [](const auto& one) {
  return std::string(dtype_info(static_cast<DType>(one.param)).name);
});

TEST(MakeModel, SameSeedSameFile) {
  const TemporaryFile a("make_model_a.gguf"), b("make_model_b.gguf"), c("make_model_c.gguf");
  MakeModelOptions options = options_of("tiny", DType::kQ4_K, a.path);
  options.threads = 1;
  ASSERT_TRUE(make_model(options).ok());
  options.output = b.path;
  options.threads = 3;
  ASSERT_TRUE(make_model(options).ok());
  options.output = c.path;
  options.seed = 2;
  ASSERT_TRUE(make_model(options).ok());
  EXPECT_EQ(a.bytes(), b.bytes());
  const auto first = GgufFile::open(a.path), other = GgufFile::open(c.path);
  ASSERT_TRUE(first.ok() && other.ok());
  for (const char* name : {"token_embd.weight", "blk.1.ffn_down.weight"}) {
    const auto x = (*first)->read(name), y = (*other)->read(name);
    ASSERT_TRUE(x.ok() && y.ok());
    EXPECT_NE(std::memcmp(x->view.data, y->view.data, static_cast<size_t>(x->view.bytes())), 0);
  }
}

TEST(MakeModel, TensorsAndRowsDiffer) {
  const TemporaryFile file("make_model_rows.gguf");
  ASSERT_TRUE(make_model(options_of("tiny", DType::kQ8_0, file.path)).ok());
  const auto gguf = GgufFile::open(file.path);
  ASSERT_TRUE(gguf.ok());
  const auto gate = (*gguf)->read("blk.0.ffn_gate.weight"),
             up = (*gguf)->read("blk.0.ffn_up.weight");
  ASSERT_TRUE(gate.ok() && up.ok());
  const auto bytes = static_cast<size_t>(gate->view.row_bytes());
  EXPECT_NE(std::memcmp(gate->view.data, up->view.data, bytes), 0);
  EXPECT_NE(std::memcmp(gate->view.row(0), gate->view.row(1), bytes), 0);
}

TEST(MakeModel, TheSameWithoutAFile) {
  const TemporaryFile file("make_model_memory.gguf");
  MakeModelOptions options = options_of("tiny", DType::kQ4_K, file.path);
  ASSERT_TRUE(make_model(options).ok());
  const auto gguf = GgufFile::open(file.path);
  ASSERT_TRUE(gguf.ok());
  ThreadPool pool(2);
  const auto made = random_model(options, pool);
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ((*made)->tensors().size(), (*gguf)->tensors().size());
  EXPECT_EQ((*made)->metadata().size(), (*gguf)->metadata().size());
  for (const TensorInfo& tensor : (*gguf)->tensors()) {
    const auto a = (*gguf)->read(tensor.name), b = (*made)->read(tensor.name);
    ASSERT_TRUE(a.ok() && b.ok()) << tensor.name;
    ASSERT_EQ(a->view.bytes(), b->view.bytes()) << tensor.name;
    EXPECT_EQ(std::memcmp(a->view.data, b->view.data, static_cast<size_t>(a->view.bytes())), 0)
        << tensor.name;
  }
  options.shape = "huge";
  EXPECT_THAT(random_model(options, pool).status().message(),
              HasSubstr("there is no shape 'huge': give one of smollm2-135m"));
}

TEST(MakeModel, TypesThatDoNotFitFallBackAndSayIt) {
  const TemporaryFile file("make_model_odd.gguf");
  const auto report = make_model(options_of("tiny-odd", DType::kQ4_K, file.path));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->notes, ElementsAre(HasSubstr("14 matrices are q5_0: their rows of 96")));
  const auto gguf = GgufFile::open(file.path);
  ASSERT_TRUE(gguf.ok());
  EXPECT_EQ((*gguf)->find_tensor("blk.0.attn_q.weight")->dtype, DType::kQ5_0);
  EXPECT_EQ((*gguf)->find_tensor("output.weight")->dtype, DType::kQ5_0);
  EXPECT_EQ((*gguf)->find_tensor("blk.0.ffn_down.weight")->dtype, DType::kQ4_K);
  EXPECT_EQ((*gguf)->find_tensor("blk.0.ffn_norm.weight")->dtype, DType::kF32);
}

TEST(MakeModel, OfGptOssHasItsTypesAndGenerates) {
  const TemporaryFile file("make_model_gpt_oss.gguf");
  const auto report = make_model(options_of("tiny-gpt-oss", DType::kMXFP4, file.path));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->notes, ElementsAre());
  const auto gguf = GgufFile::open(file.path);
  ASSERT_TRUE(gguf.ok());
  EXPECT_EQ((*gguf)->find_tensor("blk.0.attn_q.weight")->dtype, DType::kQ8_0);
  EXPECT_EQ((*gguf)->find_tensor("blk.1.ffn_down_exps.weight")->dtype, DType::kMXFP4);
  EXPECT_EQ((*gguf)->find_tensor("blk.1.ffn_gate_inp.weight")->dtype, DType::kF32);

  EngineOptions options;
  options.model = file.path;
  options.threads = 1;
  auto engine = Engine::open(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  Request request;
  request.prompt.assign(200, 65);  // longer than the window
  request.max_tokens = 6;
  request.ignore_eos = true;
  const auto generation = (*engine)->generate(request, nullptr);
  ASSERT_TRUE(generation.ok()) << generation.status().message();
  EXPECT_EQ(generation->tokens.size(), 6u);
}

TEST(MakeModel, OfAHybridHasStatesInThreeLayersOfFour) {
  const TemporaryFile file("make_model_hybrid.gguf");
  MakeModelOptions made = options_of("tiny-hybrid", DType::kQ4_0, file.path);
  const auto report = make_model(made);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto gguf = GgufFile::open(file.path);
  ASSERT_TRUE(gguf.ok());
  EXPECT_EQ((*gguf)->find_tensor("blk.2.attn_qkv.weight")->dtype, DType::kQ4_0);
  EXPECT_EQ((*gguf)->find_tensor("blk.3.attn_qkv.weight"), nullptr);
  EXPECT_EQ((*gguf)->find_tensor("blk.0.ssm_alpha.weight")->dtype, DType::kF32);

  EngineOptions options;
  options.model = file.path;
  options.threads = 1;
  options.speculation = *parse_speculative_spec("recycling:gate=0");
  auto engine = Engine::open(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->parts().config().count_linear(), 3);
  Request request;
  request.prompt.assign(100, 65);
  request.max_tokens = 40;
  request.ignore_eos = true;
  const auto drafted = (*engine)->generate(request, nullptr);
  ASSERT_TRUE(drafted.ok()) << drafted.status().message();
  options.speculation = *parse_speculative_spec("none");
  engine = Engine::open(options);
  ASSERT_TRUE(engine.ok());
  const auto plain = (*engine)->generate(request, nullptr);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(drafted->tokens, plain->tokens);
  EXPECT_GT(drafted->stats.drafted, 0);

  made.layers = 5;
  EXPECT_THAT(make_model(made).status().message(), HasSubstr("5 layers of tiny-hybrid"));
}

// Their tensors are those that the families want, and drafts are rolled back.
TEST(MakeModel, OfShortConvolutionsStateSpacesAndLatentAttention) {
  for (const auto& [shape, linear] : {std::pair("tiny-lfm2", 10),
                                      {"tiny-granite-hybrid", 2},
                                      {"tiny-latent", 0},
                                      {"tiny-latent-groups", 0}}) {
    SCOPED_TRACE(shape);
    const TemporaryFile file("make_model_states.gguf");
    const auto report = make_model(options_of(shape, DType::kQ4_0, file.path));
    ASSERT_TRUE(report.ok()) << report.status().message();
    std::vector<int32_t> plain;
    for (const char* method : {"none", "recycling:gate=0"}) {
      EngineOptions options;
      options.model = file.path;
      options.threads = 1;
      options.speculation = *parse_speculative_spec(method);
      auto engine = Engine::open(options);
      ASSERT_TRUE(engine.ok()) << engine.status().message();
      EXPECT_EQ((*engine)->parts().config().count_linear(), linear);
      Request request;
      request.prompt.assign(100, 65);
      request.max_tokens = 40;
      request.ignore_eos = true;
      const auto generation = (*engine)->generate(request, nullptr);
      ASSERT_TRUE(generation.ok()) << generation.status().message();
      if (plain.empty()) plain = generation->tokens;
      EXPECT_EQ(generation->tokens, plain) << method;
    }
    EXPECT_EQ(plain.size(), 40u);
  }
}

TEST(MakeModel, FallsBackAsLlamaCppDoes) {
  EXPECT_EQ(matrix_type(DType::kQ4_K, 576), DType::kQ5_0);
  EXPECT_EQ(matrix_type(DType::kQ5_K, 576), DType::kQ5_1);
  EXPECT_EQ(matrix_type(DType::kQ6_K, 576), DType::kQ8_0);
  EXPECT_EQ(matrix_type(DType::kIQ4_XS, 576), DType::kIQ4_NL);
  EXPECT_EQ(matrix_type(DType::kQ2_K, 48), DType::kF16);
  EXPECT_EQ(matrix_type(DType::kQ4_K, 1536), DType::kQ4_K);
  EXPECT_EQ(matrix_type(DType::kQ4_0, 576), DType::kQ4_0);
}

// The numbers that the models' publishers give.
TEST(Shapes, HaveThePublishedNumberOfWeights) {
  const auto weights = [](const char* name) {
    const auto found = find_shape(name);
    EXPECT_TRUE(found.ok()) << name;
    const ModelShape& s = *found;
    const int64_t hidden = s.hidden, q = int64_t{s.heads} * s.head_dim,
                  kv = int64_t{s.kv_heads} * s.head_dim;
    const int64_t feed_forward =
        s.experts > 0 ? s.experts * (3 * int64_t{s.expert_ffn} + 1) : 3 * int64_t{s.ffn};
    const int64_t biases =
        q + 2 * kv + hidden + s.experts * (1 + 2 * int64_t{s.expert_ffn} + hidden);
    const int64_t layer = hidden * (2 * q + 2 * kv + feed_forward + 2) + s.query_norm + s.key_norm +
                          (s.is_gpt_oss() ? biases + s.heads : 0);
    return layer * s.layers + hidden + hidden * s.vocab * (s.tied ? 1 : 2);
  };
  EXPECT_EQ(weights("smollm2-135m"), 134515008);
  EXPECT_EQ(weights("smollm2-360m"), 361821120);
  EXPECT_EQ(weights("smollm2-1.7b"), 1711376384);
  EXPECT_EQ(weights("tinyllama-1.1b"), 1100048384);
  EXPECT_EQ(weights("llama-1b"), 1235814400);
  EXPECT_EQ(weights("llama-3b"), 3212749824);
  EXPECT_EQ(weights("llama-8b"), 8030261248);
  EXPECT_EQ(weights("mixtral-8x7b"), 46702792704);
  EXPECT_EQ(weights("olmoe-7b"), 6919161856);
  EXPECT_EQ(weights("qwen3-30b-a3b"), 30532122624);
  EXPECT_EQ(weights("gpt-oss-20b"), 20914757184);
  EXPECT_EQ(weights("gpt-oss-120b"), 116829156672);
}

// What transformers counts for the configurations as published; corrections of routers are not
// among it.
TEST(Shapes, WithLatentAttentionHaveThePublishedNumberOfWeights) {
  const auto weights = [](const char* name) {
    const auto found = find_shape(name);
    EXPECT_TRUE(found.ok()) << name;
    const ModelShape& s = *found;
    const LatentAttention& latent = s.latent;
    const int64_t hidden = s.hidden, heads = s.heads, queries = heads * latent.query_dim();
    const int64_t query =
        latent.query_rank > 0 ? latent.query_rank * (hidden + 1 + queries) : hidden * queries;
    const int64_t attention = query + hidden * (latent.rank + latent.rope) + latent.rank +
                              heads * latent.rank * (latent.plain + latent.value_dim) +
                              heads * latent.value_dim * hidden;
    const int64_t sparse =
        hidden * (s.experts + 3 * (int64_t{s.experts} * s.expert_ffn + s.shared_ffn));
    return s.layers * (attention + 2 * hidden) + s.dense_layers * 3 * hidden * s.ffn +
           (s.layers - s.dense_layers) * sparse + hidden + 2 * hidden * s.vocab;
  };
  EXPECT_EQ(weights("deepseek-v2-lite"), 15706484224);
  EXPECT_EQ(weights("glm-4.7-flash"), 29943390976);
  EXPECT_EQ(weights("deepseek-v3"), 671026404352);
}

TEST(Shapes, UnknownOnesAreRefusedWithTheList) {
  const TemporaryFile file("make_model_none.gguf");
  const auto report = make_model(options_of("llama-2b", DType::kQ4_0, file.path));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      report.status().message(),
      testing::AllOf(HasSubstr("'llama-2b'"), HasSubstr("smollm2-135m"), HasSubstr("llama-8b")));
  for (const char* hidden : {", tiny,", ", tiny-"}) {
    EXPECT_EQ(report.status().message().find(hidden), std::string::npos);
  }
  EXPECT_EQ(file.bytes(), "");
}

}  // namespace aerie::measure::make_model_test
