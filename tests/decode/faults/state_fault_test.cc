// The comparison that shows exactness notices mistakes with the states of layers that keep some.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
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

// A model of each kind of state.
constexpr const char* kModels[] = {"qwen35", "granite-hybrid", "lfm2"};

std::string difference_with(const char* model, Fault fault, DraftKind kind, double temperature) {
  const auto file = open_family_model(model);
  EXPECT_NE(file, nullptr);
  Setting setting;
  setting.target = file.get();
  setting.positions = 256;
  setting.kind = kind;
  setting.length = 5;
  setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 3)));
  return compare_with_plain(setting, with(fault)).difference;
}

// The greedy text of granite-hybrid goes round in a circle, whatever is in the states.
std::vector<double> temperatures_of(std::string_view model) {
  if (model == "granite-hybrid") return {0.9};
  return {0.0, 0.9};
}

class PlantedStateFault : public testing::TestWithParam<const char*> {};

TEST_P(PlantedStateFault, TheDecoratorAloneChangesNothing) {
  for (const double temperature : temperatures_of(GetParam())) {
    for (const DraftKind kind : {DraftKind::kOtherModel, DraftKind::kSameModel}) {
      EXPECT_EQ(difference_with(GetParam(), Fault::kNone, kind, temperature), "");
    }
  }
}

TEST_P(PlantedStateFault, TakesInARefusedRow) {
  for (const double temperature : temperatures_of(GetParam())) {
    for (const DraftKind kind : {DraftKind::kOtherModel, DraftKind::kRandomChain}) {
      EXPECT_NE(difference_with(GetParam(), Fault::kTakesInARefusedRow, kind, temperature), "")
          << draft_kind_name(kind) << ", " << temperature;
    }
  }
}

TEST_P(PlantedStateFault, ForgetsARowOrTakesItInTwice) {
  const bool has_heads = std::string(GetParam()) != "lfm2";
  for (const Fault fault : {Fault::kForgetsARow, Fault::kTakesInTwice, Fault::kKeepsInput}) {
    if (fault == Fault::kForgetsARow && !has_heads) continue;  // of the change that heads make
    for (const double temperature : temperatures_of(GetParam())) {
      for (const DraftKind kind : {DraftKind::kSameModel, DraftKind::kOtherModel}) {
        // Where all that is drafted stays, the inputs that are kept are of the records alone.
        const bool hidden = fault == Fault::kTakesInTwice && kind == DraftKind::kSameModel;
        if (hidden && !has_heads) continue;
        EXPECT_NE(difference_with(GetParam(), fault, kind, temperature), "")
            << static_cast<int>(fault) << ", " << draft_kind_name(kind) << ", " << temperature;
      }
    }
  }
}

// Two prompts with 100 tokens in common and a third that begins like both.
TEST_P(PlantedStateFault, ASnapshotThatIsLate) {
  const auto file = open_family_model(GetParam());
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

INSTANTIATE_TEST_SUITE_P(Models, PlantedStateFault, testing::ValuesIn(kModels),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace aerie::state_fault_test
