// Layers with linear attention on a device: what their definition gives, and that a row's bits and
// the states after it are those of its path alone, however the path was cut into passes, settled,
// drafted or rolled back. On the emulated device, or on the one that AERIE_TEST_DEVICE names.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/device/linear/state_shape.h"
#include "kernels/simt/emulation.h"
#include "tests/kernels/linear/linear_testing.h"
#include "tests/testing/device/device_array.h"
#include "tests/testing/device/test_device.h"

namespace aerie::device::linear_test {

using kernels::LinearRow;
using kernels::StateLayout;
using test::device_of_tests;
using test::DeviceArray;

constexpr float kEps = 1e-6f;

// The last but one with keys of more than 128 dimensions, the last one with many taps.
constexpr StateLayout kLayouts[] = {kernels::kStateLayouts[0], kernels::kStateLayouts[1],
                                    kernels::kStateLayouts[2], kernels::kStateLayouts[3],
                                    {2, 1, 176, 16, 3},        {2, 2, 32, 16, 11}};

std::vector<float> random_floats(std::mt19937& engine, int64_t count, float most) {
  std::uniform_real_distribution<float> draw(-most, most);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(engine);
  return values;
}

// What one row brings: inputs of the convolution, and what its gates are made of.
struct Row {
  std::vector<float> x, beta, alpha;
};

struct Form {
  bool subtract = true;
  bool joint = false;  // what beta and the decay are made of lies together for a key head
  bool bias = false;
};

// The layer's weights and what it computes, in double.
struct Weights {
  Weights(const StateLayout& of, const Form& with, uint32_t seed) : layout(of), form(with) {
    std::mt19937 engine(seed);
    conv = random_floats(engine, of.taps * of.channels(), 0.7f);
    bias = random_floats(engine, of.channels(), 0.3f);
    step = random_floats(engine, of.heads, 1.0f);
    for (int h = 0; h < of.heads; ++h) {
      rate.push_back(-0.02f - 0.3f * static_cast<float>(h) / static_cast<float>(of.heads));
    }
  }

  Row row(std::mt19937& engine) const {
    return {random_floats(engine, layout.channels(), 1.5f),
            random_floats(engine, layout.heads, 2.0f), random_floats(engine, layout.heads, 2.0f)};
  }

  // The last row of a path, as the rule takes it.
  LinearRow mixed(const std::vector<const Row*>& path) const {
    LinearRow out;
    const auto channels = static_cast<size_t>(layout.channels());
    const auto taps = static_cast<size_t>(layout.taps);
    std::vector<double> y(channels);
    for (size_t c = 0; c < channels; ++c) {
      double sum = form.bias ? double{bias[c]} : 0.0;
      for (size_t t = 0; t < taps; ++t) {
        if (path.size() + t < taps) continue;
        sum += double{conv[t * channels + c]} * double{path[path.size() + t - taps]->x[c]};
      }
      y[c] = sum / (1.0 + std::exp(-sum));
    }
    const auto keys = static_cast<size_t>(layout.keys()), dim = static_cast<size_t>(layout.key_dim);
    for (size_t at = 0; at < 2 * keys; at += dim) {
      double squares = 0.0;
      for (size_t i = at; i < at + dim; ++i) squares += y[i] * y[i];
      const double scale = at < keys ? 1.0 / std::sqrt(static_cast<double>(dim)) : 1.0;
      for (size_t i = at; i < at + dim; ++i) {
        const double value = y[i] / std::sqrt(squares + double{kEps}) * scale;
        (at < keys ? out.q : out.k).push_back(static_cast<float>(value));
      }
    }
    for (size_t c = 2 * keys; c < channels; ++c) out.v.push_back(static_cast<float>(y[c]));
    for (size_t h = 0; h < static_cast<size_t>(layout.heads); ++h) {
      const double a = double{path.back()->alpha[h]} + double{step[h]};
      out.decay.push_back(static_cast<float>(std::exp(double{rate[h]} * std::log1p(std::exp(a)))));
      out.beta.push_back(static_cast<float>(1.0 / (1.0 + std::exp(-double{path.back()->beta[h]}))));
    }
    return out;
  }
  std::vector<double> expected(const std::vector<const Row*>& path) const {
    std::vector<LinearRow> rows;
    for (size_t i = 1; i <= path.size(); ++i) {
      rows.push_back(mixed({path.begin(), path.begin() + static_cast<ptrdiff_t>(i)}));
    }
    return kernels::read_along(layout, rows, form.subtract);
  }

  StateLayout layout;
  Form form;
  std::vector<float> conv, bias, rate, step;
};

// A layer's memory on the device, and passes over it.
class DeviceLayer {
 public:
  static constexpr int kSlots = 4, kRecords = 64;

  struct Entry {
    const Row* row = nullptr;
    int32_t parent = -1;
    std::vector<int32_t> above = {};  // records
    int32_t record = -1;
    int32_t into = -1;
  };

  // A sequence of a pass.
  struct Part {
    std::vector<Entry> rows;
    std::vector<int32_t> settled = {};
    int32_t slot = 0;
  };
  using Rows = std::vector<std::vector<float>>;  // [row][heads * value_dim]

  explicit DeviceLayer(const Weights& weights)
      : weights_(weights),
        shape_(state_shape(weights.layout)),
        conv_(weights.conv),
        bias_(weights.bias),
        rate_(weights.rate),
        step_(weights.step),
        // What a slot held before is not to show.
        states_(std::vector<float>(static_cast<size_t>(kSlots * shape_.state), 7.0f)),
        records_(std::vector<float>(static_cast<size_t>(kRecords * shape_.record), NAN)) {}

  // Of one sequence.
  Rows run(const std::vector<Entry>& rows, const std::vector<int32_t>& settled = {},
           int32_t slot = 0) {
    return run(std::vector<Part>{{rows, settled, slot}}).front();
  }

  // By sequence; their rows take turns in the pass.
  std::vector<Rows> run(const std::vector<Part>& parts) {
    number(parts);
    indices_.clear();
    rows_.assign(static_cast<size_t>(count_), {});
    std::vector<PassStateSequence> sequences;
    std::vector<int32_t> bases;
    for (size_t s = 0; s < parts.size(); ++s) {
      bases.push_back(bases_[static_cast<size_t>(parts[s].slot)]);
      sequences.push_back(plan(parts[s], static_cast<int32_t>(s)));
    }
    const auto sequence_count = static_cast<int32_t>(parts.size());
    const int heads = shape_.heads, width = heads * shape_.value_dim;
    const auto floats = [&](int each) {
      return std::vector<float>(static_cast<size_t>(count_) * static_cast<size_t>(each));
    };
    const DeviceArray<float> x(inputs(parts)), mixed(floats(shape_.channels)),
        gates(floats(2 * heads)), out(floats(width));
    const DeviceArray<PassStateRow> rows_at(rows_);
    const DeviceArray<PassStateSequence> sequences_at(sequences);
    const DeviceArray<int32_t> indices_at(indices_), counts({count_, sequence_count}),
        bases_at(bases);
    LinearLayer layer;
    layer.pass = {counts.data(),       counts.data() + 1, rows_at.data(),
                  sequences_at.data(), bases_at.data(),   indices_at.data()};
    layer.most_rows = count_ + 1;  // more is launched than there is
    layer.most_sequences = sequence_count + 1;
    layer.shape = shape_;
    layer.x = x.data();
    layer.x_stride = stride();
    layer.keys_at = shape_.key_heads * shape_.key_dim;
    layer.values_at = 2 * layer.keys_at;
    layer.values = width;
    layer.mixed = mixed.data();
    layer.gates = gates.data();
    layer.states = states_.data();
    layer.records = records_.data();
    launch(layer, out);
    for (const Part& part : parts) advance(part);
    return by_sequence(out.values(), width);
  }

  std::vector<float> state(int32_t slot) const {
    const std::vector<float> all = states_.values();
    return {all.begin() + slot * shape_.state, all.begin() + (slot + 1) * shape_.state};
  }
  std::vector<float> record(int32_t index) const {
    const std::vector<float> all = records_.values();
    return {all.begin() + index * shape_.record, all.begin() + (index + 1) * shape_.record};
  }
  float* states() { return states_.data(); }
  float* records() { return records_.data(); }
  const StateShape& shape() const { return shape_; }

 private:
  int stride() const { return shape_.channels + 2 * shape_.heads + 3; }

  int32_t add(const std::vector<int32_t>& list) {
    const auto first = static_cast<int32_t>(indices_.size());
    indices_.insert(indices_.end(), list.begin(), list.end());
    return first;
  }

  // Numbers of the rows, by sequence.
  void number(const std::vector<Part>& parts) {
    numbers_.assign(parts.size(), {});
    count_ = 0;
    for (size_t r = 0;; ++r) {
      const int32_t before = count_;
      for (size_t s = 0; s < parts.size(); ++s) {
        if (r < parts[s].rows.size()) numbers_[s].push_back(count_++);
      }
      if (count_ == before) return;
    }
  }

  PassStateSequence plan(const Part& part, int32_t number) {
    const std::vector<int32_t>& numbers = numbers_[static_cast<size_t>(number)];
    PassStateSequence sequence;
    sequence.slot = part.slot;
    sequence.from = bases_[static_cast<size_t>(part.slot)];
    sequence.end = sequence.from + static_cast<int>(part.settled.size());
    sequence.settled = add(part.settled);
    std::vector<int32_t> saved;
    for (size_t r = 0; r < numbers.size(); ++r) {
      PassStateRow& row = rows_[static_cast<size_t>(numbers[r])];
      row = plan(part.rows, r, numbers);
      row.sequence = number;
      if (row.into[1] >= 0) saved.push_back(numbers[r]);
    }
    sequence.first = add(numbers);
    sequence.count = static_cast<int32_t>(numbers.size());
    sequence.saved = add(saved);
    sequence.saved_count = static_cast<int32_t>(saved.size());
    return sequence;
  }

  PassStateRow plan(const std::vector<Entry>& rows, size_t r, const std::vector<int32_t>& numbers) {
    std::vector<int32_t> sources, path;
    const Entry* at = &rows[r];
    for (; at->parent >= 0; at = &rows[static_cast<size_t>(at->parent)]) {
      sources.push_back(numbers[static_cast<size_t>(at->parent)]);
      path.push_back(rows[static_cast<size_t>(at->parent)].record);
    }
    for (size_t i = at->above.size(); i-- > 0;) {
      sources.push_back(~at->above[i]);
      path.push_back(at->above[i]);
    }
    PassStateRow to;
    to.depth = static_cast<int32_t>(sources.size());
    sources.resize(std::min(sources.size(), static_cast<size_t>(shape_.taps - 1)));
    to.sources = add(sources);
    to.record = rows[r].record;
    to.into[1] = rows[r].into;
    to.path_count = -1;
    if (r > 0 && rows[r].parent == static_cast<int32_t>(r) - 1) return to;
    std::ranges::reverse(path);
    to.path = add(path);
    to.path_count = static_cast<int32_t>(path.size());
    return to;
  }

  void advance(const Part& part) {
    int& base = bases_[static_cast<size_t>(part.slot)];
    base += static_cast<int>(part.settled.size());
    if (std::ranges::any_of(part.rows, [&](const Entry& e) { return e.into == part.slot; })) {
      base += static_cast<int>(part.rows.size());
    }
  }

  std::vector<Rows> by_sequence(const std::vector<float>& all, int width) const {
    std::vector<Rows> out(numbers_.size());
    for (size_t s = 0; s < numbers_.size(); ++s) {
      for (const int32_t number : numbers_[s]) {
        out[s].emplace_back(all.begin() + number * width, all.begin() + (number + 1) * width);
      }
    }
    return out;
  }

  std::vector<float> inputs(const std::vector<Part>& parts) const {
    std::vector<float> all(static_cast<size_t>(count_) * static_cast<size_t>(stride()));
    for (size_t s = 0; s < parts.size(); ++s) {
      for (size_t r = 0; r < parts[s].rows.size(); ++r) {
        std::ranges::copy(input(*parts[s].rows[r].row), all.begin() + numbers_[s][r] * stride());
      }
    }
    return all;
  }
  std::vector<float> input(const Row& row) const {
    const auto heads = static_cast<size_t>(shape_.heads);
    const size_t each = weights_.form.joint ? heads / static_cast<size_t>(shape_.key_heads) : heads;
    std::vector<float> x = row.x;
    for (size_t h = 0; h < heads; h += each) {
      for (const std::vector<float>* of : {&row.beta, &row.alpha}) {
        const auto first = of->begin() + static_cast<ptrdiff_t>(h);
        x.insert(x.end(), first, first + static_cast<ptrdiff_t>(each));
      }
    }
    x.insert(x.end(), 3, NAN);
    return x;
  }

  void launch(const LinearLayer& layer, const DeviceArray<float>& out) const {
    Convolve convolve;
    convolve.layer = layer;
    convolve.weights = conv_.data();
    if (weights_.form.bias) convolve.bias = bias_.data();
    const auto dim = static_cast<float>(shape_.key_dim);
    convolve.query_factor = 1.0f / dim;
    convolve.key_factor = 1.0f / std::sqrt(dim);
    convolve.eps = kEps / dim;
    convolve.together = weights_.form.joint ? shape_.heads / shape_.key_heads : shape_.heads;
    convolve.apart = 2 * convolve.together;
    convolve.beta = layer.x + shape_.channels;
    convolve.alpha = convolve.beta + convolve.together;
    convolve.rate = rate_.data();
    convolve.step = step_.data();
    device_of_tests().convolve(convolve);
    ScanStates scan;
    scan.layer = layer;
    scan.subtract = weights_.form.subtract;
    scan.out = out.data();
    device_of_tests().scan_states(scan);
    EXPECT_TRUE(device_of_tests().wait()) << device_of_tests().error();
  }

  const Weights& weights_;
  StateShape shape_;
  DeviceArray<float> conv_, bias_, rate_, step_, states_, records_;
  std::array<int, kSlots> bases_{};  // positions that a slot's state holds
  // Of the pass.
  int32_t count_ = 0;
  std::vector<std::vector<int32_t>> numbers_;
  std::vector<PassStateRow> rows_;
  std::vector<int32_t> indices_;
};

std::vector<Row> random_rows(const Weights& weights, int count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) rows.push_back(weights.row(engine));
  return rows;
}

std::vector<DeviceLayer::Entry> chain(const std::vector<Row>& path, size_t begin, size_t end) {
  std::vector<DeviceLayer::Entry> rows;
  for (size_t i = begin; i < end; ++i) {
    rows.push_back({&path[i], static_cast<int32_t>(i - begin) - 1});
  }
  return rows;
}

struct Alone {
  std::vector<std::vector<float>> out;
  std::vector<float> state;
};

// Each row in a pass of its own, settled at once.
Alone one_by_one(const Weights& weights, const std::vector<const Row*>& path) {
  DeviceLayer layer(weights);
  Alone alone;
  for (const Row* row : path) alone.out.push_back(layer.run({{row, -1, {}, -1, 0}}).front());
  alone.state = layer.state(0);
  return alone;
}
std::vector<const Row*> pointers(const std::vector<Row>& rows, size_t count) {
  std::vector<const Row*> out;
  for (size_t i = 0; i < count; ++i) out.push_back(&rows[i]);
  return out;
}

// Threads and blocks of an emulated device take turns in another order for each layout.
class DeviceLinear : public testing::TestWithParam<size_t> {
 protected:
  DeviceLinear() { simt::set_order(GetParam()); }
  ~DeviceLinear() override { simt::set_order(0); }
  static const StateLayout& layout() { return kLayouts[GetParam()]; }
};

TEST_P(DeviceLinear, IsWhatTheDefinitionGives) {
  for (const Form& form :
       {Form{true, false, false}, Form{true, true, true}, Form{false, false, true}}) {
    const Weights weights(layout(), form, 3);
    const std::vector<Row> path = random_rows(weights, 20, 4);
    const Alone alone = one_by_one(weights, pointers(path, path.size()));
    for (const size_t length : {1, 2, 5, 20}) {
      const std::vector<double> expected = weights.expected(pointers(path, length));
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(alone.out[length - 1][i], expected[i], 2e-5) << length << ", " << i;
      }
    }
  }
}

// A prompt in two pieces, then rounds of four rows of which one to three stay.
TEST_P(DeviceLinear, ARowsBitsDoNotDependOnHowItsPathIsCut) {
  const Weights weights(layout(), {true, true, false}, 5);
  const std::vector<Row> path = random_rows(weights, 22, 6);
  const Alone alone = one_by_one(weights, pointers(path, path.size()));
  DeviceLayer layer(weights);
  size_t done = 0;
  for (const size_t piece : {2, 7}) {
    std::vector<DeviceLayer::Entry> rows = chain(path, done, done + piece);
    rows.back().into = 0;
    const auto out = layer.run(rows);
    for (size_t i = 0; i < piece; ++i) ASSERT_EQ(out[i], alone.out[done + i]) << done + i;
    done += piece;
  }
  std::vector<int32_t> settled;
  int32_t record = 0;
  for (size_t stay = 3; done + 4 <= path.size(); stay = stay % 3 + 1) {
    std::vector<DeviceLayer::Entry> rows = chain(path, done, done + 4);
    for (DeviceLayer::Entry& row : rows) row.record = record++ % DeviceLayer::kRecords;
    const auto out = layer.run(rows, settled);
    settled.clear();
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_EQ(out[i], alone.out[done + i]) << done + i;
      if (i < stay) settled.push_back(rows[i].record);
    }
    done += stay;
  }
  // What is left goes on as a prompt: the state is then that of the path.
  std::vector<DeviceLayer::Entry> rows = chain(path, done, path.size());
  rows.back().into = 0;
  layer.run(rows, settled);
  EXPECT_EQ(layer.state(0), alone.state);
}

// Trees of any shape, with rows whose ancestors earlier passes computed.
TEST_P(DeviceLinear, ARowSeesItsAncestorsAlone) {
  const Weights weights(layout(), {true, false, false}, 7);
  const std::vector<Row> prefix = random_rows(weights, 3, 8), nodes = random_rows(weights, 14, 9);
  std::mt19937 engine(10);
  for (int turn = 0; turn < 2; ++turn) {
    DeviceLayer layer(weights);
    std::vector<DeviceLayer::Entry> prompt = chain(prefix, 0, prefix.size());
    prompt.back().into = 0;
    layer.run(prompt);
    // Two nodes of an earlier pass, that are not settled.
    layer.run({{&nodes[0], -1, {}, 0}, {&nodes[1], 0, {}, 1}});
    std::vector<DeviceLayer::Entry> rows;
    std::vector<std::vector<const Row*>> paths;
    for (size_t n = 2; n < nodes.size(); ++n) {
      const auto parent = static_cast<int32_t>(engine() % (rows.size() + 1)) - 1;
      DeviceLayer::Entry row = {&nodes[n], parent, {}, static_cast<int32_t>(n)};
      std::vector<const Row*> way;
      if (parent >= 0) {
        way = paths[static_cast<size_t>(parent)];
      } else {
        way = pointers(prefix, prefix.size());
        if (engine() % 2 == 0) {
          row.above = {0, 1};
          way.insert(way.end(), {&nodes[0], &nodes[1]});
        }
      }
      way.push_back(&nodes[n]);
      rows.push_back(row);
      paths.push_back(way);
    }
    const auto out = layer.run(rows);
    for (size_t r = 0; r < rows.size(); r += 3) {
      ASSERT_EQ(out[r], one_by_one(weights, paths[r]).out.back()) << r;
    }
  }
}

// Rows are computed in batches: prompts that end at, before and behind their borders.
TEST_P(DeviceLinear, ARowsBitsDoNotDependOnItsBatch) {
  for (const bool subtract : {true, false}) {
    const Weights weights(layout(), {subtract, false, false}, 15);
    const std::vector<Row> path = random_rows(weights, 49, 16);
    const auto alone = one_by_one(weights, pointers(path, path.size())).out;
    for (const size_t length : {1, 15, 16, 17, 32, 33, 49}) {
      DeviceLayer layer(weights);
      const auto out = layer.run(chain(path, 0, length));
      for (size_t r = 0; r < length; ++r) ASSERT_EQ(out[r], alone[r]) << length << ", " << r;
    }
  }
}

// Branches in the middle of a batch and at its borders, states that are kept there.
TEST_P(DeviceLinear, BranchesBeginAnywhereInABatch) {
  const Weights weights(layout(), {true, true, false}, 17);
  const std::vector<Row> nodes = random_rows(weights, 40, 18);
  DeviceLayer layer(weights);
  std::vector<DeviceLayer::Entry> rows = chain(nodes, 0, nodes.size());
  for (size_t r = 0; r < rows.size(); ++r) rows[r].record = static_cast<int32_t>(r);
  rows[6].parent = -1;
  rows[9].parent = 3;
  rows[15].parent = 10;
  rows[16].parent = 14;
  rows[32].parent = 6;
  rows[14].into = 1;
  rows[31].into = 2;
  rows[37].into = 3;
  const auto out = layer.run(rows);
  const auto alone = [&](size_t row) {
    std::vector<const Row*> way;
    for (auto r = static_cast<int32_t>(row); r >= 0; r = rows[static_cast<size_t>(r)].parent) {
      way.insert(way.begin(), rows[static_cast<size_t>(r)].row);
    }
    return one_by_one(weights, way);
  };
  for (const size_t r : {5, 6, 8, 9, 14, 15, 16, 31, 32, 39}) {
    ASSERT_EQ(out[r], alone(r).out.back()) << r;
  }
  EXPECT_EQ(layer.state(1), alone(14).state);
  EXPECT_EQ(layer.state(2), alone(31).state);
  EXPECT_EQ(layer.state(3), alone(37).state);
}

// One that goes on, a prompt of several batches, a single row, one without rows.
TEST_P(DeviceLinear, SequencesOfAPassDoNotSeeOneAnother) {
  const Weights weights(layout(), {true, false, true}, 19);
  const std::vector<Row> first = random_rows(weights, 24, 20),
                         second = random_rows(weights, 37, 21), third = random_rows(weights, 1, 22),
                         none = random_rows(weights, 2, 23);
  DeviceLayer layer(weights);
  std::vector<DeviceLayer::Entry> prompt = chain(first, 0, 3), drafted = chain(first, 3, 7),
                                  idle = chain(none, 0, 2);
  prompt.back().into = 2;
  layer.run(prompt, {}, 2);
  for (size_t r = 0; r < drafted.size(); ++r) drafted[r].record = static_cast<int32_t>(r);
  for (size_t r = 0; r < idle.size(); ++r) idle[r].record = static_cast<int32_t>(10 + r);
  layer.run({{drafted, {}, 2}, {idle, {}, 3}});
  std::vector<DeviceLayer::Entry> rest = chain(first, 7, first.size()),
                                  all = chain(second, 0, second.size());
  rest.back().into = 2;
  all.back().into = 0;
  const auto out = layer.run(
      {{rest, {0, 1, 2, 3}, 2}, {all, {}, 0}, {{}, {10, 11}, 3}, {chain(third, 0, 1), {}, 1}});
  const Alone of_first = one_by_one(weights, pointers(first, first.size())),
              of_second = one_by_one(weights, pointers(second, second.size()));
  for (size_t r = 0; r < rest.size(); ++r) ASSERT_EQ(out[0][r], of_first.out[7 + r]) << r;
  EXPECT_EQ(out[1], of_second.out);
  EXPECT_EQ(out[3], one_by_one(weights, pointers(third, 1)).out);
  EXPECT_EQ(layer.state(2), of_first.state);
  EXPECT_EQ(layer.state(0), of_second.state);
  EXPECT_EQ(layer.state(3), one_by_one(weights, pointers(none, 2)).state);
}

// A state that is kept on the way is that of the rows up to there.
TEST_P(DeviceLinear, KeepsStatesOnTheWay) {
  const Weights weights(layout(), {true, false, false}, 11);
  const std::vector<Row> path = random_rows(weights, 6, 12);
  DeviceLayer layer(weights);
  std::vector<DeviceLayer::Entry> rows = chain(path, 0, path.size());
  rows[1].into = 2;
  rows.back().into = 0;
  layer.run(rows);
  EXPECT_EQ(layer.state(2), one_by_one(weights, pointers(path, 2)).state);
  EXPECT_EQ(layer.state(0), one_by_one(weights, pointers(path, 6)).state);
}

// Copies, zeros and records, in their order: the bits of apply_record().
TEST_P(DeviceLinear, StatesAreMoved) {
  const Weights weights(layout(), {true, false, false}, 13);
  const std::vector<Row> path = random_rows(weights, 5, 14);
  DeviceLayer layer(weights);
  std::vector<DeviceLayer::Entry> rows = chain(path, 0, path.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i].record = static_cast<int32_t>(i);
  layer.run(rows);
  const std::vector<int32_t> moves = {
      MoveStates::kClear, 0, 0, 1,  //
      MoveStates::kApply, 0, 0, 1,  //
      MoveStates::kClear, 1, 0, 1,  // of another plane
      MoveStates::kApply, 0, 1, 1,  //
      MoveStates::kCopy,  9, 1, 3,  // of all
      MoveStates::kApply, 0, 2, 1,
  };
  const DeviceArray<int32_t> count({static_cast<int32_t>(moves.size() / 4)}), list(moves);
  const DeviceArray<float*> states({layer.states()}), records({layer.records()});
  MoveStates args;
  args.count = count.data();
  args.moves = list.data();
  args.states = states.data();
  args.records = records.data();
  args.planes = 1;
  args.shape = layer.shape();
  device_of_tests().move_states(args);
  std::vector<float> expected(static_cast<size_t>(layer.shape().state));
  for (int32_t i = 0; i < 3; ++i) {
    kernels::apply_record(layout(), layer.record(i).data(), expected.data());
    if (i == 1) {
      EXPECT_EQ(layer.state(3), expected);
    }
  }
  EXPECT_EQ(layer.state(1), expected);
}

INSTANTIATE_TEST_SUITE_P(Layouts, DeviceLinear, testing::Range(size_t{0}, std::size(kLayouts)));

double gate_of(GateHeads::By by, double gate) {
  if (by == GateHeads::By::kItself) return gate;
  return (by == GateHeads::By::kSilu ? gate : 1.0) / (1.0 + std::exp(-gate));
}

TEST(DeviceGates, AreWhatTheyAreDefinedAs) {
  constexpr int kRows = 2, kHeads = 3;
  std::mt19937 engine(1);
  for (const int dim : {16, 48, 128, 256}) {
    for (const auto by : {GateHeads::By::kItself, GateHeads::By::kSilu, GateHeads::By::kSigmoid}) {
      const int apart = 2 * dim, width = kHeads * dim;
      const auto x = random_floats(engine, kRows * (width + 5), 2.0f),
                 gates = random_floats(engine, kRows * kHeads * apart, 3.0f),
                 norm = random_floats(engine, dim, 1.0f);
      const DeviceArray<float> x_at(x), gates_at(gates), norm_at(norm);
      const DeviceArray<uint16_t> out(std::vector<uint16_t>((kRows + 1) * (width + 8), 3));
      const DeviceArray<int32_t> count({kRows});
      GateHeads args;
      args.rows = count.data();
      args.most_rows = kRows + 1;
      args.heads = kHeads;
      args.dim = dim;
      args.x = x_at.data();
      args.x_stride = width + 5;
      if (by == GateHeads::By::kSilu) args.norm = norm_at.data();
      args.eps = 1e-5f;
      args.by = by;
      args.gates = gates_at.data();
      args.gates_stride = kHeads * apart;
      args.gates_apart = apart;
      args.out = out.data();
      args.out_stride = width + 8;
      device_of_tests().gate_heads(args);
      const auto once = out.values();
      args.x = nullptr;  // once more, what is there
      args.norm = nullptr;
      device_of_tests().gate_heads(args);
      const auto twice = out.values();
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < width; ++i) {
          const int head = i / dim, d = i % dim;
          const float* of = x.data() + r * (width + 5) + head * dim;
          double value = of[d];
          if (by == GateHeads::By::kSilu) {
            double squares = 0.0;
            for (int j = 0; j < dim; ++j) squares += double{of[j]} * of[j];
            value *= double{norm[static_cast<size_t>(d)]} / std::sqrt(squares / dim + 1e-5);
          }
          const double gate =
              gate_of(by, gates[static_cast<size_t>((r * kHeads + head) * apart + d)]);
          const auto at = static_cast<size_t>(r * (width + 8) + i);
          const float first = bf16_to_f32(once[at]), second = bf16_to_f32(twice[at]);
          ASSERT_NEAR(first, value * gate, std::abs(value * gate) * 0.004 + 1e-6)
              << dim << " " << i;
          ASSERT_NEAR(second, first * gate, std::abs(first * gate) * 0.004 + 1e-6)
              << dim << " " << i;
        }
      }
      EXPECT_EQ(twice[static_cast<size_t>(kRows * (width + 8))], 3) << "a row that is not there";
    }
  }
}

TEST(DeviceGates, OfStateSpacesAreNormedByGroups) {
  constexpr int kRows = 2, kDim = 16;
  std::mt19937 engine(2);
  for (const int width : {32, 320, 2080}) {
    constexpr int kGroups = 2;
    const int all = kGroups * width, stride = all + 3;
    const auto x = random_floats(engine, kRows * all, 2.0f),
               values = random_floats(engine, kRows * stride, 2.0f),
               gates = random_floats(engine, kRows * stride, 3.0f),
               skip = random_floats(engine, all / kDim, 1.0f),
               norm = random_floats(engine, all, 1.0f);
    const DeviceArray<float> x_at(x), values_at(values), gates_at(gates), skip_at(skip),
        norm_at(norm);
    const DeviceArray<uint16_t> out(std::vector<uint16_t>(static_cast<size_t>(kRows * stride)));
    const DeviceArray<int32_t> count({kRows});
    GateGroups args;
    args.rows = count.data();
    args.most_rows = kRows + 1;
    args.groups = kGroups;
    args.width = width;
    args.dim = kDim;
    args.x = x_at.data();
    args.x_stride = all;
    args.values = values_at.data();
    args.gates = gates_at.data();
    args.values_stride = args.gates_stride = args.out_stride = stride;
    args.skip = skip_at.data();
    args.norm = norm_at.data();
    args.eps = 1e-5f;
    args.out = out.data();
    device_of_tests().gate_groups(args);
    const auto got = out.values();
    for (int r = 0; r < kRows; ++r) {
      for (int first = 0; first < all; first += width) {
        std::vector<double> y;
        double squares = 0.0;
        for (int i = first; i < first + width; ++i) {
          const double gate =
              gate_of(GateHeads::By::kSilu, gates[static_cast<size_t>(r * stride + i)]);
          y.push_back(gate * (x[static_cast<size_t>(r * all + i)] +
                              double{skip[static_cast<size_t>(i / kDim)]} *
                                  values[static_cast<size_t>(r * stride + i)]));
          squares += y.back() * y.back();
        }
        for (int i = first; i < first + width; ++i) {
          const double expected = y[static_cast<size_t>(i - first)] /
                                  std::sqrt(squares / width + 1e-5) * norm[static_cast<size_t>(i)];
          ASSERT_NEAR(bf16_to_f32(got[static_cast<size_t>(r * stride + i)]), expected,
                      std::abs(expected) * 0.004 + 1e-6)
              << width << " " << i;
        }
      }
    }
  }
}

}  // namespace aerie::device::linear_test
