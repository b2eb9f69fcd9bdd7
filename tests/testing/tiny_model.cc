#include "tests/testing/tiny_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <random>

namespace aerie::test {
namespace {

// std::uniform_real_distribution differs between standard libraries.
float uniform(std::mt19937_64& random) {
  return static_cast<float>(static_cast<double>(random() >> 11) * 0x1.0p-52 - 1.0);
}

std::vector<float> random_floats(std::mt19937_64& random, int64_t count, double deviation) {
  // A uniform in (-1, 1) has the standard deviation 1 / sqrt(3).
  const auto scale = static_cast<float>(deviation * std::sqrt(3.0));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random) * scale;
  return values;
}

// GPT-2's spelling of bytes: printable Latin-1 as it is, the others as U+0100 onwards.
std::string byte_name(int byte, int& others) {
  const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                         (byte >= 0xAE && byte <= 0xFF);
  const int code = printable ? byte : 256 + others++;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

void add_tokenizer(GgufWriter& writer, const TinySpec& spec) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types(256, 1);
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_name(byte, others));
  tokens.insert(tokens.end(), {"<|endoftext|>", "<|im_start|>", spec.turn_end});
  for (int i = kByteVocab; i < spec.vocab; ++i) tokens.push_back(fmt::format("<|reserved_{}|>", i));
  types.resize(tokens.size(), 3);
  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", "gpt-2");
  writer.add_array("tokenizer.ggml.tokens", tokens);
  writer.add_array("tokenizer.ggml.token_type", types);
  writer.add_array("tokenizer.ggml.merges", std::vector<std::string>());
  writer.add_u32("tokenizer.ggml.bos_token_id", kTurnStart);
  writer.add_u32("tokenizer.ggml.eos_token_id", kTurnEnd);
  writer.add_string("tokenizer.chat_template", kChatMl);
}

// Adds what the spec does not leave out. Left-out tensors draw their numbers too, so that the
// others stay as they are.
class Adder {
 public:
  Adder(const TinySpec& spec, GgufWriter& writer)
      : spec_(spec), writer_(writer), random_(spec.seed) {}

  void integer(const std::string& key, int value) {
    if (!omitted(key)) writer_.add_u32(key, static_cast<uint32_t>(value));
  }
  void matrix(const std::string& name, int k, int n, double deviation) {
    const std::vector<float> values = random_floats(random_, int64_t{k} * n, deviation);
    if (!omitted(name)) writer_.add_tensor(name, spec_.dtype, {k, n}, values);
  }
  // Around 1, as trained norms are.
  void norm(const std::string& name, int length) {
    std::vector<float> values = random_floats(random_, length, 0.2);
    for (float& value : values) value += 1.0f;
    if (!omitted(name)) writer_.add_tensor(name, DType::kF32, {length}, values);
  }

 private:
  bool omitted(const std::string& name) const {
    return std::find(spec_.omit.begin(), spec_.omit.end(), name) != spec_.omit.end();
  }
  const TinySpec& spec_;
  GgufWriter& writer_;
  std::mt19937_64 random_;
};

void add_layer(const TinySpec& spec, int index, Adder& add) {
  const auto name = [index](const char* part) {
    return fmt::format("blk.{}.{}.weight", index, part);
  };
  const int q = spec.heads * spec.head_dim, kv = spec.kv_heads * spec.head_dim;
  const auto deviation = [&](int k) { return spec.weight_scale / std::sqrt(k); };
  // With zeros, so that all other weights are as in the model whose layers all speak.
  const bool silent = std::ranges::find(spec.silent_layers, index) != spec.silent_layers.end();
  const auto last = [&](int k) { return silent ? 0.0 : deviation(k); };
  add.norm(name("attn_norm"), spec.hidden);
  add.matrix(name("attn_q"), spec.hidden, q, deviation(spec.hidden));
  add.matrix(name("attn_k"), spec.hidden, kv, deviation(spec.hidden));
  add.matrix(name("attn_v"), spec.hidden, kv, deviation(spec.hidden));
  add.matrix(name("attn_output"), q, spec.hidden, last(q));
  add.norm(name("ffn_norm"), spec.hidden);
  add.matrix(name("ffn_gate"), spec.hidden, spec.ffn, deviation(spec.hidden));
  add.matrix(name("ffn_up"), spec.hidden, spec.ffn, deviation(spec.hidden));
  add.matrix(name("ffn_down"), spec.ffn, spec.hidden, last(spec.ffn));
}

}  // namespace

GgufWriter tiny_gguf(const TinySpec& spec) {
  GgufWriter writer;
  Adder add(spec, writer);
  writer.add_string("general.architecture", "llama").add_string("general.name", "tiny");
  add.integer("llama.block_count", spec.layers);
  add.integer("llama.embedding_length", spec.hidden);
  add.integer("llama.feed_forward_length", spec.ffn);
  add.integer("llama.attention.head_count", spec.heads);
  add.integer("llama.attention.head_count_kv", spec.kv_heads);
  add.integer("llama.attention.key_length", spec.head_dim);
  add.integer("llama.attention.value_length", spec.head_dim);
  add.integer("llama.context_length", spec.context);
  if (spec.window > 0) {
    std::vector<bool> windowed;
    for (int i = 0; i < spec.layers; ++i) windowed.push_back(i % 2 == 0);
    add.integer("llama.attention.sliding_window", spec.window);
    writer.add_array("llama.attention.sliding_window_pattern", windowed);
  }
  if (spec.tokenizer) add_tokenizer(writer, spec);
  const double head = spec.head_scale / std::sqrt(spec.hidden);
  add.matrix("token_embd.weight", spec.hidden, spec.vocab, spec.tied ? head : 1.0);
  for (int i = 0; i < spec.layers; ++i) add_layer(spec, i, add);
  add.norm("output_norm.weight", spec.hidden);
  if (!spec.tied) add.matrix("output.weight", spec.hidden, spec.vocab, head);
  return writer;
}

TinyFile::TinyFile(const GgufWriter& writer) : bytes_(writer.bytes()) {
  auto file = GgufFile::parse(bytes_, "tiny.gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  file_ = std::move(file).value();
}

std::unique_ptr<Model> TinyFile::load(const ModelOptions& options) const {
  auto model = load_model(*file_, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(*model) : nullptr;
}

ThreadPool& pool_of(int threads) {
  static std::mutex mutex;
  static std::map<int, ThreadPool> pools;
  const std::lock_guard lock(mutex);
  return pools.try_emplace(threads, threads).first->second;
}

ModelOptions model_options(int threads, kernels::Isa isa) {
  ModelOptions options;
  options.backend = kernels::backend(isa);
  options.pool = &pool_of(threads);
  options.max_positions = 1024;
  return options;
}

std::vector<int32_t> random_tokens(uint64_t seed, int count, int vocab) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

}  // namespace aerie::test
