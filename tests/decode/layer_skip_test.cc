// The target without some of its layers as the draft model.

#include "draft/network/layer_skip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/decoding.h"
#include "tests/testing/tiny_model.h"

namespace aerie::layer_skip_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const char* text) {
  const auto parsed = parse_layers(text, 30);
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << text;
  return parsed.status().message();
}

TEST(LayerSkip, ReadsLists) {
  EXPECT_THAT(*parse_layers("3", 30), ElementsAre(3));
  EXPECT_THAT(*parse_layers("8-12+14", 30), ElementsAre(8, 9, 10, 11, 12, 14));
  EXPECT_THAT(*parse_layers("29+0+1-2+2-3", 30), ElementsAre(0, 1, 2, 3, 29));
  for (const char* text : {"", "+", "3+", "+3", "-3", "3-", "3--4", "3,4", "3 ", "a", "3-a", "--",
                           "99999999999999999999"}) {
    EXPECT_THAT(refusal(text), HasSubstr("a number is missing")) << text;
  }
  EXPECT_THAT(refusal("5-4"), HasSubstr("5 comes after 4"));
  EXPECT_THAT(refusal("30"), HasSubstr("layers 0 to 29"));
  EXPECT_THAT(refusal("0-2000000000"), HasSubstr("layers 0 to 29"));
  EXPECT_THAT(refusal("0-29"), HasSubstr("none would be left"));
}

TEST(LayerSkip, SpreadsEvenlyOverTheMiddle) {
  EXPECT_THAT(evenly_skipped_layers(10, 0.5), ElementsAre(1, 3, 5, 6, 8));
  EXPECT_THAT(evenly_skipped_layers(30, 0.1), ElementsAre(5, 15, 24));
  EXPECT_THAT(evenly_skipped_layers(4, 0.99), ElementsAre(1, 2));
  EXPECT_THAT(evenly_skipped_layers(30, 0.0), IsEmpty());
  EXPECT_THAT(evenly_skipped_layers(2, 0.9), IsEmpty());
  EXPECT_THAT(evenly_skipped_layers(1, 0.9), IsEmpty());
}

// Where the layers left out say nothing, all drafts stand; the weights are there once.
TEST(LayerSkip, DraftsWithTheTargetsOwnWeights) {
  test::TinySpec spec;
  spec.layers = 5;
  spec.silent_layers = {1, 3};
  const test::TinyFile file(spec);
  const auto model = file.load(test::model_options());
  DecoderOptions options;
  options.max_positions = 256;
  options.max_nodes = 8;
  DraftModelOptions draft;
  draft.num_tokens = 4;
  draft.vocab = spec.vocab;
  draft.max_positions = options.max_positions;
  test::Request request;
  request.prompt = test::random_tokens(7, 60, spec.vocab);
  request.options.max_tokens = 1 + 5 * 12;
  request.options.sampling.temperature = 0.8;
  const ModelCache owned_cache = test::cache_for(*model, options, 1);
  KvCache& cache = *owned_cache;
  const auto plain = test::decode(*model, cache, nullptr, options, {&request, 1});
  const auto drafter = std::move(make_layer_skip_drafter(*model, {1, 3}, draft)).value();
  EXPECT_EQ(drafter->method(), "layer_skip");
  const auto replies = test::decode(*model, cache, drafter.get(), options, {&request, 1});
  EXPECT_EQ(test::difference(plain.of, replies.of), "");
  EXPECT_EQ(replies.of[0].stats.accepted, 4 * 12);
  EXPECT_EQ(replies.of[0].stats.rounds, 12);

  EXPECT_THAT(make_layer_skip_drafter(*model, {5}, draft).status().message(), HasSubstr("layer 5"));
  EXPECT_FALSE(make_layer_skip_drafter(*model, {2, 1}, draft).ok());
  EXPECT_FALSE(make_layer_skip_drafter(*model, {0, 1, 2, 3, 4}, draft).ok());
  draft.max_rows = 3;
  EXPECT_THAT(make_layer_skip_drafter(*model, {1}, draft).status().message(),
              HasSubstr("passes of 3 rows"));
}

}  // namespace aerie::layer_skip_test
