// What heads of all families are written of, for head_writer.cc: matrices at random or nearly
// nothing, layers, and what config.json says of them.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/model_config.h"
#include "format/json.h"
#include "format/model_file.h"
#include "tests/format/safetensors/safetensors_writer.h"
#include "tests/testing/heads/head_tables.h"

namespace aerie::test {

// What a head that agrees has beside its tables, as a part of what a random one has.
inline constexpr float kQuiet = 0.02f;
inline constexpr double kHeadScale = 3.0;  // deviation of a random head's logits

struct LayerWidths {
  int input = 0;  // of queries, keys and values
  int width = 0;
  int heads = 2;
  int kv_heads = 1;
  int head_dim = 16;
  int ffn = 48;
};

class HeadPieces {
 protected:
  HeadPieces(const ModelFile& target, bool agrees, uint64_t seed);

  int width() const { return target_.hidden; }
  int vocab() const { return target_.vocab; }

  Matrix random(int rows, int columns, double deviation = 1.0);
  // As random() for a random head; nearly nothing for one that agrees.
  Matrix quiet(int rows, int columns);
  // [identity, quiet].
  Matrix first_half();
  void add(const std::string& name, const Matrix& matrix);
  void add_vector(const std::string& name, std::vector<float> values);
  void add_norm(const std::string& name, int length);
  // The matrix that makes the table's logits of the keys, behind `before` columns that it ignores;
  // a random head's is random.
  void add_output(const std::string& name, const Table* keys, int steps, int width, int before = 0);

  void set_shape(const LayerWidths& widths, int layers);
  void add_layer(const std::string& prefix, const LayerWidths& widths, bool input_norm = true);

  ModelConfig target_;
  bool agrees_;
  std::mt19937_64 random_;
  std::optional<TargetTables> tables_;
  Json config_ = Json::object();
  SafetensorsWriter writer_;
};

}  // namespace aerie::test
