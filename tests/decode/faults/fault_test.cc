// The comparison that shows exactness notices what it is there for: each of the classic mistakes of
// speculative decoding, planted between the decoder and the model, makes tokens differ.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/decode/exactness.h"
#include "tests/testing/kv_bytes.h"

namespace aerie::fault_test {

enum class Fault {
  kNone,
  kDraftedPosition,  // drafted rows stand one position too early
  kDropsAccepted,    // rolled back too far: the last accepted entry is not seen in the next pass
  kKeepsRefused,     // not far enough: the first refused entry is seen, the root comes after it
  kStaleRow,         // an accepted entry holds what its place in the cache held before
};

// What a pass left behind.
struct Before {
  int committed = -1;
  int nodes = 0;
};

// For one sequence and chains. A verify pass is one whose rows all want logits.
class FaultyModel final : public Model {
 public:
  FaultyModel(Model& model, Fault fault) : model_(model), fault_(fault) {}

  const ModelConfig& config() const override { return model_.config(); }
  int64_t weight_bytes() const override { return model_.weight_bytes(); }

  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    batch_ = batch;
    const int committed = batch.sequences[0].committed;
    if (before_.committed >= 0) {
      const int accepted = committed - before_.committed - 1;
      plant(accepted, before_.nodes - accepted, cache);
    }
    before_ = {};
    if (batch.rows[0].wants_logits) before_ = {committed, batch.size() - 1};
    if (fault_ == Fault::kDraftedPosition && before_.committed >= 0) {
      for (size_t i = 1; i < batch_.rows.size(); ++i) --batch_.rows[i].position;
    }
    if (fault_ == Fault::kStaleRow && batch.size() > 1) save(batch.rows[1].slot, cache);
    return model_.forward(batch_, cache);
  }

 private:
  void plant(int accepted, int refused, KvCache& cache) {
    if (fault_ == Fault::kDropsAccepted && accepted > 0) move(-1);
    if (fault_ == Fault::kKeepsRefused && refused > 0 && fits_one_more()) {
      move(1);
      for (BatchRow& row : batch_.rows) row.slot = slot_at(row.position);
    }
    if (fault_ == Fault::kStaleRow && accepted > 0) restore(cache);
  }

  void move(int by) {
    batch_.sequences[0].committed += by;
    for (BatchRow& row : batch_.rows) row.position += by;
  }
  bool fits_one_more() const {
    const int last = batch_.rows.back().position + 1;
    return last / kernels::kPagePositions < static_cast<int>(batch_.sequences[0].pages.size());
  }
  int32_t slot_at(int position) const {
    const int32_t page =
        batch_.sequences[0].pages[static_cast<size_t>(position / kernels::kPagePositions)];
    return page * kernels::kPagePositions + position % kernels::kPagePositions;
  }

  // Calls fn(byte of the cache) for all that a slot holds.
  template <typename Fn>
  void for_each_byte(int32_t slot, KvCache& cache, const Fn& fn) const {
    const std::vector<int64_t> bytes = test::bytes_of_slot(cache.layout(), slot);
    for (int layer = 0; layer < cache.layers(); ++layer) {
      for (const int64_t at : bytes) fn(cache.plane(layer)[at]);
    }
  }
  void save(int32_t slot, KvCache& cache) {
    saved_slot_ = slot;
    saved_.clear();
    for_each_byte(slot, cache, [&](std::byte& byte) { saved_.push_back(byte); });
  }
  void restore(KvCache& cache) const {
    size_t i = 0;
    for_each_byte(saved_slot_, cache, [&](std::byte& byte) { byte = saved_[i++]; });
  }

  Model& model_;
  Fault fault_;
  ForwardBatch batch_;
  Before before_;
  int32_t saved_slot_ = 0;
  std::vector<std::byte> saved_;
};

std::string difference_with(Fault fault, DraftKind kind, double temperature) {
  Setting setting;
  setting.kind = kind;
  setting.length = 5;
  setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 3)));
  return compare_with_plain(
             setting, [fault](Model& model) { return std::make_unique<FaultyModel>(model, fault); })
      .difference;
}

constexpr double kTemperatures[] = {0.0, 0.7, 1.2};

TEST(PlantedFault, TheDecoratorAloneChangesNothing) {
  for (const double temperature : kTemperatures) {
    EXPECT_EQ(difference_with(Fault::kNone, DraftKind::kNgram, temperature), "");
    EXPECT_EQ(difference_with(Fault::kNone, DraftKind::kSameModel, temperature), "");
  }
}

TEST(PlantedFault, DraftedPositionOffByOne) {
  for (const double temperature : kTemperatures) {
    EXPECT_NE(difference_with(Fault::kDraftedPosition, DraftKind::kSameModel, temperature), "");
    EXPECT_NE(difference_with(Fault::kDraftedPosition, DraftKind::kNgram, temperature), "");
  }
}

TEST(PlantedFault, RollBackOneTooFar) {
  for (const double temperature : kTemperatures) {
    EXPECT_NE(difference_with(Fault::kDropsAccepted, DraftKind::kSameModel, temperature), "");
    EXPECT_NE(difference_with(Fault::kDropsAccepted, DraftKind::kNgram, temperature), "");
  }
}

TEST(PlantedFault, RollBackOneTooShort) {
  for (const double temperature : kTemperatures) {
    EXPECT_NE(difference_with(Fault::kKeepsRefused, DraftKind::kOtherModel, temperature), "");
    EXPECT_NE(difference_with(Fault::kKeepsRefused, DraftKind::kRandomChain, temperature), "");
  }
}

TEST(PlantedFault, StaleCacheRow) {
  for (const double temperature : kTemperatures) {
    EXPECT_NE(difference_with(Fault::kStaleRow, DraftKind::kSameModel, temperature), "");
    EXPECT_NE(difference_with(Fault::kStaleRow, DraftKind::kNgram, temperature), "");
  }
}

}  // namespace aerie::fault_test
