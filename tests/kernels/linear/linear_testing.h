// Passes over the rows of layers with linear attention, and their definition in double.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/delta_rule.h"
#include "tests/kernels/kernel_testing.h"

namespace aerie::kernels {

inline constexpr StateLayout kStateLayouts[] = {
    {1, 1, 16, 16, 2},
    {4, 2, 16, 32, 4},
    {6, 2, 48, 16, 3, HeadOrder::kTiled},
    {3, 3, 128, 128, 4},
};
std::string layout_name(const StateLayout& layout);

// What one row brings to a layer.
struct LinearRow {
  std::vector<float> q, k;         // [key_heads][key_dim], keys of length 1
  std::vector<float> v;            // [heads][value_dim]
  std::vector<float> decay, beta;  // [heads]
};
LinearRow random_linear_row(const StateLayout& layout, Random& random);

// What the last row of a path reads, by the rule's definition: the matrix decays, what it has for
// the key is taken out of the value, if that is the rule (DeltaRuleArgs::subtract), the key's rest
// is added, and the query is looked up.
std::vector<double> read_along(const StateLayout& layout, const std::vector<LinearRow>& path,
                               bool subtract = true);

// A layer's memory, and passes over it.
class LinearLayer {
 public:
  static constexpr int kSlots = 4, kRecords = 64, kMostRows = 64;

  LinearLayer(const Backend& backend, const StateLayout& layout, int threads = 1,
              bool subtract = true);

  // A row of a pass: what it brings, and its place.
  struct Row {
    const LinearRow* values = nullptr;
    int32_t parent = -1;
    std::vector<int32_t> above = {};
    int32_t record = -1;
    int32_t into = -1;
  };
  // Rows of one sequence, in a pass with nothing else: [rows][values].
  std::vector<float> run(const std::vector<Row>& rows, const std::vector<int32_t>& settled = {},
                         int32_t slot = 0);
  // Whether slot 0 has been written to.
  void set_blank(bool blank) { blank_ = blank; }
  float* state(int32_t slot) { return states_.data() + slot * layout_.state(); }
  const float* record(int32_t index) const { return records_.data() + index * layout_.record(); }

 private:
  const Backend& backend_;
  StateLayout layout_;
  int threads_;
  bool subtract_;
  bool blank_ = true;
  std::vector<float> states_, records_;
  StateWorkspace workspace_;
};

// One output row of `width` of the result of a pass.
std::vector<float> row_of(const std::vector<float>& out, size_t row, int64_t width);

}  // namespace aerie::kernels
