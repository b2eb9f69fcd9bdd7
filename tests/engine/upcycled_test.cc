// Experts made of the real model's feed-forward: what they say and how they are chosen on text that
// means something.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "format/gguf/gguf.h"
#include "measure/models/upcycle.h"
#include "tests/testing/nightly.h"
#include "tests/testing/sanitized.h"

namespace aerie::upcycled_test {

constexpr const char* kModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
// Behind the prompts they cross a page of the cache.
const int kTokens = test::kSanitized ? 12 : test::nightly() ? 64 : 44;

const char* const kTexts[] = {
    "The old lighthouse keeper climbed the winding stairs every evening, carrying a lantern in one "
    "hand. Every evening the old lighthouse keeper",
    "def reverse(text):\n    \"\"\"The text from behind.\"\"\"\n",
    "Water boils at 100 degrees Celsius because",
};

class Upcycled : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModel)) {
      GTEST_SKIP() << kModel << " is missing: see models/README.md";
    }
  }
  ~Upcycled() override { std::remove(made_.c_str()); }

  void make(int used, double spread) const {
    const auto dense = GgufFile::open(kModel);
    ASSERT_TRUE(dense.ok()) << dense.status().message();
    measure::UpcycleOptions options;
    options.output = made_;
    options.experts = 4;
    options.used = used;
    options.spread = spread;
    const auto bytes = measure::upcycle(**dense, options);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  }

  static std::vector<std::vector<int32_t>> replies(const std::string& model,
                                                   const std::string& speculation) {
    EngineOptions options;
    options.model = model;
    options.context = 256;
    options.threads = 2;
    options.speculation = parse_speculative_spec(speculation).value();
    const auto engine = Engine::open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    std::vector<std::vector<int32_t>> all;
    for (const char* text : kTexts) {
      Request request;
      EXPECT_TRUE((*engine)->parts().tokenizer().encode(text, {true, false}, request.prompt).ok());
      request.max_tokens = kTokens;
      request.ignore_eos = true;
      const auto out = (*engine)->generate(request, nullptr);
      EXPECT_TRUE(out.ok()) << out.status().message();
      all.push_back(out->tokens);
    }
    return all;
  }

  const std::string made_ = fmt::format("{}upcycled_{}.gguf", testing::TempDir(), getpid());
};

// Of two experts' shares the sum is rounded; of one it is 1.
TEST_F(Upcycled, ExpertsThatAreAlikeSayWhatTheModelSays) {
  make(1, 0.0);
  EXPECT_EQ(replies(made_, "none"), replies(kModel, "none"));
}

TEST_F(Upcycled, DraftsChangeNothingOfExpertsThatDiffer) {
  make(2, 0.1);
  const auto plain = replies(made_, "none");
  EXPECT_NE(plain, replies(kModel, "none"));
  EXPECT_EQ(replies(made_, "ngram:gate=0"), plain);
  // The dense model is right often enough, and wrong often enough, to try every depth.
  EXPECT_EQ(
      replies(made_, fmt::format("draft_model:gate=0,num_speculative_tokens=4,model={}", kModel)),
      plain);
  EXPECT_EQ(replies(made_, "early_exit:gate=0"), plain);
}

}  // namespace aerie::upcycled_test
