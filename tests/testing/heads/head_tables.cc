#include "tests/testing/heads/head_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "tensor/dtype.h"

namespace aerie::test {
namespace {

Table read_rows(const ModelFile& file, const std::string& name) {
  auto data = file.read(name);
  EXPECT_TRUE(data.ok()) << data.status().message();
  Table rows;
  if (!data.ok()) return rows;
  const TensorView& view = data->view;
  for (int64_t i = 0; i < view.shape[1]; ++i) {
    std::vector<float>& row = rows.emplace_back(static_cast<size_t>(view.row_length()));
    dequantize(view.dtype, view.row(i), view.row_length(), row.data());
  }
  return rows;
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

// Solves a x = b for every column of b, which becomes x.
void solve(std::vector<std::vector<double>>& a, std::vector<std::vector<double>>& b) {
  const size_t n = a.size();
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t r = i + 1; r < n; ++r) {
      if (std::abs(a[r][i]) > std::abs(a[pivot][i])) pivot = r;
    }
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    EXPECT_GT(std::abs(a[i][i]), 1e-6) << "keys are not linearly independent";
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = a[r][i] / a[i][i];
      for (size_t c = i; c < n; ++c) a[r][c] -= factor * a[i][c];
      for (size_t c = 0; c < b[i].size(); ++c) b[r][c] -= factor * b[i][c];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (double& value : b[i]) value /= a[i][i];
  }
}

}  // namespace

Matrix fit(const Table& keys, const Table& values) {
  std::vector<std::vector<double>> gram, weights;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::vector<double>& row = gram.emplace_back();
    for (const std::vector<float>& key : keys) row.push_back(dot(keys[i], key));
    weights.emplace_back(values[i].begin(), values[i].end());
  }
  solve(gram, weights);
  Matrix matrix(static_cast<int>(values[0].size()), static_cast<int>(keys[0].size()));
  for (int r = 0; r < matrix.rows; ++r) {
    for (int c = 0; c < matrix.columns; ++c) {
      double sum = 0.0;
      for (size_t i = 0; i < keys.size(); ++i) {
        sum += weights[i][static_cast<size_t>(r)] * double{keys[i][static_cast<size_t>(c)]};
      }
      matrix.at(r, c) = static_cast<float>(sum);
    }
  }
  return matrix;
}

TargetTables::TargetTables(const ModelFile& target)
    : embedding(read_rows(target, "token_embd.weight")) {
  g = read_rows(target, "output_norm.weight").at(0);
  const Table output = read_rows(target, "output.weight");
  for (const std::vector<float>& e : embedding) {
    const double rms = std::sqrt(dot(e, e) / static_cast<double>(e.size()));
    std::vector<float>& n = normed.emplace_back();
    std::vector<float>& h = feature.emplace_back();
    for (size_t i = 0; i < e.size(); ++i) {
      n.push_back(static_cast<float>(double{e[i]} / rms));
      h.push_back(n[i] * g[i]);
    }
    std::vector<float>& scores = logits.emplace_back();
    for (const std::vector<float>& row : output) scores.push_back(static_cast<float>(dot(row, h)));
  }
}

Table TargetTables::logits_after(int steps) const {
  Table table;
  for (size_t token = 0; token < logits.size(); ++token) {
    size_t at = token;
    for (int i = 0; i < steps; ++i) {
      at = static_cast<size_t>(std::ranges::max_element(logits[at]) - logits[at].begin());
    }
    table.push_back(logits[at]);
  }
  return table;
}

}  // namespace aerie::test
