#include "measure/models/shapes.h"

#include <initializer_list>

#include "base/errors.h"

namespace aerie::measure {
namespace {

// From the models' config.json. Llama 3.1's and 3.2's stretched rotary frequencies are left out:
// they are as many as the plain ones.
constexpr LinearAttention linear_of(int key_heads, int heads, bool tiled) {
  return {heads, key_heads, 128, 128, 4, tiled};
}

// Qwen3.5: heads of 256, of which 64 dimensions turn.
constexpr ModelShape qwen35(std::string_view name, int layers, int hidden, int ffn, int heads,
                            int kv_heads, int linear_heads, bool tied) {
  return {.name = name,
          .layers = layers,
          .hidden = hidden,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = 256,
          .vocab = 248320,
          .context = 262144,
          .rope_base = 1e7,
          .tied = tied,
          .listed = true,
          .architecture = "qwen35",
          .query_norm = 256,
          .key_norm = 256,
          .linear = linear_of(16, linear_heads, true),
          .rope_dimensions = 64};
}

// The same with experts of 512 in the place of the feed-forward, and one that every row uses.
constexpr ModelShape with_experts(ModelShape shape, std::string_view architecture, int experts,
                                  int used_experts) {
  shape.architecture = architecture;
  shape.experts = experts;
  shape.used_experts = used_experts;
  shape.expert_ffn = shape.shared_ffn = 512;
  return shape;
}

// Its vocabulary is older, and its heads in another order.
constexpr ModelShape qwen3_next() {
  ModelShape shape = with_experts(qwen35("qwen3-next-80b-a3b", 48, 2048, 5632, 16, 2, 32, false),
                                  "qwen3next", 512, 10);
  shape.vocab = 151936;
  shape.linear.tiled = false;
  return shape;
}

constexpr ModelShape tiny_hybrid() {
  ModelShape shape =
      with_experts(qwen35("tiny-hybrid", 4, 256, 512, 4, 2, 4, true), "qwen35moe", 8, 2);
  shape.vocab = 320;
  shape.context = 1024;
  shape.listed = false;
  shape.head_dim = shape.query_norm = shape.key_norm = shape.rope_dimensions = 64;
  shape.expert_ffn = shape.shared_ffn = 256;
  shape.linear = {4, 2, 64, 64, 4, true};
  return shape;
}

constexpr uint64_t layers_of(std::initializer_list<int> layers) {
  uint64_t bits = 0;
  for (const int layer : layers) bits |= uint64_t{1} << layer;
  return bits;
}

constexpr ModelShape lfm2(std::string_view name, int hidden, int ffn, int heads, int kv_heads,
                          int vocab, bool listed) {
  return {.name = name,
          .layers = 16,
          .hidden = hidden,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = 64,
          .vocab = vocab,
          .context = listed ? 128000 : 1024,
          .rope_base = 1e6,
          .tied = true,
          .listed = listed,
          .architecture = "lfm2",
          .query_norm = 64,
          .key_norm = 64,
          .linear = {.taps = 3, .kind = LinearKind::kShortConv, .plain = hidden},
          .attention_layers = layers_of({2, 5, 8, 10, 12, 14})};
}

// Granite-4.0-H-Tiny; its factors are left out.
constexpr ModelShape granite_hybrid() {
  return {.name = "granite-4.0-h-tiny",
          .layers = 40,
          .hidden = 1536,
          .ffn = 512,
          .heads = 12,
          .kv_heads = 4,
          .head_dim = 128,
          .vocab = 100352,
          .context = 131072,
          .rope_base = 1e4,
          .tied = true,
          .listed = true,
          .architecture = "granitehybrid",
          .experts = 64,
          .used_experts = 6,
          .expert_ffn = 512,
          .shared_ffn = 1024,
          .linear = {48, 1, 128, 64, 4, false, LinearKind::kStateSpace},
          .attention_layers = layers_of({5, 15, 25, 35})};
}

constexpr ModelShape tiny_granite_hybrid() {
  ModelShape shape = granite_hybrid();
  shape.name = "tiny-granite-hybrid";
  shape.layers = 3;
  shape.hidden = 256;
  shape.heads = shape.kv_heads = 2;
  shape.vocab = 320;
  shape.context = 1024;
  shape.listed = false;
  shape.experts = 8;
  shape.used_experts = 2;
  shape.expert_ffn = shape.shared_ffn = 256;
  shape.linear = {8, 1, 32, 64, 4, false, LinearKind::kStateSpace};
  shape.attention_layers = layers_of({1});
  return shape;
}

// What its models have in common; YaRN's stretched frequencies are left out.
constexpr ModelShape latent(std::string_view name, int layers, int hidden, int ffn, int heads,
                            LatentAttention attention) {
  return {.name = name,
          .layers = layers,
          .hidden = hidden,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = 1,
          .head_dim = attention.rank + attention.rope,
          .vocab = 320,
          .context = 1024,
          .rope_base = 1e4,
          .tied = false,
          .listed = false,
          .architecture = "deepseek2",
          .latent = attention,
          .dense_layers = 1};
}

// Experts and how many are used, how wide one is, and how many are used by every row.
constexpr ModelShape with_experts_of(ModelShape shape, int experts, int used, int ffn, int shared) {
  shape.experts = experts;
  shape.used_experts = used;
  shape.expert_ffn = ffn;
  shape.shared_experts = shared;
  shape.shared_ffn = shared * ffn;
  return shape;
}

constexpr ModelShape published(ModelShape shape, int vocab, int context, double rope_base) {
  shape.vocab = vocab;
  shape.context = context;
  shape.rope_base = rope_base;
  shape.listed = true;
  return shape;
}

constexpr ModelShape deepseek2_lite() {
  constexpr LatentAttention kAttention = {512, 0, 128, 64, 128};
  return published(
      with_experts_of(latent("deepseek-v2-lite", 27, 2048, 10944, 16, kAttention), 64, 6, 1408, 2),
      102400, 163840, 1e4);
}

constexpr ModelShape glm_flash() {
  constexpr LatentAttention kAttention = {512, 768, 192, 64, 256};
  ModelShape shape = published(
      with_experts_of(latent("glm-4.7-flash", 47, 2048, 10240, 20, kAttention), 64, 4, 1536, 1),
      154880, 202752, 1e6);
  shape.router_scale = 1.8;
  shape.sigmoid_router = true;
  return shape;
}

constexpr ModelShape deepseek3() {
  constexpr LatentAttention kAttention = {512, 1536, 128, 64, 128};
  ModelShape shape = published(
      with_experts_of(latent("deepseek-v3", 61, 7168, 18432, 128, kAttention), 256, 8, 2048, 1),
      129280, 163840, 1e4);
  shape.dense_layers = 3;
  shape.expert_groups = 8;
  shape.used_groups = 4;
  shape.router_scale = 2.5;
  shape.sigmoid_router = true;
  return shape;
}

constexpr ModelShape tiny_latent(std::string_view name, bool is_third) {
  const LatentAttention attention = {64, is_third ? 96 : 0, 32, 32, 64};
  ModelShape shape = with_experts_of(latent(name, 3, 256, 512, 2, attention), 8, 3, 64, 2);
  if (!is_third) return shape;
  shape.expert_groups = 4;
  shape.used_groups = 2;
  shape.router_scale = 2.5;
  shape.sigmoid_router = true;
  return shape;
}

constexpr ModelShape kShapes[] = {
    {"smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, true, true},
    {"smollm2-360m", 32, 960, 2560, 15, 5, 64, 49152, 8192, 1e5, true, true},
    {"smollm2-1.7b", 24, 2048, 8192, 32, 32, 64, 49152, 8192, 1.3e5, true, true},
    {"tinyllama-1.1b", 22, 2048, 5632, 32, 4, 64, 32000, 2048, 1e4, false, true},
    {"llama-1b", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, true, true},
    {"llama-3b", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5, true, true},
    {"llama-8b", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, false, true},
    {"mixtral-8x7b", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 1e6, false, true, "llama", 8, 2,
     14336},
    {"olmoe-7b", 16, 2048, 1024, 16, 16, 128, 50304, 4096, 1e4, false, true, "olmoe", 64, 8, 1024,
     2048, 2048},
    {"qwen3-30b-a3b", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 1e6, false, true, "qwen3moe", 128,
     8, 768, 128, 128},
    qwen35("qwen3.5-0.8b", 24, 1024, 3584, 8, 2, 16, true),
    qwen35("qwen3.5-4b", 32, 2560, 9216, 16, 4, 32, true),
    qwen35("qwen3.5-9b", 32, 4096, 12288, 16, 4, 32, false),
    with_experts(qwen35("qwen3.5-35b-a3b", 40, 2048, 512, 16, 2, 32, false), "qwen35moe", 256, 8),
    qwen3_next(),
    tiny_hybrid(),
    lfm2("lfm2-1.2b", 2048, 8192, 32, 8, 65536, true),
    lfm2("tiny-lfm2", 256, 512, 4, 2, 320, false),
    granite_hybrid(),
    tiny_granite_hybrid(),
    deepseek2_lite(),
    glm_flash(),
    deepseek3(),
    tiny_latent("tiny-latent", false),
    tiny_latent("tiny-latent-groups", true),
    {"gpt-oss-20b", 24, 2880, 2880, 64, 8, 64, 201088, 131072, 1.5e5, false, true, "gpt-oss", 32, 4,
     2880},
    {"gpt-oss-120b", 36, 2880, 2880, 64, 8, 64, 201088, 131072, 1.5e5, false, true, "gpt-oss", 128,
     4, 2880},
    {"tiny-gpt-oss", 2, 256, 256, 4, 2, 64, 320, 8192, 1.5e5, false, false, "gpt-oss", 8, 2, 256},
    {"tiny-experts", 2, 256, 512, 4, 2, 64, 320, 1024, 1e4, true, false, "qwen3moe", 8, 2, 256, 64,
     64},
    {"tiny", 2, 256, 512, 4, 2, 64, 320, 1024, 1e4, true, false},
    // Blocks of 256 fit none of its rows but those of the last matrix of a layer.
    {"tiny-odd", 2, 96, 256, 3, 1, 32, 320, 1024, 1e4, false, false},
};

}  // namespace

Expected<ModelShape> find_shape(std::string_view name) {
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
  }
  return invalid_argument("there is no shape '{}': give one of {}", name, shape_names());
}

std::string shape_names() {
  std::string names;
  for (const ModelShape& shape : kShapes) {
    if (!shape.listed) continue;
    if (!names.empty()) names += ", ";
    names += shape.name;
  }
  return names;
}

}  // namespace aerie::measure
