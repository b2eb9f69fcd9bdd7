// Draft models that propose some of their tokens alone, or with weights of another type.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "aerie/engine.h"
#include "tests/testing/temporary_model.h"

namespace aerie::pruned_draft_test {

using ::testing::HasSubstr;

test::TinySpec spec(bool tied) {
  test::TinySpec made;
  made.tokenizer = true;
  made.vocab = test::kByteVocab;
  made.context = 512;
  made.tied = tied;
  return made;
}

// Every other token, and one more.
constexpr int kKept = 130;

struct Files {
  test::TemporaryModel model{"pruned_target", spec(false)};
  test::TemporaryModel tied{"pruned_tied", spec(true)};
  std::string list = std::filesystem::temp_directory_path() / "aerie_pruned_tokens.txt";

  Files() {
    std::ofstream out(list);
    for (int id = 0; id < 2 * kKept; id += 2) out << id << '\n';
  }
  ~Files() { std::filesystem::remove(list); }
};

Expected<Generation> generate(const std::string& model, const std::string& speculate,
                              double temperature = 0) {
  OpenOptions options;
  options.model = model;
  options.threads = 2;
  options.speculate = speculate;
  auto engine = Engine::open(options);
  if (!engine.ok()) return engine.status();
  Request request;
  request.prompt = (*engine)->tokenize("one two one two").value();
  request.sampling.temperature = temperature;
  request.sampling.seed = 3;
  request.max_tokens = 80;
  request.ignore_eos = true;
  return (*engine)->generate(request);
}

TEST(PrunedDraft, ProposesWhatIsKeptAndChangesNothing) {
  const Files files;
  int64_t accepted = 0;
  std::set<int32_t> others;  // than those that are kept: they come as corrections
  for (const std::string& model : {files.model.path(), files.tied.path()}) {
    for (const double temperature : {0.0, 1.0}) {
      const auto plain = generate(model, "none", temperature);
      const auto pruned = generate(
          model, "draft_model:gate=0,model=" + model + ",draft_vocab=" + files.list, temperature);
      ASSERT_TRUE(plain.ok() && pruned.ok()) << pruned.status().message();
      EXPECT_EQ(plain->tokens, pruned->tokens);
      accepted += pruned->stats.accepted;
      for (const EmittedToken& token : pruned->emitted) {
        if (token.origin == TokenOrigin::kAccepted) {
          EXPECT_EQ(token.id % 2, 0);
        } else if (token.id % 2 != 0) {
          others.insert(token.id);
        }
      }
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_FALSE(others.empty());
}

// A model that drafts for itself is right wherever it may propose the token.
TEST(PrunedDraft, IsAsGoodAsTheWholeOne) {
  const Files files;
  std::ofstream all(files.list);
  for (int id = 0; id < test::kByteVocab; ++id) all << id << '\n';
  all.close();
  const std::string speculate = "draft_model:gate=0,model=" + files.model.path();
  const auto whole = generate(files.model.path(), speculate);
  const auto pruned = generate(files.model.path(), speculate + ",draft_vocab=" + files.list);
  ASSERT_TRUE(whole.ok() && pruned.ok());
  EXPECT_EQ(whole->stats.accepted, pruned->stats.accepted);
  EXPECT_EQ(whole->stats.drafted, pruned->stats.drafted);
}

TEST(PrunedDraft, WeightsOfAnotherTypeChangeNothing) {
  const Files files;
  const auto plain = generate(files.model.path(), "none");
  const auto other = generate(
      files.model.path(), "draft_model:gate=0,model=" + files.model.path() + ",draft_type=q4_0");
  ASSERT_TRUE(plain.ok() && other.ok()) << other.status().message();
  EXPECT_EQ(plain->tokens, other->tokens);
  EXPECT_GT(other->stats.accepted, 0);
}

TEST(PrunedDraft, WhatCannotBeIsRefused) {
  const Files files;
  const std::string drafter = "draft_model:gate=0,model=" + files.model.path();
  const auto refusal = [&](const std::string& speculate) {
    return generate(files.model.path(), speculate).status().message();
  };
  EXPECT_THAT(refusal(drafter + ",draft_type=x"), HasSubstr("'draft_type' must be one of"));
  EXPECT_THAT(refusal(drafter + ",draft_vocab_size=8"), HasSubstr("'draft_vocab'"));
  EXPECT_THAT(refusal(drafter + ",draft_vocab=" + files.list + ",draft_vocab_size=1000"),
              HasSubstr("holds 130 token ids"));
  EXPECT_THAT(refusal(drafter + ",vocabulary=text,draft_vocab=" + files.list),
              HasSubstr("leave out draft_vocab"));
}

}  // namespace aerie::pruned_draft_test
