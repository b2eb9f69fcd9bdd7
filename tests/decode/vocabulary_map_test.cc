#include "draft/network/vocabulary_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/testing/tiny_model.h"

namespace aerie::vocabulary_map_test {

std::unique_ptr<Tokenizer> tokenizer_of(const char* turn_end) {
  test::TinySpec spec;
  spec.tokenizer = true;
  spec.vocab = test::kByteVocab;
  spec.turn_end = turn_end;
  const test::TinyFile file(spec);
  return std::move(Tokenizer::from_gguf(file.gguf())).value();
}

TEST(VocabularyMap, PairsWhatIsTheSame) {
  const auto target = tokenizer_of("<|im_end|>"), draft = tokenizer_of("<|end|>");
  EXPECT_TRUE(check_same_vocabulary(*target, *target).ok());
  EXPECT_FALSE(check_same_vocabulary(*target, *draft).ok());
  constexpr int kLogits = test::kByteVocab + 5;  // the target's are padded
  const VocabularyMap map = VocabularyMap::make(*target, kLogits, *draft, test::kByteVocab).value();
  EXPECT_EQ(map.target_size(), kLogits);
  EXPECT_EQ(map.pairs(), test::kByteVocab - 1);
  EXPECT_EQ(map.to_draft('a'), 'a');
  EXPECT_EQ(map.to_draft(test::kTurnStart), test::kTurnStart);
  EXPECT_EQ(map.to_draft(test::kTurnEnd), -1);
  EXPECT_TRUE(map.spelling(test::kTurnEnd).empty());
  EXPECT_TRUE(map.spelling(kLogits - 1).empty());
  ASSERT_EQ(map.spelling('a').size(), 1u);

  std::vector<float> logits(test::kByteVocab), out(kLogits, 1.0f);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  map.translate(logits, out);
  EXPECT_EQ(out['b'], static_cast<float>('b'));
  EXPECT_TRUE(std::isinf(out[test::kTurnEnd]) && out[test::kTurnEnd] < 0);
  EXPECT_TRUE(std::isinf(out[kLogits - 1]));
}

TEST(VocabularyMap, LeavesOutWhatTheDraftHasNoLogitsFor) {
  const auto target = tokenizer_of("<|im_end|>");
  const VocabularyMap map = VocabularyMap::make(*target, test::kByteVocab, *target, 200).value();
  EXPECT_EQ(map.pairs(), 200);
  EXPECT_EQ(map.to_draft(200), -1);
}

TEST(VocabularyMap, TakesIdsAsTheyAre) {
  const auto spelling = [](const VocabularyMap& map, int32_t id) {
    return std::vector<int32_t>(map.spelling(id).begin(), map.spelling(id).end());
  };
  using Ids = std::vector<int32_t>;
  for (const int rows : {3, 4, 6}) {
    const VocabularyMap map = VocabularyMap::of_ids({2, 5, 9}, 12, rows);
    EXPECT_EQ(map.target_size(), 12);
    EXPECT_EQ(map.pairs(), 3);
    EXPECT_EQ(Ids(map.ids().begin(), map.ids().end()), (Ids{2, 5, 9}));
    EXPECT_TRUE(map.beginning().empty());
    EXPECT_EQ(map.to_draft(5), 1);
    EXPECT_EQ(map.to_draft(6), -1);
    EXPECT_EQ(spelling(map, 9), (Ids{2}));
    const Ids other = rows > 3 ? Ids{3} : Ids{};
    for (const int32_t id : {0, 6, 11}) EXPECT_EQ(spelling(map, id), other) << id;
  }
}

}  // namespace aerie::vocabulary_map_test
