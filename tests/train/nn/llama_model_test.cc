// Whole Llamas in training are what the engine computes.
#include "train/nn/llama_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/tiny_model.h"
#include "tests/train/nn/engine_run.h"

namespace aerie::train::llama_model_test {

using test::distance;
using test::EngineRun;
using test::run_engine;
using test::tensor_of;
using test::TinyFile;
using test::TinySpec;

class LlamaModelTest : public testing::Test {
 protected:
  void open(const TinySpec& spec) {
    const std::string path = testing::TempDir() + "llama_model_test.gguf";
    ASSERT_TRUE(test::tiny_gguf(spec).write(path).ok());
    auto target = Target::open(path, test::pool_of(1));
    ASSERT_TRUE(target.ok()) << target.status().message();
    target_ = std::move(target).value();
    std::filesystem::remove(path);  // it stays mapped
  }

  LlamaModel cut(const LlamaCut& what) {
    auto model = LlamaModel::cut(parameters_, *target_, what);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return std::move(model).value();
  }

  static TinySpec spec(bool tied) {
    TinySpec spec;
    spec.layers = 3;
    spec.vocab = test::kByteVocab;
    spec.tokenizer = true;
    spec.tied = tied;
    return spec;
  }

  Parameters parameters_;
  std::unique_ptr<Target> target_;
};

TEST_F(LlamaModelTest, IsTheEnginesModel) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied);
    parameters_ = Parameters();
    open(spec(tied));
    const LlamaModel model = cut({.layers = {0, 1, 2}});
    EXPECT_EQ(model.shape().tied, tied);
    EXPECT_EQ(parameters_.list().size(), tied ? 29u : 30u);
    const std::vector<int32_t> first = test::random_tokens(1, 40, test::kByteVocab);
    const std::vector<int32_t> second = test::random_tokens(2, 25, test::kByteVocab);
    const Documents both = {{0, 40, 65}};
    const auto streams =
        model.forward(at::cat({tensor_of(first), tensor_of(second)}),
                      at::cat({at::arange(40, at::kLong), at::arange(25, at::kLong)}), both);
    ASSERT_EQ(streams.size(), 4u);
    const TinyFile file(spec(tied));
    const std::unique_ptr<Model> engine = file.load(test::model_options());
    const EngineRun a = run_engine(*engine, first), b = run_engine(*engine, second);
    const at::Tensor all = at::stack(streams);
    EXPECT_LT(distance(all.narrow(1, 0, 40), a.streams), 1e-3);
    EXPECT_LT(distance(all.narrow(1, 40, 25), b.streams), 1e-3);
    EXPECT_LT(distance(model.logits(streams.back()), at::cat({a.logits, b.logits})), 1e-3);
  }
}

TEST_F(LlamaModelTest, TakesLayersAndRows) {
  open(spec(false));
  const at::Tensor tokens = at::tensor(std::vector<int64_t>{7, 70, 99}, at::kLong);
  const LlamaModel model = cut({.layers = {2, 0}, .tokens = tokens, .extra_rows = 1});
  EXPECT_EQ(model.shape().layers, 2);
  EXPECT_EQ(model.shape().vocab, 4);
  const auto value = [&](const std::string& name) {
    for (const Parameter& parameter : parameters_.list()) {
      if (parameter.name == name) return parameter.value.detach();
    }
    ADD_FAILURE() << name;
    return at::Tensor();
  };
  const at::Tensor embedding = target_->embedding().value(), head = target_->output().value();
  EXPECT_TRUE(at::equal(value("model.embed_tokens.weight").narrow(0, 0, 3),
                        embedding.index_select(0, tokens)));
  EXPECT_LT(distance(value("model.embed_tokens.weight")[3], embedding.mean(0)), 1e-6);
  EXPECT_TRUE(at::equal(value("lm_head.weight").narrow(0, 0, 3), head.index_select(0, tokens)));
  EXPECT_TRUE(at::equal(value("model.layers.0.mlp.up_proj.weight"),
                        target_->tensor("blk.2.ffn_up.weight").value()));
  EXPECT_TRUE(at::equal(value("model.layers.1.self_attn.q_proj.weight"),
                        target_->tensor("blk.0.attn_q.weight").value()));
}

TEST_F(LlamaModelTest, TiesToTheHead) {
  open(spec(false));
  const LlamaModel model = cut({.layers = {0}, .tied = true});
  EXPECT_TRUE(model.shape().tied);
  EXPECT_TRUE(at::equal(parameters_.list().front().value.detach(), target_->output().value()));
}

TEST_F(LlamaModelTest, LeavesOutShares) {
  open(spec(true));
  const LlamaModel all = cut({.layers = {0, 1, 2}});
  Parameters others;
  const LlamaModel two = LlamaModel::cut(others, *target_, {.layers = {0, 2}}).value();
  const at::Tensor tokens = tensor_of(test::random_tokens(1, 20, test::kByteVocab));
  const at::Tensor positions = at::arange(10, at::kLong).repeat({2});
  const Documents both = {{0, 10, 20}};
  at::Tensor shares = at::ones({3, 20});
  shares[1].narrow(0, 0, 10).zero_();
  const at::Tensor mixed = all.forward(tokens, positions, both, shares).back();
  const at::Tensor with = all.forward(tokens, positions, both).back();
  const at::Tensor without = two.forward(tokens, positions, both).back();
  EXPECT_LT(distance(mixed.narrow(0, 10, 10), with.narrow(0, 10, 10)), 1e-6);
  EXPECT_LT(distance(mixed.narrow(0, 0, 10), without.narrow(0, 0, 10)), 1e-6);
  EXPECT_GT(distance(with, without), 0.1);
}

TEST_F(LlamaModelTest, GradientsReachAllWeights) {
  LlamaShape shape;
  shape.layer = {.hidden = 12, .heads = 2, .kv_heads = 1, .head_dim = 6, .intermediate = 16};
  shape.layers = 2;
  shape.vocab = 20;
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(5);
  const LlamaModel model = LlamaModel::create(parameters_, shape, at::kCPU, generator);
  const at::Tensor tokens = at::arange(8, at::kLong);
  model.logits(model.forward(tokens, tokens, {{0, 8}}).back()).square().sum().backward();
  for (const Parameter& parameter : parameters_.list()) {
    ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
    EXPECT_GT(parameter.value.grad().norm().item<double>(), 0.0) << parameter.name;
  }
}

TEST_F(LlamaModelTest, ReadsLists) {
  using Layers = std::vector<int64_t>;
  EXPECT_EQ(parse_cut_layers("0,1,29", 30).value(), (Layers{0, 1, 29}));
  EXPECT_EQ(parse_cut_layers("5,2", 30).value(), (Layers{5, 2}));
  EXPECT_EQ(parse_cut_layers("3", 30).value(), (Layers{0, 1, 2}));
  EXPECT_EQ(parse_cut_layers("30", 30).value().size(), 30u);
  for (const char* text :
       {"", "0", "31", "0,30", "1,", ",1", "a", "1,-1", "1 2", "99999999999999999999"}) {
    const auto layers = parse_cut_layers(text, 30);
    ASSERT_FALSE(layers.ok()) << text;
    EXPECT_EQ(layers.status().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(LlamaModelTest, RefusesOtherModels) {
  const auto refused = [&](test::GgufWriter writer) {
    const std::string path = testing::TempDir() + "llama_model_test.gguf";
    EXPECT_TRUE(writer.write(path).ok());
    target_ = std::move(Target::open(path, test::pool_of(1))).value();
    std::filesystem::remove(path);
    return llama_shape(*target_).status();
  };
  test::GgufWriter stretched = test::tiny_gguf(spec(true));
  stretched.add_string("llama.rope.scaling.type", "linear");
  stretched.add_f32("llama.rope.scaling.factor", 2.0f);
  EXPECT_EQ(refused(stretched).code(), StatusCode::kUnsupported);
  EXPECT_NE(refused(stretched).message().find("stretched"), std::string::npos);
  test::GgufWriter biased = test::tiny_gguf(spec(true));
  biased.add_tensor("blk.0.attn_q.bias", DType::kF32, {64}, std::vector<float>(64));
  EXPECT_EQ(refused(biased).code(), StatusCode::kUnsupported);
  EXPECT_NE(refused(biased).message().find("biases"), std::string::npos);
}

TEST_F(LlamaModelTest, RefusesWhatIsNotThere) {
  open(spec(true));
  const auto code = [&](const LlamaCut& what) {
    Parameters parameters;
    return LlamaModel::cut(parameters, *target_, what).status().code();
  };
  EXPECT_EQ(code({.layers = {3}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.layers = {-1}}), StatusCode::kInvalidArgument);
  const auto tokens = [](std::vector<int64_t> ids) { return at::tensor(ids, at::kLong); };
  EXPECT_EQ(code({.layers = {0}, .tokens = tokens({0, test::kByteVocab})}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.layers = {0}, .tokens = tokens({-1})}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.layers = {0}, .tokens = at::empty({0}, at::kLong)}),
            StatusCode::kInvalidArgument);
}

}  // namespace aerie::train::llama_model_test
