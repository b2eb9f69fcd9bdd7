#include "tests/kernels/linear/linear_testing.h"

#include <algorithm>
#include <cmath>

namespace aerie::kernels {

std::string layout_name(const StateLayout& layout) {
  return std::to_string(layout.heads) + " heads of " + std::to_string(layout.value_dim) + ", " +
         std::to_string(layout.key_heads) + " of " + std::to_string(layout.key_dim);
}

LinearRow random_linear_row(const StateLayout& layout, Random& random) {
  LinearRow row;
  row.q = uniform_floats(random, layout.keys(), -1.0f, 1.0f);
  row.k = uniform_floats(random, layout.keys(), -1.0f, 1.0f);
  row.v = uniform_floats(random, layout.values(), -1.0f, 1.0f);
  row.decay = uniform_floats(random, layout.heads, 0.8f, 1.0f);
  row.beta = uniform_floats(random, layout.heads, 0.1f, 1.0f);
  const auto dim = static_cast<size_t>(layout.key_dim);
  for (size_t at = 0; at < row.k.size(); at += dim) {
    float squares = 0.0f;
    for (size_t i = at; i < at + dim; ++i) squares += row.k[i] * row.k[i];
    for (size_t i = at; i < at + dim; ++i) row.k[i] /= std::sqrt(squares);
  }
  return row;
}

std::vector<double> read_along(const StateLayout& layout, const std::vector<LinearRow>& path,
                               bool subtract) {
  const auto keys = static_cast<size_t>(layout.key_dim);
  const auto values = static_cast<size_t>(layout.value_dim);
  std::vector<double> out;
  for (int h = 0; h < layout.heads; ++h) {
    const auto head = static_cast<size_t>(h);
    const size_t key_at = static_cast<size_t>(layout.key_head(h)) * keys;
    std::vector<double> matrix(keys * values, 0.0), read(values);
    for (const LinearRow& row : path) {
      for (double& m : matrix) m *= double{row.decay[head]};
      std::ranges::fill(read, 0.0);
      for (size_t v = 0; v < values; ++v) {
        double remembered = 0.0;
        for (size_t k = 0; subtract && k < keys; ++k) {
          remembered += matrix[k * values + v] * double{row.k[key_at + k]};
        }
        const double rest =
            double{row.beta[head]} * (double{row.v[head * values + v]} - remembered);
        for (size_t k = 0; k < keys; ++k) {
          matrix[k * values + v] += double{row.k[key_at + k]} * rest;
          read[v] += matrix[k * values + v] * double{row.q[key_at + k]};
        }
      }
    }
    out.insert(out.end(), read.begin(), read.end());
  }
  return out;
}

LinearLayer::LinearLayer(const Backend& backend, const StateLayout& layout, int threads,
                         bool subtract)
    : backend_(backend),
      layout_(layout),
      threads_(threads),
      subtract_(subtract),
      // What a slot held before is not to show.
      states_(static_cast<size_t>(kSlots * layout.state()), 7.0f),
      records_(static_cast<size_t>(kRecords * layout.record()), NAN),
      workspace_(std::move(StateWorkspace::allocate(layout, threads, kMostRows)).value()) {}

std::vector<float> LinearLayer::run(const std::vector<Row>& rows,
                                    const std::vector<int32_t>& settled, int32_t slot) {
  std::vector<float> q, k, v, decay, beta;
  std::vector<StateRow> state_rows;
  std::vector<int32_t> order;
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(q, rows[r].values->q);
    append(k, rows[r].values->k);
    append(v, rows[r].values->v);
    append(decay, rows[r].values->decay);
    append(beta, rows[r].values->beta);
    StateRow& row = state_rows.emplace_back();
    row.parent = rows[r].parent;
    row.above = rows[r].above;
    row.record = rows[r].record;
    row.into[1] = rows[r].into;
    row.needed = rows[r].into >= 0;
    order.push_back(static_cast<int32_t>(r));
  }
  int32_t kept = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].parent < 0) continue;
    StateRow& parent = state_rows[static_cast<size_t>(rows[r].parent)];
    parent.needed = true;
    if (static_cast<size_t>(rows[r].parent) + 1 != r && parent.keep < 0) parent.keep = kept++;
  }
  const StateSequence sequence[] = {{slot, blank_, settled, order}};
  std::vector<float> out(rows.size() * static_cast<size_t>(layout_.values()));
  DeltaRuleArgs args;
  args.layout = layout_;
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.decay = decay.data();
  args.beta = beta.data();
  args.out = out.data();
  args.sequences = sequence;
  args.rows = state_rows;
  args.states = states_.data();
  args.records = records_.data();
  args.workspace = &workspace_;
  args.subtract = subtract_;
  backend_.delta_rule(pool_of(threads_), args);
  return out;
}

std::vector<float> row_of(const std::vector<float>& out, size_t row, int64_t width) {
  const auto begin = out.begin() + static_cast<ptrdiff_t>(row) * width;
  return {begin, begin + width};
}

}  // namespace aerie::kernels
