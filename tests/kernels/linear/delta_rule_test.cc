// The gated delta rule, and the state space that does not subtract, against their definitions, and
// that a row's bits are those of its path alone: however the path was cut into passes, settled,
// drafted or rolled back.
#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "tests/kernels/linear/linear_testing.h"

namespace aerie::kernels::delta_rule_test {

using DeltaRuleTest = IsaTest;

constexpr bool kRules[] = {true, false};  // DeltaRuleArgs::subtract

std::vector<LinearRow> random_rows(const StateLayout& layout, size_t count, Random& random) {
  std::vector<LinearRow> rows;
  for (size_t i = 0; i < count; ++i) rows.push_back(random_linear_row(layout, random));
  return rows;
}

// A chain from the beginning, each row in its own pass, all settled at once: the plainest way.
std::vector<std::vector<float>> one_by_one(const Backend& backend, const StateLayout& layout,
                                           const std::vector<LinearRow>& path,
                                           bool subtract = true) {
  LinearLayer layer(backend, layout, 1, subtract);
  std::vector<std::vector<float>> out;
  for (const LinearRow& row : path) {
    out.push_back(layer.run({{&row, -1, {}, -1, 0}}));
    layer.set_blank(false);
  }
  return out;
}

std::vector<LinearLayer::Row> chain(const std::vector<LinearRow>& path, size_t begin, size_t end) {
  std::vector<LinearLayer::Row> rows;
  for (size_t i = begin; i < end; ++i) {
    rows.push_back({&path[i], static_cast<int32_t>(i - begin) - 1});
  }
  return rows;
}

void expect_definition(const Backend& backend, const StateLayout& layout,
                       const std::vector<LinearRow>& path, bool subtract) {
  SCOPED_TRACE(layout_name(layout) + (subtract ? "" : ", nothing subtracted"));
  const auto rows = one_by_one(backend, layout, path, subtract);
  for (const size_t length : {1, 2, 17, 40}) {
    const std::vector<double> expected =
        read_along(layout, {path.begin(), path.begin() + static_cast<ptrdiff_t>(length)}, subtract);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(rows[length - 1][i], expected[i], 2e-5) << length << " " << i;
    }
  }
}

TEST_P(DeltaRuleTest, IsWhatTheDefinitionGives) {
  Random random(71);
  for (const StateLayout& layout : kStateLayouts) {
    const std::vector<LinearRow> path = random_rows(layout, 40, random);
    for (const bool subtract : kRules) expect_definition(backend(), layout, path, subtract);
  }
}

TEST_P(DeltaRuleTest, ARowsBitsDoNotDependOnHowItsPathIsCut) {
  Random random(72);
  for (const StateLayout& layout : kStateLayouts) {
    SCOPED_TRACE(layout_name(layout));
    const std::vector<LinearRow> path = random_rows(layout, 24, random);
    const auto alone = one_by_one(backend(), layout, path);
    for (const int threads : kThreadCounts) {
      // A prompt in two pieces, then rounds of four rows of which three stay.
      LinearLayer layer(backend(), layout, threads);
      size_t done = 0;
      for (const size_t piece : {5, 7}) {
        std::vector<LinearLayer::Row> rows = chain(path, done, done + piece);
        rows.back().into = 0;
        const auto out = layer.run(rows);
        layer.set_blank(false);
        for (size_t i = 0; i < piece; ++i) {
          EXPECT_TRUE(same_bits(row_of(out, i, layout.values()), alone[done + i])) << done + i;
        }
        done += piece;
      }
      std::vector<int32_t> settled;
      int32_t record = 0;
      while (done + 4 <= path.size()) {
        std::vector<LinearLayer::Row> rows = chain(path, done, done + 4);
        for (LinearLayer::Row& row : rows) row.record = record++ % LinearLayer::kRecords;
        const auto out = layer.run(rows, settled);
        settled.clear();
        for (size_t i = 0; i < 4; ++i) {
          EXPECT_TRUE(same_bits(row_of(out, i, layout.values()), alone[done + i])) << done + i;
          if (i < 3) settled.push_back(rows[i].record);
        }
        done += 3;
      }
    }
  }
}

// Trees of any shape, with rows whose ancestors earlier passes computed.
TEST_P(DeltaRuleTest, ARowSeesItsAncestorsAlone) {
  Random random(73);
  for (const StateLayout& layout : kStateLayouts) {
    SCOPED_TRACE(layout_name(layout));
    const std::vector<LinearRow> prefix = random_rows(layout, 6, random);
    const std::vector<LinearRow> nodes = random_rows(layout, 20, random);
    for (int turn = 0; turn < 4; ++turn) {
      LinearLayer layer(backend(), layout, 2);
      std::vector<LinearLayer::Row> prompt = chain(prefix, 0, prefix.size());
      prompt.back().into = 0;
      layer.run(prompt);
      layer.set_blank(false);
      // Two nodes of an earlier pass, that are not settled.
      layer.run({{&nodes[0], -1, {}, 0}, {&nodes[1], 0, {}, 1}});
      std::vector<LinearLayer::Row> rows;
      std::vector<std::vector<size_t>> paths;
      for (size_t n = 2; n < nodes.size(); ++n) {
        const auto choices = static_cast<int64_t>(rows.size());
        const auto parent = static_cast<int32_t>(random.below(choices + 1)) - 1;
        LinearLayer::Row row = {&nodes[n], parent};
        std::vector<size_t> way = {};
        if (parent >= 0) {
          way = paths[static_cast<size_t>(parent)];
        } else if (random.below(2) == 0) {
          row.above = {0, 1};
          way = {0, 1};
        }
        way.push_back(n);
        rows.push_back(row);
        paths.push_back(way);
      }
      const auto out = layer.run(rows);
      for (size_t r = 0; r < rows.size(); ++r) {
        std::vector<LinearRow> path = prefix;
        for (const size_t n : paths[r]) path.push_back(nodes[n]);
        EXPECT_TRUE(
            same_bits(row_of(out, r, layout.values()), one_by_one(backend(), layout, path).back()))
            << r;
      }
    }
  }
}

void expect_records(const Backend& backend, const StateLayout& layout,
                    const std::vector<LinearRow>& path, bool subtract) {
  SCOPED_TRACE(layout_name(layout) + (subtract ? "" : ", nothing subtracted"));
  LinearLayer drafted(backend, layout, 1, subtract), settled(backend, layout, 1, subtract);
  std::vector<LinearLayer::Row> rows = chain(path, 0, path.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i].record = static_cast<int32_t>(i);
  drafted.run(rows);
  std::fill_n(drafted.state(0), layout.state(), 0.0f);
  for (int32_t i = 0; i < 5; ++i) {
    // The convolution's input is not the rule's to write.
    std::vector<float> record(drafted.record(i), drafted.record(i) + layout.record());
    std::fill(record.begin() + layout.input(), record.end(), 0.0f);
    apply_record(layout, record.data(), drafted.state(0));
  }
  rows = chain(path, 0, path.size());
  rows.back().into = 0;
  settled.run(rows);
  const auto size = static_cast<size_t>(layout.inputs());
  EXPECT_TRUE(same_bits({drafted.state(0), size}, {settled.state(0), size}));
}

TEST_P(DeltaRuleTest, RecordsSayWhatARowDid) {
  Random random(74);
  for (const StateLayout& layout : kStateLayouts) {
    const std::vector<LinearRow> path = random_rows(layout, 5, random);
    for (const bool subtract : kRules) expect_records(backend(), layout, path, subtract);
  }
}

// Without heads a record is an input, which goes behind the others.
TEST(ShortConvStates, AreTheLastInputs) {
  const StateLayout layout = {.taps = 3, .plain = 20};
  EXPECT_EQ(layout.record(), 20);
  ASSERT_EQ(layout.state(), 40);
  std::vector<float> state(40), record(20);
  std::iota(state.begin(), state.end(), 1.0f);
  std::iota(record.begin(), record.end(), 41.0f);
  apply_record(layout, record.data(), state.data());
  std::vector<float> expected(40);
  std::iota(expected.begin(), expected.end(), 21.0f);
  EXPECT_EQ(state, expected);
}

// What becomes of a sum of the convolution.
struct ConvForm {
  bool bias, silu;
};
constexpr ConvForm kConvForms[] = {{false, true}, {true, true}, {false, false}, {true, false}};

void expect_convolutions(const Backend& backend, int64_t channels, int taps, const ConvForm& form,
                         Random& random) {
  SCOPED_TRACE(testing::Message() << channels << " channels, " << taps << " taps, bias "
                                  << form.bias << ", SiLU " << form.silu);
  constexpr int64_t kRows = 3;
  const std::vector<float> weights = uniform_floats(random, taps * channels, -1.0f, 1.0f);
  const std::vector<float> bias = uniform_floats(random, channels, -1.0f, 1.0f);
  std::deque<Fenced<float>> memory;
  std::vector<const float*> inputs;
  for (int64_t i = 0; i < kRows * taps; ++i) {
    memory.emplace_back(uniform_floats(random, channels, -2.0f, 2.0f));
    inputs.push_back(i % 5 == 0 ? nullptr : memory.back().data());
  }
  const int64_t first = channels / 3;
  std::vector<float> a(static_cast<size_t>(kRows * first)),
      b(static_cast<size_t>(kRows * (channels - first)));
  std::vector<float> kept(static_cast<size_t>(2 * channels), 5.0f);
  const ShortConvArgs::Part parts[] = {{a.data(), first}, {b.data(), channels - first}};
  // One behind the other, so that the order shows.
  const ShortConvArgs::Copy copies[] = {{kept.data() + channels, kept.data()},
                                        {inputs[1], kept.data() + channels},
                                        {nullptr, kept.data()}};
  const Fenced<float> fenced_bias(bias);
  backend.short_conv(pool_of(2), {taps, weights.data(), inputs, parts, copies,
                                  form.bias ? fenced_bias.data() : nullptr, form.silu});
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = form.bias ? double{bias[static_cast<size_t>(c)]} : 0.0;
      for (int64_t t = 0; t < taps; ++t) {
        const float* input = inputs[static_cast<size_t>(r * taps + t)];
        const auto weight = double{weights[static_cast<size_t>(t * channels + c)]};
        if (input != nullptr) sum += weight * double{input[c]};
      }
      const float actual = c < first ? a[static_cast<size_t>(r * first + c)]
                                     : b[static_cast<size_t>(r * (channels - first) + c - first)];
      EXPECT_NEAR(actual, form.silu ? sum / (1.0 + std::exp(-sum)) : sum, 2e-6) << c;
    }
  }
  const auto width = static_cast<size_t>(channels);
  EXPECT_EQ(std::vector<float>(kept.begin(), kept.begin() + channels),
            std::vector<float>(width, 0.0f));
  EXPECT_TRUE(same_bits({kept.data() + channels, width}, {inputs[1], width}));
}

TEST_P(DeltaRuleTest, ShortConvolutionsAreWhatTheyAreDefinedAs) {
  Random random(75);
  for (const int64_t channels : {16, 49, 320}) {
    for (const int taps : {2, 4}) {
      for (const ConvForm& form : kConvForms) {
        expect_convolutions(backend(), channels, taps, form, random);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, DeltaRuleTest, testing::ValuesIn(kAllIsas), isa_test_name);

}  // namespace aerie::kernels::delta_rule_test
