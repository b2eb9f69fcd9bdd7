#include "measure/models/make_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/system/topology.h"
#include "base/thread_pool.h"
#include "format/gguf/gguf_types.h"
#include "format/gguf/gguf_write.h"
#include "format/gguf/metadata_builder.h"
#include "measure/models/random_weights.h"
#include "tokenizer/load/gguf_metadata.h"
#include "tokenizer/pieces/byte_alphabet.h"
#include "tokenizer/vocabulary.h"

namespace aerie::measure {
namespace {

constexpr float kNormEps = 1e-5f;
// The norm before attention in a model with experts. With random weights attention gives all rows
// about the same, so that, unless it gives little, they would all choose the same experts.
constexpr float kAttentionWithExperts = 1.0f / 32.0f;

constexpr std::string_view kRates = "ssm_a";

GgufTokenizerMetadata byte_tokenizer() {
  GgufTokenizerMetadata words;
  words.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    append_byte_name(static_cast<uint8_t>(byte), words.tokens.emplace_back());
    words.types.push_back(static_cast<int64_t>(TokenType::kNormal));
  }
  for (const char* name : {"<|begin|>", "<|end|>"}) {
    words.tokens.emplace_back(name);
    words.types.push_back(static_cast<int64_t>(TokenType::kControl));
  }
  words.bos = 256;
  words.eos = 257;
  words.add_bos = false;
  return words;
}

// Made as it is read: nothing but names and sizes is kept.
class RandomModel final : public ModelFile {
 public:
  static Expected<std::unique_ptr<RandomModel>> create(const MakeModelOptions& options,
                                                       ThreadPool& pool);

  std::string format() const override { return "random weights"; }
  int64_t file_bytes() const override { return 0; }
  std::vector<std::string> notes() const;

 private:
  RandomModel(const ModelShape& shape, const MakeModelOptions& options, ThreadPool& pool)
      : ModelFile(fmt::format("{}, random {} weights, seed {}", shape.name,
                              dtype_info(options.type).name, options.seed)),
        shape_(shape),
        type_(options.type),
        seed_(options.seed),
        pool_(pool) {}

  Status add_metadata();
  void add_tensors();
  void add_matrix(const std::string& name, int64_t k, int64_t n, int64_t stack = 1);
  void add_norm(const std::string& name, int64_t width);
  void add_bias(const std::string& name, int64_t width, int64_t stack = 1);
  void add_latent_metadata();
  void add_attention(const std::string& layer);
  void add_latent_attention(const std::string& layer);
  void add_linear_attention(const std::string& layer);
  void add_delta_rule(const std::string& layer);
  void add_layer_kinds();
  void add_attention_of_gpt_oss(const std::string& layer);
  DType type_of(std::string_view name, int64_t k) const;
  void add_experts(const std::string& layer);
  void add_tensor(const std::string& name, DType type, int64_t k, int64_t n, int64_t stack = 1);
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override;

  ModelShape shape_;
  DType type_;
  uint64_t seed_;
  ThreadPool& pool_;
  MetadataBuilder metadata_;
  std::deque<std::string> names_;
  std::vector<TensorInfo> tensors_;
  std::map<DType, RandomWeights> weights_;
  struct Others {
    int tensors = 0;
    int64_t k = 0;
  };
  std::map<DType, Others> others_;  // tensors that could not have type_, by the type they have
};

Expected<std::unique_ptr<RandomModel>> RandomModel::create(const MakeModelOptions& options,
                                                           ThreadPool& pool) {
  AERIE_ASSIGN_OR_RETURN(ModelShape shape, find_shape(options.shape));
  if (options.layers > shape.layers || options.layers < 0) {
    return invalid_argument("{} layers of {}, which has {}", options.layers, shape.name,
                            shape.layers);
  }
  if (options.layers > 0) shape.layers = options.layers;
  std::unique_ptr<RandomModel> model(new RandomModel(shape, options, pool));
  AERIE_RETURN_IF_ERROR(model->add_metadata());
  model->add_tensors();
  model->set_contents(model->metadata_.release(), std::move(model->tensors_));
  return model;
}

Status RandomModel::add_metadata() {
  const std::string architecture = std::string(shape_.architecture) + ".";
  const auto number = [&](const char* key, int value) {
    metadata_.add_u32(architecture + key, static_cast<uint32_t>(value));
  };
  metadata_.add_string("general.architecture", std::string(shape_.architecture));
  metadata_.add_string("general.name", name());
  metadata_.add_u32("general.quantization_version", 2);
  number("block_count", shape_.layers);
  number("context_length", shape_.context);
  number("embedding_length", shape_.hidden);
  number("feed_forward_length", shape_.ffn);
  number("attention.head_count", shape_.heads);
  number("attention.head_count_kv", shape_.kv_heads);
  add_layer_kinds();
  number("attention.key_length", shape_.head_dim);
  number("attention.value_length", shape_.is_latent() ? shape_.latent.rank : shape_.head_dim);
  const int turning = shape_.is_latent() ? shape_.latent.rope : shape_.rope_dimensions;
  number("rope.dimension_count", turning > 0 ? turning : shape_.head_dim);
  number("vocab_size", shape_.vocab);
  if (shape_.experts > 0) {
    number("expert_count", shape_.experts);
    number("expert_used_count", shape_.used_experts);
    number("expert_feed_forward_length", shape_.expert_ffn);
    if (shape_.is_latent()) add_latent_metadata();
    if (shape_.shared_ffn > 0 && !shape_.is_latent()) {
      number("expert_shared_feed_forward_length", shape_.shared_ffn);
    }
  }
  if (shape_.is_hybrid() || shape_.is_state_space()) {
    const LinearAttention& linear = shape_.linear;
    if (shape_.is_hybrid()) number("full_attention_interval", 4);
    number("ssm.conv_kernel", linear.taps);
    number("ssm.state_size", linear.key_dim);
    number("ssm.group_count", linear.key_heads);
    number("ssm.time_step_rank", linear.heads);
    number("ssm.inner_size", linear.v_width());
    // Of positions in pictures; a text does not tell them apart.
    if (linear.tiled) metadata_.add_i32s(architecture + "rope.dimension_sections", {11, 11, 10, 0});
  }
  metadata_.add_f32(architecture + "attention.layer_norm_rms_epsilon", kNormEps);
  metadata_.add_f32(architecture + "rope.freq_base", static_cast<float>(shape_.rope_base));
  if (shape_.is_gpt_oss()) {
    constexpr int kTrainedContext = 4096;
    number("attention.sliding_window", 128);
    metadata_.add_string(architecture + "rope.scaling.type", "yarn");
    metadata_.add_f32(architecture + "rope.scaling.factor",
                      static_cast<float>(shape_.context) / kTrainedContext);
    number("rope.scaling.original_context_length", kTrainedContext);
  }
  GgufTokenizerMetadata words = byte_tokenizer();
  AERIE_RETURN_IF_ERROR(fit_tokens(shape_.vocab, words));
  add_tokenizer(words, metadata_);
  return {};
}

void RandomModel::add_latent_metadata() {
  constexpr int kSoftmax = 1, kSigmoid = 2;
  const std::string architecture = std::string(shape_.architecture) + ".";
  const auto number = [&](const char* key, int value) {
    metadata_.add_u32(architecture + key, static_cast<uint32_t>(value));
  };
  const LatentAttention& latent = shape_.latent;
  number("attention.kv_lora_rank", latent.rank);
  if (latent.query_rank > 0) number("attention.q_lora_rank", latent.query_rank);
  number("attention.key_length_mla", latent.query_dim());
  number("attention.value_length_mla", latent.value_dim);
  number("leading_dense_block_count", shape_.dense_layers);
  number("expert_shared_count", shape_.shared_experts);
  number("expert_gating_func", shape_.sigmoid_router ? kSigmoid : kSoftmax);
  number("expert_group_count", shape_.expert_groups);
  number("expert_group_used_count", shape_.used_groups);
  metadata_.add_bool(architecture + "expert_weights_norm", shape_.sigmoid_router);
  metadata_.add_f32(architecture + "expert_weights_scale", static_cast<float>(shape_.router_scale));
}

void RandomModel::add_layer_kinds() {
  if (!shape_.is_lfm2() && !shape_.is_state_space()) return;
  const std::string architecture = std::string(shape_.architecture) + ".";
  std::vector<int32_t> heads;
  for (int i = 0; i < shape_.layers; ++i) {
    heads.push_back(shape_.is_linear(i) ? 0 : shape_.kv_heads);
  }
  metadata_.add_i32s(architecture + "attention.head_count_kv", heads);
  if (shape_.is_state_space()) {
    metadata_.add_bool(architecture + "rope.scaling.finetuned", false);
  } else {
    metadata_.add_u32(architecture + "shortconv.l_cache",
                      static_cast<uint32_t>(shape_.linear.taps));
  }
}

void RandomModel::add_tensors() {
  const int64_t hidden = shape_.hidden, ffn = shape_.ffn;
  const bool renamed = shape_.is_gpt_oss() || shape_.is_hybrid();
  add_matrix("token_embd.weight", hidden, shape_.vocab);
  for (int i = 0; i < shape_.layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    add_norm(layer + "attn_norm.weight", hidden);
    if (shape_.is_latent()) {
      add_latent_attention(layer);
    } else {
      shape_.is_linear(i) ? add_linear_attention(layer) : add_attention(layer);
    }
    add_norm(layer + (renamed ? "post_attention_norm" : "ffn_norm") + ".weight", hidden);
    if (shape_.has_experts(i)) {
      add_experts(layer);
      continue;
    }
    add_matrix(layer + "ffn_gate.weight", hidden, ffn);
    add_matrix(layer + "ffn_up.weight", hidden, ffn);
    add_matrix(layer + "ffn_down.weight", ffn, hidden);
  }
  add_norm(shape_.is_lfm2() ? "token_embd_norm.weight" : "output_norm.weight", hidden);
  if (!shape_.tied) add_matrix("output.weight", hidden, shape_.vocab);
}

void RandomModel::add_attention(const std::string& layer) {
  const int64_t hidden = shape_.hidden;
  const int64_t q = int64_t{shape_.heads} * shape_.head_dim;
  const int64_t kv = int64_t{shape_.kv_heads} * shape_.head_dim;
  if (shape_.query_norm > 0) add_norm(layer + "attn_q_norm.weight", shape_.query_norm);
  if (shape_.key_norm > 0) add_norm(layer + "attn_k_norm.weight", shape_.key_norm);
  add_matrix(layer + "attn_q.weight", hidden, shape_.is_hybrid() ? 2 * q : q);
  add_matrix(layer + "attn_k.weight", hidden, kv);
  add_matrix(layer + "attn_v.weight", hidden, kv);
  add_matrix(layer + "attn_output.weight", q, hidden);
  if (shape_.is_gpt_oss()) add_attention_of_gpt_oss(layer);
}

void RandomModel::add_latent_attention(const std::string& layer) {
  const LatentAttention& latent = shape_.latent;
  const int64_t hidden = shape_.hidden, heads = shape_.heads;
  const int64_t queries = heads * latent.query_dim();
  if (latent.query_rank > 0) {
    add_matrix(layer + "attn_q_a.weight", hidden, latent.query_rank);
    add_norm(layer + "attn_q_a_norm.weight", latent.query_rank);
    add_matrix(layer + "attn_q_b.weight", latent.query_rank, queries);
  } else {
    add_matrix(layer + "attn_q.weight", hidden, queries);
  }
  add_matrix(layer + "attn_kv_a_mqa.weight", hidden, shape_.head_dim);
  add_norm(layer + "attn_kv_a_norm.weight", latent.rank);
  add_matrix(layer + "attn_k_b.weight", latent.plain, latent.rank, heads);
  add_matrix(layer + "attn_v_b.weight", latent.rank, latent.value_dim, heads);
  add_matrix(layer + "attn_output.weight", heads * latent.value_dim, hidden);
}

void RandomModel::add_linear_attention(const std::string& layer) {
  const LinearAttention& linear = shape_.linear;
  const int64_t hidden = shape_.hidden, values = linear.v_width();
  if (shape_.is_hybrid()) return add_delta_rule(layer);
  if (shape_.is_lfm2()) {
    add_matrix(layer + "shortconv.in_proj.weight", hidden, 3 * hidden);
    add_tensor(layer + "shortconv.conv.weight", DType::kF32, linear.taps, hidden);
    add_matrix(layer + "shortconv.out_proj.weight", hidden, hidden);
    return;
  }
  add_matrix(layer + "ssm_in.weight", hidden, values + linear.channels() + linear.heads);
  add_tensor(layer + "ssm_conv1d.weight", DType::kF32, linear.taps, linear.channels());
  add_bias(layer + "ssm_conv1d.bias", linear.channels());
  add_tensor(layer + std::string(kRates), DType::kF32, 1, linear.heads);
  add_tensor(layer + "ssm_d", DType::kF32, 1, linear.heads);
  add_bias(layer + "ssm_dt.bias", linear.heads);
  add_norm(layer + "ssm_norm.weight", values);
  add_matrix(layer + "ssm_out.weight", values, hidden);
}

void RandomModel::add_delta_rule(const std::string& layer) {
  const LinearAttention& linear = shape_.linear;
  const int64_t hidden = shape_.hidden, heads = linear.heads;
  add_matrix(layer + "attn_qkv.weight", hidden, linear.channels());
  add_matrix(layer + "attn_gate.weight", hidden, linear.v_width());
  if (linear.tiled) {
    add_tensor(layer + "ssm_beta.weight", DType::kF32, hidden, heads);
    add_tensor(layer + "ssm_alpha.weight", DType::kF32, hidden, heads);
  } else {
    add_tensor(layer + "ssm_ba.weight", DType::kF32, hidden, 2 * heads);
  }
  add_tensor(layer + "ssm_conv1d.weight", DType::kF32, linear.taps, linear.channels());
  add_tensor(layer + std::string(kRates), DType::kF32, heads, 1);
  add_bias(layer + "ssm_dt.bias", heads);
  add_norm(layer + "ssm_norm.weight", linear.value_dim);
  add_matrix(layer + "ssm_out.weight", linear.v_width(), hidden);
}

void RandomModel::add_attention_of_gpt_oss(const std::string& layer) {
  const int64_t q = int64_t{shape_.heads} * shape_.head_dim;
  const int64_t kv = int64_t{shape_.kv_heads} * shape_.head_dim;
  add_bias(layer + "attn_q.bias", q);
  add_bias(layer + "attn_k.bias", kv);
  add_bias(layer + "attn_v.bias", kv);
  add_bias(layer + "attn_output.bias", shape_.hidden);
  add_bias(layer + "attn_sinks.weight", shape_.heads);
}

// gpt-oss is published with experts in MXFP4 and the rest in more bits.
DType RandomModel::type_of(std::string_view name, int64_t k) const {
  const bool others = shape_.is_gpt_oss() && type_ == DType::kMXFP4 &&
                      name.find("_exps.") == std::string_view::npos;
  return matrix_type(others ? DType::kQ8_0 : type_, k);
}

void RandomModel::add_matrix(const std::string& name, int64_t k, int64_t n, int64_t stack) {
  const DType type = type_of(name, k);
  if (k % dtype_info(type_).block_elements != 0) {
    ++others_[type].tensors;
    others_[type].k = k;
  }
  add_tensor(name, type, k, n, stack);
}

void RandomModel::add_norm(const std::string& name, int64_t width) {
  add_tensor(name, DType::kF32, width, 1);
}

void RandomModel::add_bias(const std::string& name, int64_t width, int64_t stack) {
  add_tensor(name, DType::kF32, width, stack);
}

void RandomModel::add_experts(const std::string& layer) {
  const int64_t hidden = shape_.hidden, ffn = shape_.expert_ffn;
  add_tensor(layer + "ffn_gate_inp.weight", DType::kF32, hidden, shape_.experts);
  add_matrix(layer + "ffn_gate_exps.weight", hidden, ffn, shape_.experts);
  add_matrix(layer + "ffn_up_exps.weight", hidden, ffn, shape_.experts);
  add_matrix(layer + "ffn_down_exps.weight", ffn, hidden, shape_.experts);
  if (shape_.sigmoid_router) add_bias(layer + "exp_probs_b.bias", shape_.experts);
  if (const int64_t shared = shape_.shared_ffn; shared > 0) {
    if (!shape_.is_state_space() && !shape_.is_latent()) {
      add_tensor(layer + "ffn_gate_inp_shexp.weight", DType::kF32, hidden, 1);
    }
    add_matrix(layer + "ffn_gate_shexp.weight", hidden, shared);
    add_matrix(layer + "ffn_up_shexp.weight", hidden, shared);
    add_matrix(layer + "ffn_down_shexp.weight", shared, hidden);
  }
  if (!shape_.is_gpt_oss()) return;
  add_bias(layer + "ffn_gate_inp.bias", shape_.experts);
  add_bias(layer + "ffn_gate_exps.bias", ffn, shape_.experts);
  add_bias(layer + "ffn_up_exps.bias", ffn, shape_.experts);
  add_bias(layer + "ffn_down_exps.bias", hidden, shape_.experts);
}

void RandomModel::add_tensor(const std::string& name, DType type, int64_t k, int64_t n,
                             int64_t stack) {
  const GgmlType& ggml = ggml_type_of(type);
  TensorInfo tensor;
  tensor.name = names_.emplace_back(name);
  tensor.type_name = ggml.name;
  tensor.type_id = ggml.id;
  tensor.shape = {k, n, stack, 1};
  tensor.bytes = dtype_bytes(type, k) * n * stack;
  tensor.dtype = type;
  tensors_.push_back(tensor);
  weights_.try_emplace(type, type);
}

Expected<TensorData> RandomModel::read_tensor(const TensorInfo& tensor) const {
  TensorData data;
  AERIE_ASSIGN_OR_RETURN(data.owned, Buffer::allocate(static_cast<size_t>(tensor.bytes)));
  data.view = {*tensor.dtype, Device::kCpu, tensor.shape, data.owned.data()};
  if (tensor.shape[1] == 1 || tensor.shape[0] == 1) {
    const bool is_norm = tensor.name.ends_with("norm.weight");
    // Latents have a norm of their own, behind which it does not matter how small they were.
    const bool before_attention =
        tensor.name.ends_with(shape_.is_latent() ? "attn_kv_a_norm.weight" : "attn_norm.weight");
    const float weight = shape_.experts > 0 && before_attention ? kAttentionWithExperts : 1.0f;
    // States halve with every row.
    const float rest = tensor.name.ends_with(kRates) ? -1.0f : 0.0f;
    std::ranges::fill(data.owned.as<float>(), is_norm ? weight : rest);
    return data;
  }
  const RandomWeights& weights = weights_.at(*tensor.dtype);
  const auto index = static_cast<uint64_t>(find_tensor(tensor.name) - tensors().data());
  pool_.parallel_for(data.view.rows(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      weights.fill({seed_, index, static_cast<uint64_t>(row)}, tensor.shape[0],
                   data.owned.data() + row * data.view.row_bytes());
    }
  });
  return data;
}

std::vector<std::string> RandomModel::notes() const {
  std::vector<std::string> notes;
  for (const auto& [type, others] : others_) {
    notes.push_back(
        fmt::format("{} matrices are {}: their rows of {} are no multiple of the {} of "
                    "a block of {}",
                    others.tensors, dtype_info(type).name, others.k,
                    dtype_info(type_).block_elements, dtype_info(type_).name));
  }
  return notes;
}

}  // namespace

DType matrix_type(DType type, int64_t k) {
  if (k % dtype_info(type).block_elements == 0) return type;
  switch (type) {
    case DType::kQ4_K:
      return matrix_type(DType::kQ5_0, k);
    case DType::kQ5_K:
      return matrix_type(DType::kQ5_1, k);
    case DType::kQ6_K:
      return matrix_type(DType::kQ8_0, k);
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kIQ4_XS:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return matrix_type(DType::kIQ4_NL, k);
    default:
      return DType::kF16;
  }
}

Expected<std::unique_ptr<ModelFile>> random_model(const MakeModelOptions& options,
                                                  ThreadPool& pool) {
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<RandomModel> model, RandomModel::create(options, pool));
  for (const std::string& note : model->notes()) log(LogLevel::kInfo, note);
  return std::unique_ptr<ModelFile>(std::move(model));
}

Expected<MakeModelReport> make_model(const MakeModelOptions& options) {
  ThreadPool pool(options.threads > 0 ? options.threads : default_threads());
  AERIE_ASSIGN_OR_RETURN(const auto model, RandomModel::create(options, pool));
  AERIE_RETURN_IF_ERROR(write_gguf(*model, options.output));
  std::error_code ignored;
  MakeModelReport report;
  report.bytes = static_cast<int64_t>(std::filesystem::file_size(options.output, ignored));
  report.notes = model->notes();
  return report;
}

}  // namespace aerie::measure
