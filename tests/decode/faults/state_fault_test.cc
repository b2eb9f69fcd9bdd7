// The comparison that shows exactness notices mistakes with the states of layers that keep some.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/decode/exactness.h"
#include "tests/model/families/family_goldens.h"

namespace aerie::state_fault_test {

enum class Fault {
  kNone,
  kTakesInARefusedRow,  // the state takes in the node that was refused, not the one before it
  kForgetsARow,         // the last row that was accepted is not taken in
  kTakesInTwice,        // it is taken in twice
  kKeepsInput,          // the convolution's last input stays as it was
  kLateSnapshot,        // what is kept of a beginning is a token late
};

// For one sequence, if it is not about snapshots.
class FaultyModel final : public Model {
 public:
  FaultyModel(Model& model, Fault fault) : model_(model), fault_(fault) {}

  const ModelConfig& config() const override { return model_.config(); }
  int64_t weight_bytes() const override { return model_.weight_bytes(); }

  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    batch_ = batch;
    if (fault_ == Fault::kLateSnapshot) {
      delay_snapshots();
    } else {
      plant(*cache.states(), batch.sequences[0]);
    }
    ForwardOutputs outputs = model_.forward(batch_, cache);
    if (fault_ == Fault::kKeepsInput) stale_ = input_of(*cache.states(), batch.sequences[0].id);
    return outputs;
  }

 private:
  void delay_snapshots() {
    for (size_t r = batch_.rows.size(); r-- > 1;) {
      BatchRow &before = batch_.rows[r - 1], &row = batch_.rows[r];
      if (before.snapshot < 0 || row.sequence != before.sequence || row.snapshot >= 0) continue;
      std::swap(before.snapshot, row.snapshot);
    }
  }

  void plant(StateStore& states, const BatchSequence& sequence) {
    const int committed = sequence.committed;
    const std::vector<int32_t> before = drafted_;
    drafted_.clear();
    const int base = states.base(sequence.id, 0);
    if (!before.empty() && base < committed) change(states, sequence, base, before);
    if (sequence.settled > 0) return;
    const auto rows = static_cast<int>(batch_.rows.size());
    const auto records = states.records(sequence.id, committed, committed + rows);
    drafted_.assign(records.begin(), records.end());
  }

  // `before`: the records of the last pass, the root's first, of which some stayed.
  void change(StateStore& states, const BatchSequence& sequence, int base,
              const std::vector<int32_t>& before) {
    const int committed = sequence.committed;
    const auto kept = static_cast<size_t>(committed - base);
    const int32_t last = states.records(sequence.id, base, committed).back();
    const kernels::StateLayout& layout = states.layout();
    for (int plane = 0; plane < states.planes(); ++plane) {
      float* records = states.records(plane);
      float* own = records + last * layout.record();
      if (fault_ == Fault::kTakesInARefusedRow && kept < before.size()) {
        std::copy_n(records + before[kept] * layout.record(), layout.record(), own);
      } else if (fault_ == Fault::kForgetsARow) {
        std::fill_n(own + layout.changes(), layout.values(), 0.0f);
        std::fill_n(own + layout.decays(), layout.heads, 1.0f);
      } else if (fault_ == Fault::kTakesInTwice) {
        apply_record(layout, own, states.states(plane) + sequence_state(states, sequence));
      } else if (fault_ == Fault::kKeepsInput && !stale_.empty()) {
        std::copy_n(stale_[static_cast<size_t>(plane)].begin(), layout.channels(),
                    own + layout.input());
      }
    }
  }
  static int64_t sequence_state(const StateStore& states, const BatchSequence& sequence) {
    return states.slot(sequence.id) * states.layout().state();
  }
  // The newest input in the states, of each plane.
  static std::vector<std::vector<float>> input_of(StateStore& states, int32_t id) {
    std::vector<std::vector<float>> inputs;
    const kernels::StateLayout& layout = states.layout();
    for (int plane = 0; plane < states.planes(); ++plane) {
      const float* newest = states.states(plane) + states.slot(id) * layout.state() +
                            layout.state() - layout.channels();
      inputs.emplace_back(newest, newest + layout.channels());
    }
    return inputs;
  }

  Model& model_;
  Fault fault_;
  ForwardBatch batch_;
  std::vector<int32_t> drafted_;
  std::vector<std::vector<float>> stale_;
};

Wrap with(Fault fault) {
  return [fault](Model& model) { return std::make_unique<FaultyModel>(model, fault); };
}

std::string difference_with(Fault fault, DraftKind kind, double temperature) {
  const auto file = open_family_model("qwen35");
  EXPECT_NE(file, nullptr);
  Setting setting;
  setting.target = file.get();
  setting.positions = 256;
  setting.kind = kind;
  setting.length = 5;
  setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 3)));
  return compare_with_plain(setting, with(fault)).difference;
}

constexpr double kTemperatures[] = {0.0, 0.9};

TEST(PlantedStateFault, TheDecoratorAloneChangesNothing) {
  for (const double temperature : kTemperatures) {
    EXPECT_EQ(difference_with(Fault::kNone, DraftKind::kOtherModel, temperature), "");
    EXPECT_EQ(difference_with(Fault::kNone, DraftKind::kSameModel, temperature), "");
  }
}

TEST(PlantedStateFault, TakesInARefusedRow) {
  for (const double temperature : kTemperatures) {
    EXPECT_NE(difference_with(Fault::kTakesInARefusedRow, DraftKind::kOtherModel, temperature), "");
    EXPECT_NE(difference_with(Fault::kTakesInARefusedRow, DraftKind::kRandomChain, temperature),
              "");
  }
}

TEST(PlantedStateFault, ForgetsARowOrTakesItInTwice) {
  for (const Fault fault : {Fault::kForgetsARow, Fault::kTakesInTwice, Fault::kKeepsInput}) {
    for (const double temperature : kTemperatures) {
      EXPECT_NE(difference_with(fault, DraftKind::kSameModel, temperature), "")
          << static_cast<int>(fault);
      EXPECT_NE(difference_with(fault, DraftKind::kOtherModel, temperature), "")
          << static_cast<int>(fault);
    }
  }
}

// Two prompts with 100 tokens in common and a third that begins like both.
TEST(PlantedStateFault, ASnapshotThatIsLate) {
  const auto file = open_family_model("qwen35");
  ASSERT_NE(file, nullptr);
  Setting setting;
  setting.target = file.get();
  setting.positions = 256;
  setting.kind = DraftKind::kNgram;
  const std::vector<int32_t> common = test::random_tokens(5, 100, 96);
  for (uint64_t i = 0; i < 3; ++i) {
    test::Request request = request_with(sampling_with(0.9, Filter::kNone, i), 20);
    request.prompt = common;
    const std::vector<int32_t> own = test::random_tokens(20 + i, 40, 96);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.joins_at = static_cast<int>(40 * i);
    setting.requests.push_back(request);
  }
  const ServedTwice right = serve_twice(setting, 0, with(Fault::kLateSnapshot));
  EXPECT_NE(right.difference, "");
  const ServedTwice served = serve_twice(setting, 0);
  EXPECT_EQ(served.difference, "");
  // The second found a page boundary; what it read is where the third branches off, too.
  EXPECT_EQ(served.cold.reused, 100);
}

}  // namespace aerie::state_fault_test
