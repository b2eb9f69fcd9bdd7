// An engine whose model several ranks share, as a program opens it.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "engine/engine.h"
#include "engine/rank_setup.h"
#include "parallel/leading_model.h"
#include "tests/testing/temporary_model.h"
#include "tests/testing/thread_ranks.h"

namespace aerie::ranked_engine_test {

// The whole way of a program, with threads for processes.
class Ranked {
 public:
  Ranked(const std::string& of_leader, const std::string& of_other) : group_(2) {
    other_ = std::thread([of_other, group = group_.rank(1)] {
      const Status status = follow_leader(of_other, *group);
      if (status.ok()) return;
      // Whoever leads would wait for it forever.
      std::fprintf(stderr, "rank 1: %s\n", status.message().c_str());
      std::abort();
    });
    options_.model = of_leader;
    options_.threads = 1;
    options_.tensor_parallel = 2;
    options_.group = group_.rank(0);
  }
  ~Ranked() {
    group_.leave();
    other_.join();
  }
  Ranked(const Ranked&) = delete;
  Ranked& operator=(const Ranked&) = delete;

  EngineOptions& options() { return options_; }

 private:
  test::ThreadGroup group_;
  std::thread other_;
  EngineOptions options_;
};

test::TinySpec spec_of(uint64_t seed) {
  test::TinySpec spec;
  spec.vocab = test::kByteVocab;
  spec.seed = seed;
  spec.tokenizer = true;
  return spec;
}

std::vector<int32_t> said(Engine& engine) {
  Request request;
  request.prompt = {1, 2, 3, 4, 1, 2, 3};
  request.max_tokens = 30;
  request.ignore_eos = true;
  const auto reply = engine.generate(request);
  EXPECT_TRUE(reply.ok()) << reply.status().message();
  return reply.ok() ? reply->tokens : std::vector<int32_t>();
}

TEST(Engines, OneAfterTheOtherWithTheSameRanks) {
  const test::TemporaryModel file("ranks", spec_of(1));
  EngineOptions alone;
  alone.model = file.path();
  alone.threads = 1;
  const auto one = Engine::open(alone, {});
  ASSERT_TRUE(one.ok()) << one.status().message();
  Ranked ranked(file.path(), file.path());
  for (const char* speculation : {"none", "ngram", "layer_skip", "auto"}) {
    SCOPED_TRACE(speculation);
    ranked.options().speculation = *parse_speculative_spec(speculation);
    const auto several = Engine::open(ranked.options(), {});
    ASSERT_TRUE(several.ok()) << several.status().message();
    EXPECT_EQ(said(**several), said(**one));
  }
}

TEST(Engines, RanksWithOtherFilesAreRefused) {
  const test::TemporaryModel file("ranks_a", spec_of(1));
  const test::TemporaryModel another("ranks_b", spec_of(2));
  Ranked ranked(file.path(), another.path());
  const auto engine = Engine::open(ranked.options(), {});
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("rank 1: "), std::string::npos);
  EXPECT_NE(engine.status().message().find("not the file that the leader has"), std::string::npos);
  // Those that could be opened are closed again, and the next is tried anew.
  EXPECT_FALSE(Engine::open(ranked.options(), {}).ok());
}

TEST(Engines, RanksOfAnotherVersionAreRefused) {
  test::ThreadGroup group(2);
  Status ended = internal_error("it has not ended");
  std::thread other([&, own = group.rank(1)] { ended = follow_leader("nowhere.gguf", *own); });
  const std::shared_ptr<Group> leader = group.rank(0);
  RankSetup setup;
  setup.version = "99.0.1";
  tell_setup(setup, *leader);
  const Status status = collect_statuses(*leader);
  group.leave();
  other.join();
  EXPECT_TRUE(ended.ok()) << ended.message();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("rank 1: "), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("the leader is 99.0.1: install the same"), std::string::npos)
      << status.message();
}

TEST(Engines, RanksThatHaveNotMetAreRefused) {
  const test::TemporaryModel file("ranks_c", spec_of(1));
  EngineOptions options;
  options.model = file.path();
  options.tensor_parallel = 2;
  EXPECT_EQ(Engine::open(options, {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace aerie::ranked_engine_test
