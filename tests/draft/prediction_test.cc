#include "draft/lookup/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/allocation_counter.h"

namespace aerie::prediction_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Tokens = std::vector<int32_t>;

constexpr SequenceId kId = 4;

std::unique_ptr<Drafter> make(const PredictionOptions& options) {
  auto drafter = make_prediction_drafter(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

void open(Drafter& drafter, const Tokens& prediction, SequenceId id = kId) {
  DraftSequence sequence;
  sequence.id = id;
  sequence.max_tokens = 100000;
  sequence.prediction = prediction;
  ASSERT_TRUE(drafter.open(sequence).ok());
}

Status observe(Drafter& drafter, const Tokens& text, int first, int rows, SequenceId id = kId) {
  DraftCommit commit;
  commit.id = id;
  commit.tokens = text;
  commit.first = first;
  commit.rows = rows;
  return drafter.observe({&commit, 1});
}

Tokens propose(Drafter& drafter, const Tokens& text, int max_nodes = 1000, SequenceId id = kId) {
  TokenTree tree;
  DraftRequest request{.id = id, .tokens = text, .max_nodes = max_nodes, .tree = &tree};
  EXPECT_TRUE(drafter.propose({&request, 1}).ok());
  EXPECT_TRUE(tree.is_chain());
  Tokens tokens;
  float above = 1.0f;
  for (const TokenTree::Node& node : tree.nodes) {
    EXPECT_EQ(node.proposal, nullptr);
    EXPECT_GT(node.probability, 0.0f);
    EXPECT_LT(node.probability, above);
    above = node.probability;
    tokens.push_back(node.token);
  }
  return tokens;
}

// A sequence that has read its prompt in passes of `chunk`, with its first token.
class Talk {
 public:
  Talk(const PredictionOptions& options, const Tokens& prediction, const Tokens& prompt,
       int32_t first_token, int chunk = 100)
      : drafter(make(options)), text(prompt) {
    open(*drafter, prediction);
    const int length = static_cast<int>(prompt.size());
    for (int first = 0; first < length; first += chunk) {
      const int rows = std::min(chunk, length - first);
      if (first + rows == length) text.push_back(first_token);
      EXPECT_TRUE(observe(*drafter, text, first, rows).ok());
    }
    draft();
  }
  Tokens draft(int max_nodes = 1000) { return propose(*drafter, text, max_nodes); }
  Tokens draft_after(const Tokens& tokens) {
    const int first = static_cast<int>(text.size()) - 1;
    text.insert(text.end(), tokens.begin(), tokens.end());
    EXPECT_TRUE(observe(*drafter, text, first, static_cast<int>(tokens.size())).ok());
    return draft();
  }

  std::unique_ptr<Drafter> drafter;
  Tokens text;
};

TEST(Prediction, FollowsTheTextFromItsBeginning) {
  for (const int chunk : {1, 2, 100}) {
    // The prompt repeats what is predicted, which must not matter.
    Talk talk({.num_tokens = 3}, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 9}, 1, chunk);
    EXPECT_THAT(talk.draft(), ElementsAre(2, 3, 4));
    EXPECT_THAT(talk.draft(2), ElementsAre(2, 3));
    EXPECT_THAT(talk.draft(0), IsEmpty());
    EXPECT_THAT(talk.draft_after({2, 3}), ElementsAre(4, 5, 6));
    EXPECT_THAT(talk.draft_after({4, 5}), ElementsAre(6));
    EXPECT_THAT(talk.draft_after({6}), IsEmpty());
    EXPECT_THAT(talk.draft_after({7}), IsEmpty());
    EXPECT_THAT(talk.draft_after({2, 3}), ElementsAre(4, 5, 6));
  }
}

TEST(Prediction, NoneGivesNothing) {
  Talk talk({}, {}, {1, 2}, 1);
  EXPECT_THAT(talk.draft(), IsEmpty());
  EXPECT_THAT(talk.draft_after({1, 2, 1}), IsEmpty());
  Talk one({}, {8}, {1, 2}, 1);
  EXPECT_THAT(one.draft(), IsEmpty());
}

TEST(Prediction, FindsTheWayBack) {
  // Replaced, left out, put in.
  const Tokens prediction = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_THAT(Talk({.num_tokens = 2}, prediction, {0}, 1).draft_after({2, 99, 4}),
              ElementsAre(5, 6));
  EXPECT_THAT(Talk({.num_tokens = 2}, prediction, {0}, 1).draft_after({2, 5}), ElementsAre(6, 7));
  EXPECT_THAT(Talk({.num_tokens = 2}, prediction, {0}, 1).draft_after({2, 99, 98, 3}),
              ElementsAre(4, 5));
  EXPECT_THAT(Talk({.num_tokens = 2}, prediction, {0}, 77).draft(), IsEmpty());
  EXPECT_THAT(Talk({.num_tokens = 2}, prediction, {0}, 77).draft_after({1}), ElementsAre(2, 3));
}

TEST(Prediction, PrefersLongerThenTheNextThenTheLast) {
  const Tokens prediction = {5, 10, 6, 5, 20, 6, 5, 30, 6, 5, 40};
  // 6 5 comes once before the place that was left and twice after it: the first of these.
  EXPECT_THAT(Talk({.num_tokens = 1}, prediction, {0}, 5).draft_after({10, 6, 5, 20, 77, 6, 5}),
              ElementsAre(30));
  // None after it: the last before.
  EXPECT_THAT(Talk({.num_tokens = 1}, prediction, {0}, 5)
                  .draft_after({10, 6, 5, 20, 6, 5, 30, 6, 5, 40, 77, 20}),
              ElementsAre(6));
  EXPECT_THAT(Talk({.num_tokens = 1}, prediction, {0}, 5)
                  .draft_after({10, 6, 5, 20, 6, 5, 30, 6, 5, 40, 77, 6, 5}),
              ElementsAre(40));
  // A longer suffix counts for more than the order.
  EXPECT_THAT(Talk({.num_tokens = 1}, prediction, {0}, 5).draft_after({10, 77, 20, 6, 5}),
              ElementsAre(30));
  EXPECT_THAT(
      Talk({.num_tokens = 1, .max_n = 1}, prediction, {0}, 5).draft_after({10, 77, 20, 6, 5}),
      ElementsAre(20));
  // Two tokens must agree.
  EXPECT_THAT(Talk({.num_tokens = 1, .min_n = 2}, prediction, {0}, 5).draft_after({77, 5}),
              IsEmpty());
  EXPECT_THAT(Talk({.num_tokens = 1, .min_n = 2}, prediction, {0}, 5).draft_after({77, 6, 5}),
              ElementsAre(20));
}

TEST(Prediction, AFalseReturnDoesNotMoveThePlaceForward) {
  const Tokens prediction = {1, 2, 3, 4, 5, 6, 7, 2, 8};
  Talk talk({.num_tokens = 1}, prediction, {0}, 1);
  EXPECT_THAT(talk.draft_after({2, 99, 6}), ElementsAre(7));
  // 7 did not come, so the place is still after 1 2.
  EXPECT_THAT(talk.draft_after({4}), ElementsAre(5));
}

// Quadratic: the place after each text by what prediction.h says.
class ByHand {
 public:
  ByHand(Tokens prediction, const PredictionOptions& options)
      : prediction_(std::move(prediction)), options_(options) {}

  // `news` are the output's tokens of a round.
  Tokens draft_after(const Tokens& news) {
    for (const int32_t token : news) {
      output_.push_back(token);
      if (place_ >= 0 && place_ < size() && prediction_[static_cast<size_t>(place_)] == token) {
        agreed_ = ++place_;
      } else {
        place_ = -1;
      }
    }
    for (int n = options_.max_n; place_ < 0 && n >= options_.min_n; --n) find(n);
    if (place_ < 0) return {};
    const auto begin = prediction_.begin() + place_;
    return {begin, begin + std::min(size() - place_, options_.num_tokens)};
  }

 private:
  int size() const { return static_cast<int>(prediction_.size()); }
  void find(int n) {
    if (n > static_cast<int>(output_.size())) return;
    std::vector<int> places;
    for (int place = n; place < size(); ++place) {
      if (std::equal(output_.end() - n, output_.end(), prediction_.begin() + place - n)) {
        places.push_back(place);
      }
    }
    if (places.empty()) return;
    const auto ahead = std::ranges::find_if(places, [&](int p) { return p > agreed_; });
    place_ = ahead == places.end() ? places.back() : *ahead;
  }

  Tokens prediction_, output_;
  PredictionOptions options_;
  int place_ = 0;
  int agreed_ = 0;
};

TEST(Prediction, EqualsBruteForce) {
  std::mt19937 random(1);
  int64_t proposed = 0;
  for (int repeat = 0; repeat < 2000; ++repeat) {
    PredictionOptions options;
    options.num_tokens = 1 + static_cast<int>(random() % 5);
    options.min_n = 1 + static_cast<int>(random() % 2);
    options.max_n = options.min_n + static_cast<int>(random() % 4);
    const auto alphabet = static_cast<uint32_t>(2 + random() % 12);
    Tokens prediction(random() % 60);
    for (int32_t& token : prediction) token = static_cast<int32_t>(random() % alphabet);
    const auto drafter = make(options);
    open(*drafter, prediction);
    ByHand by_hand(prediction, options);
    Tokens text = {1, 2, 3};
    // The output is the prediction with mistakes.
    size_t from = 0;
    for (int round = 0; round < 12; ++round) {
      Tokens news;
      for (size_t count = 1 + random() % 4; news.size() < count;) {
        if (random() % 5 == 0) from += random() % 3;
        const bool right = random() % 6 != 0 && from < prediction.size();
        news.push_back(right ? prediction[from] : static_cast<int32_t>(random() % alphabet));
        ++from;
      }
      const int first = round == 0 ? 0 : static_cast<int>(text.size()) - 1;
      // The pass over the prompt gives one token.
      if (round == 0) news.resize(1);
      const int rows = round == 0 ? 3 : static_cast<int>(news.size());
      text.insert(text.end(), news.begin(), news.end());
      ASSERT_TRUE(observe(*drafter, text, first, rows).ok());
      const Tokens draft = propose(*drafter, text);
      ASSERT_EQ(draft, by_hand.draft_after(news)) << "round " << round;
      proposed += static_cast<int64_t>(draft.size());
    }
  }
  EXPECT_GT(proposed, 10000);
}

TEST(Prediction, SequencesDoNotMix) {
  const auto drafter = make({.num_tokens = 2});
  open(*drafter, {1, 2, 3}, 1);
  open(*drafter, {1, 8, 9}, 2);
  const Tokens text = {0, 1};
  for (const SequenceId id : {1, 2}) ASSERT_TRUE(observe(*drafter, text, 0, 1, id).ok());
  TokenTree first, second;
  DraftRequest requests[] = {{2, text, 5, &second}, {1, text, 5, &first}};
  ASSERT_TRUE(drafter->propose(requests).ok());
  EXPECT_EQ(first.nodes[0].token, 2);
  EXPECT_EQ(second.nodes[0].token, 8);
  drafter->close(1);
  open(*drafter, {1, 6}, 1);
  ASSERT_TRUE(observe(*drafter, text, 0, 1, 1).ok());
  EXPECT_THAT(propose(*drafter, text, 5, 1), ElementsAre(6));
}

void expect_invalid(const Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(Prediction, WrongUseIsAStatus) {
  expect_invalid(make_prediction_drafter({.min_n = 0}).status(), "min_n");
  expect_invalid(make_prediction_drafter({.min_n = 3, .max_n = 2}).status(), "max_n");
  expect_invalid(make_prediction_drafter({.num_tokens = 0}).status(), "num_tokens");
  const auto drafter = make({});
  expect_invalid(observe(*drafter, {1}, 0, 1), "prediction drafter: sequence 4 is not open");
  EXPECT_EQ(drafter->method(), "prediction");
  EXPECT_TRUE(drafter->needs().tap_layers.empty());
}

TEST(Prediction, AllocatesNothingAfterOpen) {
  Tokens prediction(500);
  for (size_t i = 0; i < prediction.size(); ++i) prediction[i] = static_cast<int32_t>(i * i % 17);
  Talk talk({.num_tokens = 8}, prediction, {1}, prediction[0]);
  talk.text.insert(talk.text.end(), prediction.begin() + 1, prediction.begin() + 100);
  talk.text.insert(talk.text.end(), prediction.begin() + 130, prediction.end());
  TokenTree tree;
  tree.nodes.reserve(8);
  int64_t proposed = 0;
  const int64_t before = allocations();
  for (size_t size = 2; size < talk.text.size(); ++size) {
    tree.clear();
    DraftRequest request{kId, std::span(talk.text).first(size), 8, &tree};
    ASSERT_TRUE(talk.drafter->propose({&request, 1}).ok());
    proposed += tree.size();
  }
  EXPECT_EQ(allocations(), before);
  EXPECT_GT(proposed, 1000);
}

}  // namespace aerie::prediction_test
