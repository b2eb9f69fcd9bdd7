#include "train/nn/llama_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "train/nn/ops.h"

namespace aerie::train {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kNorm = "model.norm.weight";
constexpr const char* kHead = "lm_head.weight";

std::string layer_name(int64_t layer) {
  return fmt::format("model.layers.{}", layer);
}

// What a target does that a plain Llama does not; empty if there is nothing.
std::string_view peculiarity(const Target& target) {
  const Blueprint& blueprint = target.blueprint();
  if (blueprint.ropes.size() != 1) return "other positions than one rotary embedding";
  const RopeConfig& rope = blueprint.ropes.front();
  for (const LayerPlan& layer : blueprint.layers) {
    if (layer.window != 0) return "a sliding window";
    if (layer.rope != 0) return "layers of different rotary embeddings";
  }
  for (const TensorInfo& tensor : target.source().file->tensors()) {
    if (tensor.name.ends_with(".bias")) return "biases";
  }
  const std::array<std::pair<bool, std::string_view>, 9> found = {{
      {rope.scaling != RopeScaling::kNone, "stretched rotary embedding"},
      {rope.dimensions != target.config().head_dim, "rotary embedding of a part of the heads"},
      {blueprint.query_key_norm != QueryKeyNorm::kNone, "norms of queries and keys"},
      {blueprint.attention_gate || blueprint.post_norms, "gates or norms behind its attention"},
      {blueprint.activation != kernels::Activation::kSilu || !blueprint.gated,
       "another feed-forward"},
      {blueprint.learned_positions, "learned positions"},
      {blueprint.embedding_scale != 1.0 || blueprint.attention_scale != 0.0, "scales of its own"},
      {blueprint.residual_scale != 1.0 || blueprint.logit_divisor != 1.0, "scales of its own"},
      {blueprint.attention_soft_cap != 0.0 || blueprint.logit_soft_cap != 0.0, "soft caps"},
  }};
  for (const auto& [is_there, name] : found) {
    if (is_there) return name;
  }
  return {};
}

// Takes tensors of the target as parameters.
class Cutter {
 public:
  Cutter(Parameters& parameters, const Target& target) : parameters_(parameters), target_(target) {}

  Status take(const std::string& from, at::IntArrayRef sizes, const std::string& name,
              at::Tensor& out) {
    AERIE_ASSIGN_OR_RETURN(at::Tensor values, target_.tensor(from));
    AERIE_RETURN_IF_ERROR(check(values, sizes, from));
    out = parameters_.add(name, std::move(values));
    return {};
  }

  // Rows of tokens, and the mean of all `extra` times.
  Status take_rows(const std::string& from, at::IntArrayRef sizes, const LlamaCut& cut,
                   const std::string& name, at::Tensor& out) {
    AERIE_ASSIGN_OR_RETURN(const at::Tensor table, target_.tensor(from));
    AERIE_RETURN_IF_ERROR(check(table, sizes, from));
    at::Tensor rows =
        cut.tokens.defined() ? table.index_select(0, cut.tokens.to(table.device())) : table;
    if (cut.extra_rows > 0) {
      rows = at::cat({rows, table.mean(0, true).expand({cut.extra_rows, sizes[1]})});
    }
    out = parameters_.add(name, std::move(rows));
    return {};
  }

  Expected<LlamaLayer> take_layer(int64_t from, int64_t to, const LayerShape& shape) {
    LlamaLayer layer;
    layer.shape = shape;
    const int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
    const int64_t hidden = shape.hidden, ffn = shape.intermediate;
    struct Part {
      const char *from, *to;
      std::vector<int64_t> sizes;
      at::Tensor& out;
    };
    const Part parts[] = {
        {"attn_norm", "input_layernorm", {hidden}, layer.input_norm},
        {"attn_q", "self_attn.q_proj", {q, hidden}, layer.q},
        {"attn_k", "self_attn.k_proj", {kv, hidden}, layer.k},
        {"attn_v", "self_attn.v_proj", {kv, hidden}, layer.v},
        {"attn_output", "self_attn.o_proj", {hidden, q}, layer.o},
        {"ffn_norm", "post_attention_layernorm", {hidden}, layer.post_attention_norm},
        {"ffn_gate", "mlp.gate_proj", {ffn, hidden}, layer.gate},
        {"ffn_up", "mlp.up_proj", {ffn, hidden}, layer.up},
        {"ffn_down", "mlp.down_proj", {hidden, ffn}, layer.down},
    };
    for (const Part& part : parts) {
      AERIE_RETURN_IF_ERROR(take(fmt::format("blk.{}.{}.weight", from, part.from), part.sizes,
                                 fmt::format("{}.{}.weight", layer_name(to), part.to), part.out));
    }
    return layer;
  }

 private:
  Status check(const at::Tensor& values, at::IntArrayRef sizes, const std::string& name) const {
    if (values.sizes() == sizes) return {};
    return {StatusCode::kInvalidData,
            fmt::format("{}: {} is [{}], and its metadata ask for [{}]", target_.path(), name,
                        fmt::join(values.sizes(), ", "), fmt::join(sizes, ", "))};
  }

  Parameters& parameters_;
  const Target& target_;
};

Status check_cut(const LlamaCut& cut, const Target& target) {
  for (const int64_t layer : cut.layers) {
    if (layer < 0 || layer >= target.config().layers) {
      return {StatusCode::kInvalidArgument,
              fmt::format("{}: has layers 0 to {}, and {} is asked for", target.path(),
                          target.config().layers - 1, layer)};
    }
  }
  if (cut.tokens.defined() && (cut.tokens.numel() == 0 || cut.tokens.min().item<int64_t>() < 0 ||
                               cut.tokens.max().item<int64_t>() >= target.config().vocab)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{}: has tokens 0 to {}, and others or none are asked for", target.path(),
                        target.config().vocab - 1)};
  }
  return {};
}

}  // namespace

Expected<std::vector<int64_t>> parse_cut_layers(std::string_view text, int64_t layers) {
  std::vector<int64_t> list;
  const bool is_list = text.find(',') != std::string_view::npos;
  for (std::string_view rest = text;;) {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string_view word = rest.substr(0, end);
    int64_t number = -1;
    const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const int64_t least = is_list ? 0 : 1;
    if (error != std::errc() || last != word.data() + word.size() || number < least ||
        number > layers - 1 + least) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("'{}' is no {} of a model with {}; write \"0,1,{}\" for these "
                                "layers or \"2\" for the first two",
                                word.substr(0, 40), is_list ? "layer" : "number of layers", layers,
                                layers - 1));
    }
    list.push_back(number);
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  if (is_list) return list;
  const int64_t count = list.front();
  list.clear();
  for (int64_t layer = 0; layer < count; ++layer) list.push_back(layer);
  return list;
}

Expected<LlamaShape> llama_shape(const Target& target) {
  if (const std::string_view what = peculiarity(target); !what.empty()) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: the model has {}; whole models are trained here only where they "
                              "are plain Llamas",
                              target.path(), what));
  }
  const ModelConfig& config = target.config();
  LlamaShape shape;
  shape.layer.hidden = config.hidden;
  shape.layer.heads = config.heads;
  shape.layer.kv_heads = config.kv_heads;
  shape.layer.head_dim = config.head_dim;
  shape.layer.intermediate = config.ffn;
  shape.layer.norm_eps = target.norm_eps();
  shape.layers = config.layers;
  shape.vocab = config.vocab;
  shape.rope_base = target.rope_base();
  shape.tied = target.source().file->find_tensor("output.weight") == nullptr;
  return shape;
}

LlamaModel LlamaModel::create(Parameters& parameters, const LlamaShape& shape,
                              const at::Device& device, at::Generator& generator) {
  LlamaModel model;
  model.shape_ = shape;
  const int64_t hidden = shape.layer.hidden;
  model.embedding_ =
      parameters.add(kEmbedding, random_matrix(shape.vocab, hidden, generator).to(device));
  for (int64_t i = 0; i < shape.layers; ++i) {
    model.layers_.push_back(
        LlamaLayer::create(parameters, layer_name(i), shape.layer, true, device, generator));
  }
  model.norm_ = parameters.add(kNorm, at::ones({hidden}, device));
  model.head_ =
      shape.tied ? model.embedding_
                 : parameters.add(kHead, random_matrix(shape.vocab, hidden, generator).to(device));
  return model;
}

Expected<LlamaModel> LlamaModel::cut(Parameters& parameters, Target& target, const LlamaCut& cut) {
  LlamaModel model;
  AERIE_ASSIGN_OR_RETURN(model.shape_, llama_shape(target));
  AERIE_RETURN_IF_ERROR(check_cut(cut, target));
  LlamaShape& shape = model.shape_;
  const int64_t hidden = shape.layer.hidden;
  const std::array<int64_t, 2> sizes = {shape.vocab, hidden};
  const bool own_head = !shape.tied;
  shape.tied = shape.tied || cut.tied;
  shape.layers = static_cast<int64_t>(cut.layers.size());
  shape.vocab = (cut.tokens.defined() ? cut.tokens.numel() : shape.vocab) + cut.extra_rows;
  Cutter cutter(parameters, target);
  AERIE_RETURN_IF_ERROR(
      cutter.take_rows(own_head && cut.tied ? "output.weight" : "token_embd.weight", sizes, cut,
                       kEmbedding, model.embedding_));
  for (int64_t i = 0; i < shape.layers; ++i) {
    AERIE_ASSIGN_OR_RETURN(LlamaLayer layer,
                           cutter.take_layer(cut.layers[static_cast<size_t>(i)], i, shape.layer));
    model.layers_.push_back(std::move(layer));
  }
  AERIE_RETURN_IF_ERROR(cutter.take("output_norm.weight", {hidden}, kNorm, model.norm_));
  model.head_ = model.embedding_;
  if (!shape.tied) {
    AERIE_RETURN_IF_ERROR(cutter.take_rows("output.weight", sizes, cut, kHead, model.head_));
  }
  return model;
}

LlamaModel LlamaModel::with_matrices(const MatrixChange& change) const {
  LlamaModel model = *this;
  for (size_t i = 0; i < model.layers_.size(); ++i) {
    LlamaLayer& layer = model.layers_[i];
    const std::pair<const char*, at::Tensor*> matrices[] = {
        {"attn_q", &layer.q},      {"attn_k", &layer.k},      {"attn_v", &layer.v},
        {"attn_output", &layer.o}, {"ffn_gate", &layer.gate}, {"ffn_up", &layer.up},
        {"ffn_down", &layer.down}};
    for (const auto& [name, matrix] : matrices) {
      *matrix = change(fmt::format("blk.{}.{}.weight", i, name), *matrix);
    }
  }
  return model;
}

std::map<std::string, at::Tensor> LlamaModel::weights() const {
  std::map<std::string, at::Tensor> all;
  with_matrices(
      [&all](const std::string& name, const at::Tensor& value) { return all[name] = value; });
  for (size_t i = 0; i < layers_.size(); ++i) {
    all[fmt::format("blk.{}.attn_norm.weight", i)] = layers_[i].input_norm;
    all[fmt::format("blk.{}.ffn_norm.weight", i)] = layers_[i].post_attention_norm;
  }
  all["token_embd.weight"] = embedding_;
  all["output_norm.weight"] = norm_;
  if (!shape_.tied) all["output.weight"] = head_;
  return all;
}

std::vector<at::Tensor> LlamaModel::forward(const at::Tensor& tokens, const at::Tensor& positions,
                                            const Documents& documents,
                                            const at::Tensor& shares) const {
  const Rotary rotary = make_rotary(positions, shape_.layer.head_dim, shape_.rope_base);
  std::vector<at::Tensor> streams = {at::embedding(embedding_, tokens)};
  for (size_t i = 0; i < layers_.size(); ++i) {
    const at::Tensor& x = streams.back();
    at::Tensor y = layers_[i].forward(x, rotary, documents);
    if (shares.defined()) {
      y = at::lerp(x, y, shares[static_cast<int64_t>(i)].unsqueeze(1));
    }
    streams.push_back(std::move(y));
  }
  return streams;
}

at::Tensor LlamaModel::logits(const at::Tensor& stream) const {
  return at::linear(rms_norm(stream, norm_, shape_.layer.norm_eps), head_);
}

}  // namespace aerie::train
