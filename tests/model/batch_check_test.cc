#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "model/model.h"

namespace aerie::batch_check_test {

using ::testing::HasSubstr;

class BatchCheck : public testing::Test {
 protected:
  BatchCheck() {
    config_.layers = 2;
    config_.vocab = 50;
    options_.max_rows = 4;
    options_.max_logits = 2;
    options_.max_positions = 100;
    options_.max_taps = 2;
    batch_.sequences = {{{}, 10}, {{}, 98}};
    batch_.rows = {row(0, 1, 10, -1), row(0, 2, 11, 0), row(0, 3, 11, 0), row(1, 4, 98, -1)};
    batch_.tap_layers = {0, 2};
  }
  static BatchRow row(int32_t sequence, int32_t token, int32_t position, int32_t parent) {
    BatchRow row;
    row.sequence = sequence;
    row.token = token;
    row.position = position;
    row.parent = parent;
    return row;
  }
  std::string refusal(const std::function<void(ForwardBatch&)>& edit) const {
    ForwardBatch batch = batch_;
    edit(batch);
    const Status status = check_batch(batch, config_, options_);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
    return status.message();
  }

  ModelConfig config_;
  ModelOptions options_;
  ForwardBatch batch_;
};

TEST_F(BatchCheck, TakesAGoodBatch) {
  EXPECT_EQ(refusal([](ForwardBatch&) {}), "");
  EXPECT_EQ(refusal([](ForwardBatch& b) { b.clear(); }), "");
}

TEST_F(BatchCheck, CountsAncestorsOfEarlierPasses) {
  const int32_t slots[] = {4, 9};
  EXPECT_EQ(refusal([&](ForwardBatch& b) {
              b.rows[0].above = slots;
              b.rows[0].position = 12;
              b.rows[1].position = b.rows[2].position = 13;
            }),
            "");
  EXPECT_THAT(refusal([&](ForwardBatch& b) { b.rows[0].above = slots; }),
              HasSubstr("position 10 where 12 follows"));
  EXPECT_THAT(refusal([&](ForwardBatch& b) { b.rows[1].above = slots; }),
              HasSubstr("row 1 of the batch: has parent 0 and 2 ancestors of earlier passes"));
}

TEST_F(BatchCheck, NamesRowAndValue) {
  const auto row_refusal = [&](int index, const std::function<void(BatchRow&)>& edit) {
    return refusal([&](ForwardBatch& b) { edit(b.rows[static_cast<size_t>(index)]); });
  };
  const auto expect = [](const std::string& message, const char* row, const char* value) {
    EXPECT_THAT(message, HasSubstr(row));
    EXPECT_THAT(message, HasSubstr(value));
  };
  expect(row_refusal(1, [](BatchRow& r) { r.token = 50; }), "row 1", "token 50");
  expect(row_refusal(1, [](BatchRow& r) { r.token = -1; }), "row 1", "token -1");
  expect(row_refusal(2, [](BatchRow& r) { r.sequence = 2; }), "row 2", "sequence 2");
  expect(row_refusal(2, [](BatchRow& r) { r.sequence = -1; }), "row 2", "sequence -1");
  expect(row_refusal(2, [](BatchRow& r) { r.parent = 2; }), "row 2", "parent 2");
  expect(row_refusal(2, [](BatchRow& r) { r.parent = -2; }), "row 2", "parent -2");
  expect(row_refusal(3, [](BatchRow& r) { r.parent = 2; }), "row 3", "sequence 0, not 1");
  expect(row_refusal(2, [](BatchRow& r) { r.position = 12; }), "row 2", "position 12 where 11");
  expect(row_refusal(0, [](BatchRow& r) { r.position = 0; }), "row 0", "position 0 where 10");
  expect(refusal([](ForwardBatch& b) {
           b.sequences[1].committed = 100;
           b.rows[3].position = 100;
         }),
         "row 3", "context of 100");
}

TEST_F(BatchCheck, HoldsTheModelsLimits) {
  EXPECT_THAT(refusal([](ForwardBatch& b) { b.rows.push_back(b.rows[3]); }), HasSubstr("5 rows"));
  EXPECT_THAT(refusal([](ForwardBatch& b) {
                for (BatchRow& r : b.rows) r.wants_logits = true;
              }),
              HasSubstr("4 rows want logits"));
  EXPECT_THAT(refusal([](ForwardBatch& b) {
                for (BatchRow& r : b.rows) r.wants_state = true;
              }),
              HasSubstr("4 states"));
  EXPECT_THAT(refusal([](ForwardBatch& b) { b.tap_layers = {0, 1, 2}; }), HasSubstr("3 layers"));
  EXPECT_THAT(refusal([](ForwardBatch& b) { b.tap_layers = {3}; }), HasSubstr("layer 3"));
  EXPECT_THAT(refusal([](ForwardBatch& b) { b.tap_layers = {-1}; }), HasSubstr("layer -1"));
}

TEST_F(BatchCheck, HoldsTheLayersToTheModels) {
  const auto with = [&](int first, int end, const std::vector<float>& hidden,
                        const std::vector<int32_t>& skipped) {
    return refusal([&](ForwardBatch& b) {
      b.tap_layers.clear();
      b.first_layer = first;
      b.end_layer = end;
      b.hidden = hidden;
      b.skipped_layers = skipped;
    });
  };
  config_.hidden = 8;
  const std::vector<float> stream(4 * 8);
  EXPECT_EQ(with(0, 1, {}, {}), "");
  EXPECT_EQ(with(1, 2, stream, {}), "");
  EXPECT_EQ(with(1, -1, stream, {}), "");
  EXPECT_EQ(with(0, -1, {}, {1}), "");
  EXPECT_THAT(with(-1, 2, stream, {}), HasSubstr("layers -1 to 2"));
  EXPECT_THAT(with(1, 1, stream, {}), HasSubstr("layers 1 to 1"));
  EXPECT_THAT(with(0, 3, {}, {}), HasSubstr("layers 0 to 3"));
  EXPECT_THAT(with(0, 2, stream, {}), HasSubstr("32 numbers enter layer 0 instead of 0"));
  EXPECT_THAT(with(1, 2, {}, {}), HasSubstr("0 numbers enter layer 1 instead of 32"));
  EXPECT_THAT(with(1, 2, stream, {1}), HasSubstr("layer 1 cannot be left out"));
  EXPECT_THAT(with(0, 2, {}, {-1}), HasSubstr("layer -1 cannot be left out"));
  EXPECT_THAT(with(0, 2, {}, {1, 1}), HasSubstr("layer 1 cannot be left out"));
  EXPECT_THAT(with(0, 1, {}, {1}), HasSubstr("layer 1 cannot be left out"));
  EXPECT_THAT(refusal([](ForwardBatch& b) { b.end_layer = 1; }), HasSubstr("layer 2 cannot"));
}

}  // namespace aerie::batch_check_test
