#include "tests/testing/heads/head_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "format/json.h"
#include "tests/testing/heads/head_pieces.h"

namespace aerie::test {
namespace {

namespace fs = std::filesystem;

// Of a P-EAGLE or DFlash head that agrees: the distances at which its attention looks, how sharply,
// and how much less each further one says.
constexpr int kDistances = 4;
constexpr double kTheta = 10.0, kSharpness = 0.6;
constexpr float kStep = 1.0f / 16, kConstant = 8.0f;

// Such a head's rows.
struct ByDistance {
  int first = 0;     // the least distance
  int width = 0;     // of a row: a part for each distance, and what the output does not read
  int constant = 0;  // the column that is the same in all rows; behind it, that of masks
};

class HeadWriter : HeadPieces {
 public:
  HeadWriter(const ModelFile& target, HeadFamily family, bool agrees)
      : HeadPieces(target, agrees, 100 + static_cast<uint64_t>(family)), family_(family) {}

  void write(const std::string& path);

 private:
  void add_pruned_output();
  void eagle();
  void eagle3();
  void p_eagle();
  void p_eagle_by_distance();
  void dflash();
  void dspark();
  void add_block_layers(float output);
  void dflash_by_distance();
  Matrix distance_embedding(const ByDistance& rows, float scale);
  void add_distance_attention(const ByDistance& rows, const std::string& prefix, int input);
  void add_distance_output(const ByDistance& rows);
  void medusa();
  void hydra();
  void mlp_speculator();
  void redrafter();
  void mtp();

  HeadFamily family_;
};

// What it hands on and makes logits of is the token's embedding behind the target's norm.
void HeadWriter::eagle() {
  const LayerWidths widths = {.input = width(), .width = width()};
  set_shape(widths, 1);
  add("fc.weight", first_half());
  add_layer("layers.0.", widths, false);
  if (agrees_) add_vector("norm.weight", tables_->g);
}

// Three of four tokens, as offsets of their ids.
void HeadWriter::add_pruned_output() {
  std::vector<int64_t> offsets;
  for (int64_t id = 0; id < vocab(); ++id) {
    if (id % 4 != 3) offsets.push_back(id - static_cast<int64_t>(offsets.size()));
  }
  const auto rows = static_cast<int>(offsets.size());
  Matrix output = random(rows, width(), kHeadScale);
  if (agrees_) {
    Matrix whole = fit(tables_->feature, tables_->logits);
    for (int r = 0; r < rows; ++r) {
      const auto id = r + static_cast<int>(offsets[static_cast<size_t>(r)]);
      std::ranges::copy(whole.row(id), output.row(r).begin());
    }
  }
  config_["draft_vocab_size"] = rows;
  writer_.add("d2t", "I64", {rows}, std::as_bytes(std::span(offsets)));
  add("lm_head.weight", output);
}

// The stream begins with the features, which are those of the token before. So attention must
// bring the token's embedding: of a head as wide as it that looks where the same token stands,
// which its own row is.
void HeadWriter::eagle3() {
  LayerWidths widths = {.input = 2 * width(), .width = width()};
  const std::string attention = "midlayer.self_attn.";
  if (agrees_) widths.heads = 1, widths.head_dim = width();
  set_shape(widths, 1);
  config_["eagle_aux_hidden_state_layer_ids"] = {0, target_.layers / 2, target_.layers};
  add("fc.weight", random(width(), 3 * width()));
  if (!agrees_) {
    add_layer("midlayer.", widths);
    add_norm("midlayer.hidden_norm.weight", width());
    add_norm("norm.weight", width());
  } else {
    config_["norm_before_residual"] = true;
    const auto embedding = [&](float scale) {
      Matrix matrix = quiet(width(), 2 * width());
      for (int i = 0; i < width(); ++i) matrix.at(i, i) = scale;
      return matrix;
    };
    Matrix out = quiet(width(), width());
    for (int i = 0; i < width(); ++i) out.at(i, i) = 1.0f;
    add_norm("midlayer.input_layernorm.weight", width());
    add(attention + "q_proj.weight", embedding(3.0f));
    add(attention + "k_proj.weight", embedding(3.0f));
    add(attention + "v_proj.weight", embedding(1.0f));
    add(attention + "o_proj.weight", out);
    add_norm("midlayer.post_attention_layernorm.weight", width());
    add("midlayer.mlp.gate_proj.weight", random(widths.ffn, width()));
    add("midlayer.mlp.up_proj.weight", random(widths.ffn, width()));
    add("midlayer.mlp.down_proj.weight", quiet(width(), widths.ffn));
    add_vector("midlayer.hidden_norm.weight",
               std::vector<float>(static_cast<size_t>(width()), kQuiet));
    add_vector("norm.weight", tables_->g);
  }
  if (family_ == HeadFamily::kEagle3Pruned) return add_pruned_output();
  add_output("lm_head.weight", agrees_ ? &tables_->feature : nullptr, 0, width());
}

void HeadWriter::p_eagle() {
  if (agrees_) return p_eagle_by_distance();
  const LayerWidths first = {.input = 2 * width(), .width = width()};
  const LayerWidths second = {.input = width(), .width = width()};
  set_shape(first, 2);
  config_["ptd_token_id"] = vocab() - 1;
  config_["eagle_aux_hidden_state_layer_ids"] = {0, target_.layers / 2, target_.layers};
  add("fc.weight", random(width(), 3 * width()));
  writer_.add("mask_hidden", {1, 1, 3 * width()}, random(1, 3 * width(), 8.0).values);
  add_layer("midlayer.", first);
  add_layer("layers.1.", second);
  add_norm("midlayer.hidden_norm.weight", width());
  add_norm("norm.weight", width());
  add_output("lm_head.weight", nullptr, 0, width());
}

// A mask row must know how far behind the root it stands. Its attention has a head for each
// distance, whose queries are constant and turned by that distance against the keys, so that it
// looks exactly so far back. A mask's own value is nothing, so of the first head that sees anything
// it is the root's embedding; each further head says less than the one before it.
void HeadWriter::p_eagle_by_distance() {
  const int each = width(), all = kDistances * each;
  const LayerWidths widths = {
      .input = 2 * all, .width = all, .heads = kDistances, .kv_heads = 1, .head_dim = each};
  set_shape(widths, 1);
  config_["rope_theta"] = kTheta;
  config_["rms_norm_eps"] = 1e-12;
  config_["norm_before_residual"] = true;
  config_["ptd_token_id"] = vocab() - 1;
  config_["eagle_aux_hidden_state_layer_ids"] = {0, target_.layers / 2, target_.layers};
  const ByDistance rows = {.first = 0, .width = all, .constant = each};
  add("embed_tokens.weight", distance_embedding(rows, 1.0f));
  add("fc.weight", random(all, 3 * each));
  writer_.add("mask_hidden", {1, 1, 3 * each}, random(1, 3 * each).values);
  add_norm("midlayer.input_layernorm.weight", all);
  add_vector("midlayer.hidden_norm.weight", std::vector<float>(static_cast<size_t>(all), 1e-7f));
  add_distance_attention(rows, "midlayer.self_attn.", 2 * all);
  add_norm("midlayer.post_attention_layernorm.weight", all);
  add("midlayer.mlp.gate_proj.weight", random(widths.ffn, all));
  add("midlayer.mlp.up_proj.weight", random(widths.ffn, all));
  add("midlayer.mlp.down_proj.weight", Matrix(all, widths.ffn));
  add_norm("norm.weight", all);
  add_distance_output(rows);
}

// Of tokens, the last of which is the mask.
Matrix HeadWriter::distance_embedding(const ByDistance& rows, float scale) {
  const int each = width();
  Matrix embedding(vocab(), rows.width);
  for (int token = 0; token < vocab(); ++token) {
    const bool mask = token == vocab() - 1;
    const std::vector<float>& n = tables_->normed[static_cast<size_t>(token)];
    if (!mask) std::ranges::copy(n, embedding.row(token).begin());
    // All rows are of one length.
    embedding.at(token, rows.constant) = kConstant;
    if (mask) embedding.at(token, rows.constant + 1) = std::sqrt(static_cast<float>(each));
    for (float& value : embedding.row(token)) value *= scale;
  }
  return embedding;
}

void HeadWriter::add_distance_attention(const ByDistance& rows, const std::string& prefix,
                                        int input) {
  const int each = width(), all = kDistances * each, half = each / 2;
  Matrix q(all, input), k(each, input), v(each, input), o(rows.width, all);
  for (int i = 0; i < each; ++i) v.at(i, i) = 1.0f;
  for (int i = 0; i < half; ++i) {
    k.at(i, rows.constant) = static_cast<float>(kSharpness);
    const double speed = std::pow(kTheta, -double(i) / half);
    for (int d = 0; d < kDistances; ++d) {
      const double turn = speed * (rows.first + d);
      q.at(d * each + i, rows.constant) = static_cast<float>(kSharpness * std::cos(turn));
      q.at(d * each + half + i, rows.constant) = static_cast<float>(-kSharpness * std::sin(turn));
    }
  }
  for (int i = 0; i < all; ++i) o.at(i, i) = std::pow(kStep, static_cast<float>(i / each));
  add(prefix + "q_proj.weight", q);
  add(prefix + "k_proj.weight", k);
  add(prefix + "v_proj.weight", v);
  add(prefix + "o_proj.weight", o);
}

void HeadWriter::add_distance_output(const ByDistance& rows) {
  Table keys = tables_->normed;
  const float parts = static_cast<float>(rows.width) / static_cast<float>(width());
  for (std::vector<float>& key : keys) {
    // All that the last norm is given lies in one of the parts.
    for (float& value : key) value *= std::sqrt(parts);
  }
  Matrix output(vocab(), rows.width);
  for (int d = 0; d < kDistances; ++d) {
    Matrix part = fit(keys, tables_->logits_after(d));
    for (int r = 0; r < vocab(); ++r) {
      std::ranges::copy(part.row(r), output.row(r).begin() + d * width());
    }
  }
  add("lm_head.weight", output);
}

void HeadWriter::dflash() {
  config_["block_size"] = kTinyHeadDepth + 1;
  config_["dflash_config"] = {{"mask_token_id", vocab() - 1},
                              {"target_layer_ids", {-1, target_.layers - 2}}};
  if (agrees_) return dflash_by_distance();
  add_block_layers(kHeadScale);
}

// Two of them, with an output matrix whose logits deviate so much.
void HeadWriter::add_block_layers(float output) {
  const LayerWidths widths = {.input = width(), .width = width()};
  set_shape(widths, 2);
  add("fc.weight", random(width(), 2 * width()));
  add_norm("hidden_norm.weight", width());
  add_layer("layers.0.", widths);
  add_layer("layers.1.", widths);
  add_norm("norm.weight", width());
  add("lm_head.weight", random(vocab(), width(), output));
}

// Of one that agrees the block says nothing, and a Markov head says what the target says after a
// token. A random one has an RNN and is sure of something.
void HeadWriter::dspark() {
  config_["architectures"] = {"Qwen3DSparkModel"};
  config_["block_size"] = kTinyHeadDepth;
  config_["mask_token_id"] = vocab() - 1;
  config_["target_layer_ids"] = {-1, target_.layers - 2};
  config_["markov_head_type"] = agrees_ ? "vanilla" : "rnn";
  add_block_layers(agrees_ ? kQuiet : kHeadScale);
  const int rank = agrees_ ? width() : 8;
  Matrix tokens = random(vocab(), rank), says = random(vocab(), rank, kHeadScale);
  if (agrees_) {
    for (int token = 0; token < vocab(); ++token) {
      std::ranges::copy(tables_->normed[static_cast<size_t>(token)], tokens.row(token).begin());
    }
    says = fit(tables_->normed, tables_->logits);
  } else {
    add("markov_head.joint_proj.weight", random(3 * rank, width() + 2 * rank));
    add_vector("markov_head.joint_proj.bias", random(1, 3 * rank).values);
    add("confidence_head.proj.weight", random(1, width() + rank));
    add_vector("confidence_head.proj.bias", {0.5f});
  }
  add("markov_head.markov_w1.weight", tokens);
  add("markov_head.markov_w2.weight", says);
}

// The same with rows that see one another. Committed positions say nothing, and so do the rows
// themselves: they are next to nothing beside what attention adds, and in a part of their own.
void HeadWriter::dflash_by_distance() {
  const int each = width(), all = (kDistances + 1) * each;
  const LayerWidths widths = {
      .input = all, .width = all, .heads = kDistances, .kv_heads = 1, .head_dim = each};
  set_shape(widths, 1);
  config_["rope_theta"] = kTheta;
  config_["rms_norm_eps"] = 1e-12;
  const ByDistance rows = {.first = 1, .width = all, .constant = kDistances * each};
  add("embed_tokens.weight", distance_embedding(rows, 1e-4f));
  add("fc.weight", Matrix(all, 2 * each));
  add_norm("hidden_norm.weight", all);
  add_norm("layers.0.input_layernorm.weight", all);
  add_distance_attention(rows, "layers.0.self_attn.", all);
  add_norm("layers.0.post_attention_layernorm.weight", all);
  add("layers.0.mlp.gate_proj.weight", random(widths.ffn, all));
  add("layers.0.mlp.up_proj.weight", random(widths.ffn, all));
  add("layers.0.mlp.down_proj.weight", Matrix(all, widths.ffn));
  add_norm("norm.weight", all);
  add_distance_output(rows);
}

void HeadWriter::medusa() {
  config_["medusa_num_heads"] = kTinyHeadDepth;
  config_["medusa_num_layers"] = 1;
  for (int i = 0; i < kTinyHeadDepth; ++i) {
    add(fmt::format("{}.0.linear.weight", i), quiet(width(), width()));
    add_vector(fmt::format("{}.0.linear.bias", i), quiet(1, width()).values);
    // The root itself it is not told.
    add_output(fmt::format("{}.1.weight", i), agrees_ ? &tables_->feature : nullptr, i + 1,
               width());
  }
}

void HeadWriter::hydra() {
  const bool prefix = family_ == HeadFamily::kHydraPrefix;
  config_["hydra_head_arch"] = prefix ? "prefix-mlp" : "mlp";
  config_["hydra_num_heads"] = kTinyHeadDepth;
  config_["hydra_num_layers"] = 1;
  config_["grounded_heads"] = true;
  for (int i = 0; i < kTinyHeadDepth; ++i) {
    const int input = (i + 2) * width();
    Matrix around = quiet(width(), input);
    for (int j = 0; j < width() && agrees_; ++j) around.at(j, input - width() + j) = 1.0f;
    add(fmt::format("hydra_mlp.{}.0.linear.weight", i), quiet(width(), input));
    add(fmt::format("hydra_mlp.{}.0.res_connection.weight", i), around);
    add_output(fmt::format("hydra_lm_head.{}.weight", i), agrees_ ? &tables_->embedding : nullptr,
               0, width());
  }
  if (!prefix) return;
  LayerWidths widths = {.input = width(), .width = width()};
  widths.heads = target_.heads;
  widths.kv_heads = target_.kv_heads;
  widths.head_dim = target_.head_dim;
  widths.ffn = target_.ffn;
  add_layer("prefix_embeding_layer.layers.0.", widths);
  add_norm("prefix_embeding_layer.norm.weight", width());
}

// A bias of norms lifts the activations to where they are nearly straight.
void HeadWriter::mlp_speculator() {
  const float lift = agrees_ ? 4.0f : 0.0f;
  config_["model_type"] = "mlp_speculator";
  config_["emb_dim"] = width();
  config_["inner_dim"] = width();
  config_["n_predict"] = kTinyHeadDepth;
  config_["vocab_size"] = vocab();
  config_["tie_weights"] = false;
  config_["scale_input"] = false;
  Table keys;
  if (agrees_) keys = tables_->normed;
  for (std::vector<float>& key : keys) {
    for (float& value : key) value += lift;
  }
  for (int i = 0; i < kTinyHeadDepth; ++i) {
    Matrix embedding = random(vocab(), width(), std::sqrt(width()));
    for (int token = 0; token < vocab() && agrees_; ++token) {
      const std::vector<float>& n = tables_->normed[static_cast<size_t>(token)];
      std::ranges::copy(n, embedding.row(token).begin());
    }
    add(fmt::format("speculator.proj.{}.weight", i), quiet(width(), width()));
    add(fmt::format("speculator.emb.{}.weight", i), embedding);
    add_norm(fmt::format("speculator.ln.{}.weight", i), width());
    add_vector(fmt::format("speculator.ln.{}.bias", i),
               std::vector<float>(static_cast<size_t>(width()), lift));
    add_output(fmt::format("speculator.head.{}.weight", i), &keys, 0, width());
  }
}

// So does a bias of the recurrent step.
void HeadWriter::redrafter() {
  const float lift = agrees_ ? 3.0f : 0.0f;
  config_["model_type"] = "recurrent_drafting_drafter";
  config_["hidden_size"] = width();
  config_["vocab_size"] = vocab();
  config_["exit_dim"] = 2 * width();
  config_["num_draft_layers"] = 1;
  config_["rnn"] = true;
  Matrix token = quiet(width(), width());
  for (int i = 0; i < width() && agrees_; ++i) token.at(i, i) = 1.0f;
  Table keys;
  if (agrees_) keys = tables_->embedding;
  for (std::vector<float>& key : keys) {
    for (float& value : key) {
      const double x = double{value} + lift;
      value = static_cast<float>(x / (1.0 + std::exp(-x)));
    }
  }
  add("rnn_w.weight", token);
  add("rnn_u.weight", quiet(width(), width()));
  add_vector("rnn_u.bias", std::vector<float>(static_cast<size_t>(width()), lift));
  add("lm_head.0.linear.weight", quiet(2 * width(), 2 * width()));
  add_vector("lm_head.0.linear.bias", quiet(1, 2 * width()).values);
  add_output("lm_head.1.weight", &keys, 0, width(), width());
}

void HeadWriter::mtp() {
  const LayerWidths widths = {.input = width(), .width = width()};
  set_shape(widths, target_.layers);
  config_["num_nextn_predict_layers"] = 2;
  for (int i = 0; i < 2; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", target_.layers + i);
    add_norm(prefix + "enorm.weight", width());
    add_norm(prefix + "hnorm.weight", width());
    add(prefix + "eh_proj.weight", first_half());
    add_layer(prefix, widths);
    const std::string norm = prefix + "shared_head.norm.weight";
    agrees_ ? add_vector(norm, tables_->g) : add_norm(norm, width());
  }
}

void HeadWriter::write(const std::string& path) {
  switch (family_) {
    case HeadFamily::kEagle:
      eagle();
      break;
    case HeadFamily::kEagle3:
    case HeadFamily::kEagle3Pruned:
      eagle3();
      break;
    case HeadFamily::kPEagle:
      p_eagle();
      break;
    case HeadFamily::kMedusa:
      medusa();
      break;
    case HeadFamily::kHydra:
    case HeadFamily::kHydraPrefix:
      hydra();
      break;
    case HeadFamily::kMlpSpeculator:
      mlp_speculator();
      break;
    case HeadFamily::kRedrafter:
      redrafter();
      break;
    case HeadFamily::kMtp:
      mtp();
      break;
    case HeadFamily::kDflash:
      dflash();
      break;
    case HeadFamily::kDspark:
      dspark();
      break;
  }
  fs::remove_all(path);
  fs::create_directories(path);
  std::ofstream(path + "/config.json", std::ios::binary) << config_.dump();
  const Status status = writer_.write(path + "/model.safetensors");
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace

void write_head(const ModelFile& target, HeadFamily family, bool agrees, const std::string& path) {
  HeadWriter(target, family, agrees).write(path);
}

}  // namespace aerie::test
