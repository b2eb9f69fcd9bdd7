#include "tests/testing/heads/head_pieces.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/model.h"

namespace aerie::test {

HeadPieces::HeadPieces(const ModelFile& target, bool agrees, uint64_t seed)
    : target_(*read_model_config(target)), agrees_(agrees), random_(seed) {
  if (agrees) tables_.emplace(target);
}

Matrix HeadPieces::random(int rows, int columns, double deviation) {
  Matrix matrix(rows, columns);
  const double scale = deviation * std::sqrt(3.0 / columns);
  for (float& value : matrix.values) {
    const double uniform = static_cast<double>(random_() >> 11) * 0x1.0p-52 - 1.0;
    value = static_cast<float>(uniform * scale);
  }
  return matrix;
}

Matrix HeadPieces::quiet(int rows, int columns) {
  return random(rows, columns, agrees_ ? kQuiet : 1.0);
}

Matrix HeadPieces::first_half() {
  Matrix matrix = quiet(width(), 2 * width());
  for (int i = 0; i < width() && agrees_; ++i) matrix.at(i, i) = 1.0f;
  return matrix;
}

void HeadPieces::add(const std::string& name, const Matrix& matrix) {
  writer_.add(name, {matrix.rows, matrix.columns}, matrix.values);
}

void HeadPieces::add_vector(const std::string& name, std::vector<float> values) {
  writer_.add(name, {static_cast<int64_t>(values.size())}, values);
}

void HeadPieces::add_norm(const std::string& name, int length) {
  add_vector(name, std::vector<float>(static_cast<size_t>(length), 1.0f));
}

void HeadPieces::add_output(const std::string& name, const Table* keys, int steps, int width,
                            int before) {
  if (!agrees_) return add(name, random(vocab(), before + width, kHeadScale));
  Matrix table = fit(*keys, tables_->logits_after(steps));
  Matrix output(vocab(), before + width);
  for (int r = 0; r < vocab(); ++r) {
    std::ranges::copy(table.row(r), output.row(r).begin() + before);
  }
  add(name, output);
}

void HeadPieces::set_shape(const LayerWidths& widths, int layers) {
  config_["model_type"] = "llama";
  config_["hidden_act"] = "silu";
  config_["hidden_size"] = widths.width;
  config_["intermediate_size"] = widths.ffn;
  config_["num_attention_heads"] = widths.heads;
  config_["num_key_value_heads"] = widths.kv_heads;
  config_["head_dim"] = widths.head_dim;
  config_["num_hidden_layers"] = layers;
  config_["rms_norm_eps"] = 1e-6;
  config_["max_position_embeddings"] = 2048;
  config_["vocab_size"] = vocab();
}

// A layer whose branches say nearly nothing, if the head agrees.
void HeadPieces::add_layer(const std::string& prefix, const LayerWidths& widths, bool input_norm) {
  const int q = widths.heads * widths.head_dim, kv = widths.kv_heads * widths.head_dim;
  if (input_norm) add_norm(prefix + "input_layernorm.weight", widths.width);
  add(prefix + "self_attn.q_proj.weight", random(q, widths.input));
  add(prefix + "self_attn.k_proj.weight", random(kv, widths.input));
  add(prefix + "self_attn.v_proj.weight", random(kv, widths.input));
  add(prefix + "self_attn.o_proj.weight", quiet(widths.width, q));
  add_norm(prefix + "post_attention_layernorm.weight", widths.width);
  add(prefix + "mlp.gate_proj.weight", random(widths.ffn, widths.width));
  add(prefix + "mlp.up_proj.weight", random(widths.ffn, widths.width));
  add(prefix + "mlp.down_proj.weight", quiet(widths.width, widths.ffn));
}

}  // namespace aerie::test
