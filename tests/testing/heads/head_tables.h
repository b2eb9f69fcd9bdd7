// What a target says that hears the last token alone, as tables, and matrices that repeat a table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/model_file.h"

namespace aerie::test {

// Row by row.
struct Matrix {
  Matrix(int row_count, int column_count)
      : rows(row_count),
        columns(column_count),
        values(static_cast<size_t>(row_count) * static_cast<size_t>(column_count)) {}

  float& at(int row, int column) {
    return values[static_cast<size_t>(row) * static_cast<size_t>(columns) +
                  static_cast<size_t>(column)];
  }
  std::span<float> row(int index) {
    return std::span(values).subspan(static_cast<size_t>(index) * static_cast<size_t>(columns),
                                     static_cast<size_t>(columns));
  }

  int rows, columns;
  std::vector<float> values;
};

using Table = std::vector<std::vector<float>>;  // by token

// The least matrix that makes values[i] of keys[i] for every i. Requires linearly independent keys.
Matrix fit(const Table& keys, const Table& values);

class TargetTables {
 public:
  // Of a Llama with F32 tensors and a matrix of its own for the output. Fails the test for others.
  explicit TargetTables(const ModelFile& target);

  Table embedding;
  Table normed;          // of the embedding, without weights
  Table feature;         // behind the target's final norm
  Table logits;          // after a token
  std::vector<float> g;  // the final norm's weights
  // Of the likeliest token after `steps` tokens that are each the likeliest: 0: logits.
  Table logits_after(int steps) const;
};

}  // namespace aerie::test
