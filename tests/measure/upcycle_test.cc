#include "measure/models/upcycle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "format/gguf/gguf.h"
#include "tests/testing/tiny_model.h"

namespace aerie::measure::upcycle_test {

using testing::HasSubstr;

class Upcycle : public testing::Test {
 protected:
  Upcycle() {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    EXPECT_TRUE(test::tiny_gguf(spec).write(dense_).ok());
  }
  ~Upcycle() override {
    for (const std::string& path : {dense_, made_, again_}) std::remove(path.c_str());
  }

  static std::vector<int32_t> reply(const std::string& model, const std::string& speculation) {
    EngineOptions options;
    options.model = model;
    options.threads = 2;
    options.speculation = parse_speculative_spec(speculation).value();
    const auto engine = Engine::open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return {};
    Request request;
    request.prompt = {72, 101, 108, 108, 111};
    request.max_tokens = 200;
    request.ignore_eos = true;
    const auto out = (*engine)->generate(request, nullptr);
    EXPECT_TRUE(out.ok()) << out.status().message();
    return out.ok() ? out->tokens : std::vector<int32_t>();
  }

  Status make(UpcycleOptions options, const std::string& from, const std::string& to) const {
    const auto file = GgufFile::open(from);
    EXPECT_TRUE(file.ok()) << file.status().message();
    options.output = to;
    return upcycle(**file, options).status();
  }

  const std::string dense_ = fmt::format("{}dense_{}.gguf", testing::TempDir(), getpid());
  const std::string made_ = fmt::format("{}experts_{}.gguf", testing::TempDir(), getpid());
  const std::string again_ = fmt::format("{}experts_again_{}.gguf", testing::TempDir(), getpid());
};

// Experts that are all alike say what the model says, whichever is chosen: its weight is 1.
TEST_F(Upcycle, ExpertsThatAreAlikeSayWhatTheModelSays) {
  const std::vector<int32_t> dense = reply(dense_, "none");
  for (const auto& [experts, used] : {std::pair{1, 1}, {4, 1}, {8, 1}}) {
    SCOPED_TRACE(fmt::format("{} of {}", used, experts));
    ASSERT_TRUE(make({.experts = experts, .used = used}, dense_, made_).ok());
    EXPECT_EQ(reply(made_, "none"), dense);
    EXPECT_EQ(reply(made_, "ngram:gate=0"), dense);
  }
}

TEST_F(Upcycle, ExpertsThatDifferSayOtherThingsAndTheSameDrafted) {
  ASSERT_TRUE(make({.experts = 4, .used = 2, .spread = 0.5}, dense_, made_).ok());
  const std::vector<int32_t> plain = reply(made_, "none");
  EXPECT_NE(plain, reply(dense_, "none"));
  EXPECT_EQ(reply(made_, "ngram:gate=0"), plain);

  ASSERT_TRUE(make({.experts = 4, .used = 2, .spread = 0.5, .seed = 2}, dense_, again_).ok());
  EXPECT_NE(reply(again_, "none"), plain);
}

TEST_F(Upcycle, IsTheModelWithStacksAndRouters) {
  ASSERT_TRUE(make({.experts = 3, .used = 2}, dense_, made_).ok());
  const auto dense = GgufFile::open(dense_).value();
  const auto made = GgufFile::open(made_).value();
  EXPECT_EQ(made->integer("llama.expert_count").value(), 3);
  EXPECT_EQ(made->integer("llama.expert_used_count").value(), 2);
  EXPECT_EQ(made->find_tensor("blk.1.ffn_up.weight"), nullptr);
  const TensorData one = dense->read("blk.1.ffn_up.weight").value();
  const TensorData all = made->read("blk.1.ffn_up_exps.weight").value();
  EXPECT_EQ(all.view.shape, (Shape{one.view.shape[0], one.view.shape[1], 3, 1}));
  const auto bytes = static_cast<size_t>(one.view.rows() * one.view.row_bytes());
  for (size_t e = 0; e < 3; ++e) {
    EXPECT_EQ(
        std::memcmp(static_cast<const std::byte*>(all.view.data) + e * bytes, one.view.data, bytes),
        0);
  }
  EXPECT_EQ(made->read("blk.0.ffn_gate_inp.weight").value().view.shape,
            (Shape{one.view.shape[0], 3, 1, 1}));
}

TEST_F(Upcycle, RefusesWhatCannotBe) {
  EXPECT_THAT(make({.experts = 0}, dense_, made_).message(), HasSubstr("--experts 0: give 1"));
  EXPECT_THAT(make({.experts = 4, .used = 5}, dense_, made_).message(),
              HasSubstr("--used 5: give 1 to 4"));
  EXPECT_THAT(make({.spread = -1.0}, dense_, made_).message(), HasSubstr("--spread -1"));
  EXPECT_THAT(make({.spread = 1e38}, dense_, made_).message(), HasSubstr("too large"));
  ASSERT_TRUE(make({.experts = 2, .used = 1}, dense_, made_).ok());
  EXPECT_THAT(make({}, made_, again_).message(), HasSubstr("is no dense Llama"));
}

}  // namespace aerie::measure::upcycle_test
