// A whole Llama with trained weights: a small draft model, or the target itself.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "train/methods/target.h"
#include "train/nn/documents.h"
#include "train/nn/llama_layer.h"
#include "train/nn/parameters.h"

namespace aerie::train {

struct LlamaShape {
  LayerShape layer;
  int64_t layers = 0;
  int64_t vocab = 0;
  double rope_base = 10000.0;
  bool tied = true;  // the LM head is the embedding
};

// What is taken over from a target.
struct LlamaCut {
  std::vector<int64_t> layers = {};  // of the target's, in the order in which they will run
  // The target's tokens that the rows of embedding and LM head stand for, int64; undefined: all.
  at::Tensor tokens = {};
  // Of embedding and LM head, behind these: the mean of all of the target's.
  int64_t extra_rows = 0;
  // The LM head becomes the embedding even if the target has one of its own; such a target's
  // embedding is then given up. Without effect where the target's is the embedding.
  bool tied = false;
};

// "0,1,29" are these layers; "4" alone are the first four. kInvalidArgument, naming the word, for
// what is no layer of a model that has `layers`, and for nothing.
Expected<std::vector<int64_t>> parse_cut_layers(std::string_view text, int64_t layers);

// Llama's shape as the target has it, tied as its file is. kUnsupported, saying what it is, if the
// target does something that plain Llamas do not: biases, windows, stretched positions, norms of
// queries and keys, soft caps and the like.
Expected<LlamaShape> llama_shape(const Target& target);

// Weights are leaves of the Parameters that they were added to, by the names of Hugging Face's
// Llamas ("model.layers.0.self_attn.q_proj.weight"). Copies share them.
class LlamaModel {
 public:
  // At random.
  static LlamaModel create(Parameters& parameters, const LlamaShape& shape,
                           const at::Device& device, at::Generator& generator);
  // From the target's weights. As llama_shape(); kInvalidArgument for layers and tokens that it
  // does not have; kInvalidData, naming it, for a tensor that is not of the shape that the target's
  // metadata announce.
  static Expected<LlamaModel> cut(Parameters& parameters, Target& target, const LlamaCut& cut);

  const LlamaShape& shape() const { return shape_; }

  // The same with other matrices in its layers: `change` is given each one and its name as in
  // Target::tensor(), the layers counted as they run here ("blk.0.attn_q.weight").
  using MatrixChange = std::function<at::Tensor(const std::string& name, const at::Tensor& value)>;
  LlamaModel with_matrices(const MatrixChange& change) const;
  // All weights by such names.
  std::map<std::string, at::Tensor> weights() const;

  // The streams that enter the layers, and behind them the one that leaves the last: layers + 1
  // times [rows, hidden]. tokens and positions: int64 [rows]. `shares`, float [layers, rows]: how
  // much of what a layer adds is added for a row, 0 or 1 (layer dropout); undefined: all.
  std::vector<at::Tensor> forward(const at::Tensor& tokens, const at::Tensor& positions,
                                  const Documents& documents, const at::Tensor& shares = {}) const;
  // The final norm and the LM head on rows of a stream: [rows, vocab].
  at::Tensor logits(const at::Tensor& stream) const;

 private:
  LlamaShape shape_;
  at::Tensor embedding_, head_, norm_;  // head_: the embedding if they are tied
  std::vector<LlamaLayer> layers_;
};

}  // namespace aerie::train
