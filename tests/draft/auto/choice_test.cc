// Sequences with drafters of their own in one round.

#include "draft/auto/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/lookup/ngram.h"
#include "draft/lookup/recycling.h"
#include "tests/decode/exactness.h"
#include "tests/testing/decoding.h"
#include "tests/testing/test_drafters.h"

namespace aerie::choice_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Notes what it is asked and told.
class Witness final : public test::TestDrafter {
 public:
  explicit Witness(std::vector<int32_t> layers) { needs_.tap_layers = std::move(layers); }
  Status open(const DraftSequence& sequence) override {
    open_.push_back(sequence.id);
    return {};
  }
  void close(SequenceId id) override { std::erase(open_, id); }
  Status propose(std::span<DraftRequest> requests) override {
    for (const DraftRequest& request : requests) {
      asked.push_back(request.id);
      others = request.other_rows;
      request.tree->add(1, -1);
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override {
    for (const DraftCommit& commit : commits) {
      told.push_back(commit.id);
      taps.assign(commit.taps.begin(), commit.taps.end());
    }
    return {};
  }

  std::vector<SequenceId> open_, asked, told;
  std::vector<float> taps;
  int others = -1;
};

TEST(DrafterChoice, AsksAndTellsTheOneThatASequenceHas) {
  auto a = std::make_unique<Witness>(std::vector<int32_t>{1});
  auto b = std::make_unique<Witness>(std::vector<int32_t>{2, 1});
  Witness &first = *a, &second = *b;
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::move(a));
  drafters.push_back(std::move(b));
  const auto choice = std::move(choose_drafters(std::move(drafters))).value();
  EXPECT_THAT(choice->needs().tap_layers, ElementsAre(1, 2));
  for (int id = 0; id < 3; ++id) {
    DraftSequence sequence;
    sequence.id = id;
    sequence.drafter = id % 2;
    ASSERT_TRUE(choice->open(sequence).ok());
  }
  EXPECT_THAT(first.open_, ElementsAre(0, 2));
  EXPECT_THAT(second.open_, ElementsAre(1));
  std::vector<TokenTree> trees(3);
  std::vector<DraftRequest> requests(3);
  const std::vector<int32_t> tokens = {1, 2};
  for (int id = 0; id < 3; ++id) {
    DraftRequest& request = requests[static_cast<size_t>(id)];
    request.id = id;
    request.tokens = tokens;
    request.max_nodes = 4;
    request.tree = &trees[static_cast<size_t>(id)];
    request.other_rows = 10;
  }
  ASSERT_TRUE(choice->propose(requests).ok());
  EXPECT_THAT(first.asked, ElementsAre(0, 2));
  EXPECT_EQ(first.others, 11);
  EXPECT_THAT(second.asked, ElementsAre(1));
  EXPECT_EQ(second.others, 12);
  for (const TokenTree& tree : trees) EXPECT_EQ(tree.size(), 1);
  const std::vector<float> taps = {10.0f, 20.0f};  // layers 1 and 2, one value each
  DraftCommit commit;
  commit.id = 1;
  commit.tokens = tokens;
  commit.rows = 1;
  commit.taps = taps;
  ASSERT_TRUE(choice->observe(std::span(&commit, 1)).ok());
  EXPECT_TRUE(first.told.empty());
  EXPECT_THAT(second.told, ElementsAre(1));
  EXPECT_THAT(second.taps, ElementsAre(20.0f, 10.0f));
  choice->close(1);
  EXPECT_TRUE(second.open_.empty());
  EXPECT_FALSE(choice->propose(std::span(requests).subspan(1, 1)).ok());
}

TEST(DrafterChoice, RefusesANumberThatThereIsNot) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<Witness>(std::vector<int32_t>{}));
  drafters.push_back(std::make_unique<Witness>(std::vector<int32_t>{}));
  const auto choice = std::move(choose_drafters(std::move(drafters))).value();
  for (const int drafter : {-1, 2}) {
    DraftSequence sequence;
    sequence.drafter = drafter;
    const Status status = choice->open(sequence);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(drafter)));
  }
}

}  // namespace aerie::choice_test
