// Command lines as the documentation of other programs prints them, given to the real flags.
#include "tools/flags/their_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "format/json.h"
#include "tools/flags.h"
#include "tools/flags/their_flags.h"
#include "tools/measure/bench_serve.h"
#include "tools/serve/serve.h"

namespace aerie::their_command_test {

using testing::HasSubstr;
using testing::Not;

// As a shell has them, as far as these lines need it.
std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, any = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
      any = true;
    } else if (c == ' ' && !quoted) {
      if (any || !word.empty()) words.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
    }
  }
  if (any || !word.empty()) words.push_back(word);
  return words;
}

template <typename Options>
struct Parsed {
  Options options;
  std::string notes;
};

template <typename Options, typename Add>
Expected<Parsed<Options>> parse(const std::string& line, const char* name, const Add& add) {
  CLI::App app("", name);
  const auto read = add(app);
  auto ours = to_our_command(app, their_flags(), split(line));
  if (!ours.ok()) return ours.status();
  std::vector<std::string> words = ours->words;
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return Status(StatusCode::kInvalidArgument, error.what());
  }
  auto options = read();
  if (!options.ok()) return options.status();
  Parsed<Options> parsed = {std::move(*options), ""};
  for (const std::string& note : ours->notes) parsed.notes += note + "\n";
  return parsed;
}

Expected<Parsed<ServeOptions>> serve_line(const std::string& line) {
  return parse<ServeOptions>(line, "serve", add_serve_options);
}

Expected<Parsed<RunOptions>> run_line(const std::string& line) {
  return parse<RunOptions>(line, "run", add_run_flags);
}

std::string text_of(const SpeculativeConfig& config) {
  return to_string(config);
}

struct Case {
  const char* where;  // it is printed
  const char* line;   // behind `vllm serve`, `python3 -m sglang.launch_server`, `llama-server`, ...
  const char* model;
  const char* speculation;
  std::function<void(const ServeOptions&)> check = [](const ServeOptions&) {};
};

constexpr const char* kAutoSpeculation = "";  // not compared

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      // vLLM
      {"vLLM docs/features/spec_decode/draft_model.md",
       "facebook/opt-6.7b --host 0.0.0.0 --port 8000 --seed 42 -tp 1 --gpu_memory_utilization 0.8 "
       "--speculative_config '{\"model\": \"facebook/opt-125m\", \"num_speculative_tokens\": 5, "
       "\"method\": \"draft_model\"}'",
       "facebook/opt-6.7b", "draft_model:model=facebook/opt-125m,num_speculative_tokens=5",
       [](const ServeOptions& o) {
         EXPECT_EQ(o.server.http.host, "0.0.0.0");
         EXPECT_EQ(o.server.http.port, 8000);
       }},
      {"vLLM docs/features/spec_decode.md (without a method)",
       "--host 0.0.0.0 --port 8000 --model facebook/opt-6.7b --seed 42 -tp 1 "
       "--gpu_memory_utilization 0.8 --speculative_config '{\"model\": \"facebook/opt-125m\", "
       "\"num_speculative_tokens\": 5}'",
       "facebook/opt-6.7b", "draft_model:model=facebook/opt-125m,num_speculative_tokens=5"},
      {"vLLM docs/features/spec_decode/eagle.md",
       "meta-llama/Meta-Llama-3-8B-Instruct --tensor-parallel-size 4 --speculative-config "
       "'{\"model\": \"yuhuili/EAGLE-LLaMA3-Instruct-8B\", \"draft_tensor_parallel_size\": 1, "
       "\"num_speculative_tokens\": 2, \"method\": \"eagle\"}'",
       "meta-llama/Meta-Llama-3-8B-Instruct",
       "eagle:model=yuhuili/EAGLE-LLaMA3-Instruct-8B,num_speculative_tokens=2"},
      {"vLLM docs/features/spec_decode/eagle.md (EAGLE-3 as method eagle)",
       "meta-llama/Meta-Llama-3-8B-Instruct --tensor-parallel-size 2 --speculative-config "
       "'{\"model\": \"RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3\", "
       "\"draft_tensor_parallel_size\": 2, \"num_speculative_tokens\": 2, \"method\": \"eagle\"}'",
       "meta-llama/Meta-Llama-3-8B-Instruct",
       "eagle3:model=RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3,num_speculative_tokens=2"},
      {"vLLM docs/features/spec_decode.md (n-grams)",
       "facebook/opt-6.7b --speculative-config '{\"method\": \"ngram\", "
       "\"num_speculative_tokens\": 5, \"prompt_lookup_max\": 4}'",
       "facebook/opt-6.7b", "ngram:prompt_lookup_max=4,num_speculative_tokens=5"},
      {"vLLM docs/features/spec_decode.md (MLP speculators)",
       "meta-llama/Meta-Llama-3.1-70B-Instruct -tp 4 --speculative-config '{\"model\": "
       "\"ibm-ai-platform/llama3-70b-accelerator\", \"draft_tensor_parallel_size\": 1}'",
       "meta-llama/Meta-Llama-3.1-70B-Instruct",
       "mlp_speculator:model=ibm-ai-platform/llama3-70b-accelerator"},
      {"vLLM docs/features/spec_decode.md (EAGLE without a method)",
       "meta-llama/Meta-Llama-3-8B-Instruct -tp 4 --speculative-config '{\"model\": "
       "\"yuhuili/EAGLE-LLaMA3-Instruct-8B\", \"draft_tensor_parallel_size\": 1}'",
       "meta-llama/Meta-Llama-3-8B-Instruct", "eagle:model=yuhuili/EAGLE-LLaMA3-Instruct-8B"},
      {"vLLM vllm/config/speculative.py: deepseek_mtp",
       "deepseek-ai/DeepSeek-V3 --speculative-config '{\"method\": \"deepseek_mtp\", "
       "\"num_speculative_tokens\": 1}' --trust-remote-code",
       "deepseek-ai/DeepSeek-V3", "mtp:num_speculative_tokens=1"},
      {"vLLM vllm/config/speculative.py: ngram_gpu",
       "m --speculative-config '{\"method\": \"ngram_gpu\", \"num_speculative_tokens\": 3, "
       "\"prompt_lookup_min\": 2, \"prompt_lookup_max\": 5}'",
       "m", "ngram:prompt_lookup_max=5,prompt_lookup_min=2,num_speculative_tokens=3"},
      {"vLLM vllm/config/speculative.py: suffix",
       "m --speculative-config '{\"method\": \"suffix\", \"num_speculative_tokens\": 32, "
       "\"suffix_decoding_max_cached_requests\": 1000}'",
       "m", "suffix:num_speculative_tokens=32"},
      {"vLLM vllm/utils/argparse_utils.py: keys with points",
       "m --speculative-config.method eagle3 --speculative-config.model head "
       "--speculative-config.num_speculative_tokens 3",
       "m", "eagle3:model=head,num_speculative_tokens=3"},
      {"vLLM vllm/engine/arg_utils.py: -sc",
       "m -sc '{\"method\": \"medusa\", \"model\": \"head\"}'", "m", "medusa:model=head"},
      {"vLLM 0.6, docs/source/models/spec_decode.rst",
       "--model facebook/opt-6.7b --speculative_model facebook/opt-125m --use-v2-block-manager "
       "--num_speculative_tokens 5",
       "facebook/opt-6.7b", "draft_model:model=facebook/opt-125m,num_speculative_tokens=5"},
      {"vLLM 0.6, docs/source/models/spec_decode.rst (n-grams)",
       "--model facebook/opt-6.7b --speculative_model [ngram] --num_speculative_tokens 5 "
       "--ngram_prompt_lookup_max 4",
       "facebook/opt-6.7b", "ngram:prompt_lookup_max=4,num_speculative_tokens=5"},
      {"vLLM docs/configuration/optimization.md and engine arguments",
       "m --max-model-len 32k --max-num-seqs 64 --max-num-batched-tokens 8192 "
       "--enable-prefix-caching --enable-chunked-prefill --kv-cache-dtype fp8 --async-scheduling "
       "--stream-interval 4 --dtype bfloat16 --enforce-eager --generation-config vllm "
       "--tokenizer-mode auto --served-model-name a b --disable-log-requests",
       "m", kAutoSpeculation,
       [](const ServeOptions& o) {
         EXPECT_EQ(o.engine.context, 32000);
         EXPECT_EQ(o.service.max_sequences, 64);
         EXPECT_EQ(o.service.max_pass_tokens, 8192);
         EXPECT_TRUE(o.service.prefix_cache);
         EXPECT_EQ(o.engine.cache_type, kernels::KvType::kQ8);
         EXPECT_EQ(o.server.api.stream_interval, 4);
         EXPECT_FALSE(o.use_suggested);
         EXPECT_EQ(o.server.api.model_names, (std::vector<std::string>{"a", "b"}));
         EXPECT_FALSE(o.log_requests);
       }},
      {"vLLM docs/serving: --override-generation-config",
       "m --no-enable-prefix-caching --override-generation-config '{\"temperature\": 0.5}'", "m",
       kAutoSpeculation,
       [](const ServeOptions& o) {
         EXPECT_FALSE(o.service.prefix_cache);
         EXPECT_EQ(o.sampling.temperature, 0.5);
       }},
      // SGLang
      {"SGLang docs/advanced_features/speculative_decoding.md (EAGLE-2)",
       "--model meta-llama/Llama-2-7b-chat-hf --speculative-algorithm EAGLE "
       "--speculative-draft-model-path lmsys/sglang-EAGLE-llama2-chat-7B --speculative-num-steps 3 "
       "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --mem-fraction-static 0.7 "
       "--cuda-graph-max-bs 8 --log-level warning",
       "meta-llama/Llama-2-7b-chat-hf",
       "eagle:model=lmsys/sglang-EAGLE-llama2-chat-7B,num_speculative_tokens=15,num_steps=3,"
       "topk=4"},
      {"SGLang docs/advanced_features/speculative_decoding.md (torch.compile)",
       "--model meta-llama/Llama-2-7b-chat-hf --speculative-algorithm EAGLE "
       "--speculative-draft-model-path lmsys/sglang-EAGLE-llama2-chat-7B --speculative-num-steps 3 "
       "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --mem-fraction-static 0.7 "
       "--enable-torch-compile --torch-compile-max-bs 8 --log-level warning",
       "meta-llama/Llama-2-7b-chat-hf",
       "eagle:model=lmsys/sglang-EAGLE-llama2-chat-7B,num_speculative_tokens=15,num_steps=3,"
       "topk=4"},
      {"SGLang docs/advanced_features/speculative_decoding.md (FR-Spec)",
       "--model meta-llama/Meta-Llama-3-8B-Instruct --speculative-algorithm EAGLE "
       "--speculative-draft-model-path lmsys/sglang-EAGLE-LLaMA3-Instruct-8B "
       "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16 "
       "--speculative-token-map thunlp/LLaMA3-Instruct-8B-FR-Spec/freq_32768.pt "
       "--mem-fraction-static 0.7 --cuda-graph-max-bs 8 --dtype float16 --log-level warning",
       "meta-llama/Meta-Llama-3-8B-Instruct",
       "eagle:model=lmsys/sglang-EAGLE-LLaMA3-Instruct-8B,num_speculative_tokens=15,num_steps=3,"
       "topk=4"},
      {"SGLang docs/advanced_features/speculative_decoding.md (EAGLE-3)",
       "--model meta-llama/Meta-Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 "
       "--speculative-draft-model-path jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B "
       "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16 "
       "--mem-fraction-static 0.7 --cuda-graph-max-bs 8 --dtype float16 --log-level warning",
       "meta-llama/Meta-Llama-3.1-8B-Instruct",
       "eagle3:model=jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B,num_speculative_tokens=15,"
       "num_steps=3,topk=4"},
      {"SGLang docs/advanced_features/speculative_decoding.md (MTP)",
       "--model XiaomiMiMo/MiMo-7B-RL --host 0.0.0.0 --trust-remote-code --speculative-algorithm "
       "EAGLE --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens "
       "2 --mem-fraction-static 0.7 --cuda-graph-max-bs 8 --log-level warning",
       "XiaomiMiMo/MiMo-7B-RL", "mtp:num_speculative_tokens=1,num_steps=1,topk=1"},
      {"SGLang docs/advanced_features/speculative_decoding.md (STANDALONE)",
       "--model Qwen/Qwen2.5-7B-Instruct --speculative-algorithm STANDALONE "
       "--speculative-draft-model-path Qwen/Qwen2.5-1.5B-Instruct --speculative-num-steps 4 "
       "--speculative-eagle-topk 2 --speculative-num-draft-tokens 7 --mem-fraction-static 0.7 "
       "--cuda-graph-max-bs 8 --log-level warning",
       "Qwen/Qwen2.5-7B-Instruct",
       "draft_model:model=Qwen/Qwen2.5-1.5B-Instruct,num_speculative_tokens=6,num_steps=4,topk=2"},
      {"SGLang docs/advanced_features/speculative_decoding.md (NGRAM)",
       "--model Qwen/Qwen2.5-7B-Instruct --speculative-algorithm NGRAM "
       "--speculative-num-draft-tokens 16 --speculative-ngram-max-match-window-size 12 "
       "--speculative-ngram-max-bfs-breadth 10 --mem-fraction-static 0.7 --cuda-graph-max-bs 8 "
       "--log-level warning",
       "Qwen/Qwen2.5-7B-Instruct",
       "ngram:prompt_lookup_max=12,num_matches=10,num_speculative_tokens=15"},
      {"SGLang docs/advanced_features/speculative_decoding.md (memory)",
       "--model-path m --context-length 2048 --tp 2 --max-running-requests 4 --cuda-graph-max-bs 2 "
       "--mem-fraction-static 0.5 --chunked-prefill-size 256 --disable-radix-cache",
       "m", kAutoSpeculation,
       [](const ServeOptions& o) {
         EXPECT_EQ(o.engine.context, 2048);
         EXPECT_EQ(o.service.max_sequences, 4);
         EXPECT_EQ(o.engine.prefill_chunk, 256);
         EXPECT_FALSE(o.service.prefix_cache);
       }},
      {"SGLang docs/basic_usage/deepseek_v3.md (NextN as a model of its own)",
       "--model-path deepseek-ai/DeepSeek-V3 --speculative-algorithm NEXTN "
       "--speculative-draft-model-path lmsys/DeepSeek-V3-NextN --speculative-num-steps 2 "
       "--speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --trust-remote-code --tp 8",
       "deepseek-ai/DeepSeek-V3",
       "mtp:model=lmsys/DeepSeek-V3-NextN,num_speculative_tokens=2,num_steps=2,topk=1"},
      {"SGLang docs/basic_usage/deepseek_v3.md (EAGLE for the same)",
       "--model-path deepseek-ai/DeepSeek-V3 --speculative-algorithm EAGLE "
       "--speculative-draft-model-path lmsys/DeepSeek-V3-NextN --speculative-num-steps 2 "
       "--speculative-eagle-topk 1 --speculative-num-draft-tokens 3",
       "deepseek-ai/DeepSeek-V3",
       "mtp:model=lmsys/DeepSeek-V3-NextN,num_speculative_tokens=2,num_steps=2,topk=1"},
      // llama.cpp
      {"llama.cpp tools/server/README.md", "-m models/7B/ggml-model.gguf -c 2048",
       "models/7B/ggml-model.gguf", kAutoSpeculation,
       [](const ServeOptions& o) { EXPECT_EQ(o.engine.context, 2048); }},
      {"llama.cpp tools/server/README.md (Docker)",
       "-m models/7B/ggml-model.gguf -c 512 --host 0.0.0.0 --port 8080",
       "models/7B/ggml-model.gguf", kAutoSpeculation,
       [](const ServeOptions& o) { EXPECT_EQ(o.server.http.port, 8080); }},
      {"llama.cpp README.md (parallel decoding)", "-m model.gguf -c 16384 -np 4", "model.gguf",
       kAutoSpeculation, [](const ServeOptions& o) { EXPECT_EQ(o.service.max_sequences, 4); }},
      {"llama.cpp README.md (speculative decoding)", "-m model.gguf -md draft.gguf", "model.gguf",
       "draft_model:model=draft.gguf"},
      {"llama.cpp docs/speculative.md (ngram-simple)",
       "-m m.gguf --spec-type ngram-simple --draft-max 64", "m.gguf",
       "ngram:num_speculative_tokens=64"},
      {"llama.cpp docs/speculative.md (ngram-map-k4v)",
       "-m m.gguf --spec-type ngram-map-k4v --spec-ngram-size-n 8 --spec-ngram-size-m 8 "
       "--spec-ngram-min-hits 2 --draft-max 64",
       "m.gguf", "ngram:prompt_lookup_max=8,num_speculative_tokens=64"},
      {"llama.cpp docs/speculative.md (ngram-mod)",
       "-m m.gguf --spec-type ngram-mod --spec-ngram-size-n 24 --draft-min 48 --draft-max 64",
       "m.gguf", "ngram:prompt_lookup_max=24,num_speculative_tokens=64"},
      {"llama.cpp discussions: a server with a draft model",
       "-m m.gguf -md d.gguf -ngl 99 -ngld 99 -fa on -ctk q8_0 -ctv q8_0 --draft-max 16 "
       "--draft-min 5 --draft-p-min 0.9 -cd 4096 -devd CUDA0 --jinja -t 8 -b 2048 -ub 512 "
       "--no-mmap --mlock --temp 0.7 --top-k 40",
       "m.gguf", "draft_model:model=d.gguf,num_speculative_tokens=16,min_probability=0.9",
       [](const ServeOptions& o) {
         EXPECT_EQ(o.engine.threads, 8);
         EXPECT_EQ(o.engine.prefill_chunk, 512);
         EXPECT_EQ(o.engine.cache_type, kernels::KvType::kQ8);
         EXPECT_EQ(o.sampling.temperature, 0.7);
         EXPECT_EQ(o.sampling.top_k, 40);
       }},
      {"llama.cpp tools/server/README.md: --spec-type with several",
       "-hf ggml-org/Qwen2.5-0.5B-GGUF:Q8_0 -hfd a/b --spec-type draft-simple,ngram-cache",
       "ggml-org/Qwen2.5-0.5B-GGUF:Q8_0", "ngram,draft_model:model=a/b"},
      // TensorRT-LLM
      {"TensorRT-LLM trtllm-serve: its flags",
       "m --max_batch_size 8 --max_num_tokens 1024 --max_seq_len 512 --tp_size 2 --backend pytorch "
       "--kv_cache_free_gpu_memory_fraction 0.9",
       "m", kAutoSpeculation,
       [](const ServeOptions& o) {
         EXPECT_EQ(o.service.max_sequences, 8);
         EXPECT_EQ(o.service.max_pass_tokens, 1024);
         EXPECT_EQ(o.engine.context, 512);
       }},
      {"TensorRT-LLM docs/source/features/speculative-decoding.md (dynamic tree)",
       "m --speculative-config '{\"decoding_type\": \"Eagle3\", \"max_draft_len\": 6, "
       "\"speculative_model\": \"yuhuili/EAGLE3-LLaMA3.1-Instruct-8B\", \"use_dynamic_tree\": "
       "true, "
       "\"dynamic_tree_max_topK\": 10, \"max_total_draft_tokens\": 60}'",
       "m",
       "eagle3:model=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B,num_speculative_tokens=60,num_steps=6,"
       "topk=10"},
      {"TensorRT-LLM docs/source/features/speculative-decoding.md (NGram)",
       "m --speculative-config '{\"decoding_type\": \"NGram\", \"max_draft_len\": 3, "
       "\"max_matching_ngram_size\": 4, \"is_public_pool\": true}'",
       "m", "ngram:prompt_lookup_max=4,num_speculative_tokens=3"},
      {"TensorRT-LLM docs/source/features/speculative-decoding.md (MTP)",
       "m --speculative-config '{\"decoding_type\": \"MTP\", \"max_draft_len\": 3, "
       "\"num_nextn_predict_layers\": 3}'",
       "m", "mtp:num_speculative_tokens=3"},
      {"TensorRT-LLM docs/source/legacy/advanced/speculative-decoding.md (lookahead)",
       "m --speculative-config '{\"decoding_type\": \"Lookahead\", \"max_window_size\": 4, "
       "\"max_ngram_size\": 4, \"max_verification_set_size\": 4}'",
       "m", "lookahead:window=4,ngram=4,guesses=4"},
      {"TensorRT-LLM docs/source/features/speculative-decoding.md (draft/target)",
       "m --speculative-config '{\"decoding_type\": \"DraftTarget\", \"max_draft_len\": 3, "
       "\"speculative_model_dir\": \"/path/to/draft_model\"}'",
       "m", "draft_model:model=/path/to/draft_model,num_speculative_tokens=3"},
  };
  return all;
}

// Settings in any order.
SpeculativeConfig settings(const std::string& text) {
  auto config = parse_speculative_spec(text);
  EXPECT_TRUE(config.ok()) << text << ": " << config.status().message();
  return config.ok() ? *config : SpeculativeConfig{};
}

TEST(TheirCommand, MeansTheSame) {
  EXPECT_GE(cases().size(), 25u);
  for (const Case& one : cases()) {
    SCOPED_TRACE(std::string(one.where) + ": " + one.line);
    const auto parsed = serve_line(one.line);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->options.engine.model, one.model);
    if (*one.speculation != '\0') {
      EXPECT_EQ(text_of(parsed->options.engine.speculation), text_of(settings(one.speculation)));
    }
    one.check(parsed->options);
    // One line for all that is ignored, and one for a type of the cache.
    EXPECT_LE(std::ranges::count(parsed->notes, '\n'), 2) << parsed->notes;
  }
}

TEST(TheirCommand, SaysWhatIsIgnored) {
  const auto parsed = serve_line(
      "m --gpu-memory-utilization 0.9 --enforce-eager --kv-cache-dtype=fp8 --speculative-config "
      "{\"method\":\"ngram\",\"draft_tensor_parallel_size\":1}");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->notes,
            "--kv-cache-dtype fp8 is --cache-type q8 here\n"
            "ignored, since they mean nothing here: --gpu-memory-utilization, --enforce-eager, "
            "'draft_tensor_parallel_size' of speculation\n");
  const auto plain = serve_line("m --port 80 --speculate none --typical 1.0 --mirostat 0");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->notes, "");
}

TEST(TheirCommand, RefusesAnotherOutput) {
  const std::vector<std::pair<const char*, const char*>> lines = {
      {"m --enable-lora", "--enable-lora: adapters"},
      {"m --lora a", "--lora a: adapters"},
      {"m --quantization fp8", "--quantization fp8: weights"},
      {"m --speculative-accept-threshold-single 0.9", "drafts are kept only"},
      {"m --speculative-config {\"method\":\"eagle\",\"model\":\"e\",\"acceptance_method\":"
       "\"typical_acceptance_sampler\"}",
       "'acceptance_method': typical_acceptance_sampler: drafts are kept only"},
      {"m --spec-decoding-acceptance-method typical_acceptance_sampler", "drafts are kept only"},
      {"m --speculative-config {\"decoding_type\":\"MTP\",\"max_draft_len\":1,"
       "\"use_relaxed_acceptance_for_thinking\":true}",
       "drafts are kept only"},
      {"m --speculative-config {\"method\":\"dflash\",\"model\":\"e\"}", "unknown method 'dflash'"},
      {"m --cache-type-k q4_0", "f16, or q8"},
      {"m -ctk q8_0 -ctv f16", "have one type here"},
      {"m --mirostat 2", "no such sampler"},
      {"m -n 100", "requests say max_tokens"},
      {"m --rope-scaling {}", "the model's own positions"},
      {"m --hf-overrides", "--hf-overrides needs a value"},
      {"m --speculative-config {\"method\":\"ngram\",\"method\":\"eagle\"}", "twice"},
      {"m --no-such-flag 3", "there is no flag --no-such-flag; see"},
      {"m --gpu-memory-utilizatoin 1", "(did you mean --gpu-memory-utilization?)"},
      {"m --max_num_sqes=3", "there is no flag --max-num-sqes (did you mean --max-num-seqs?)"},
      {"m --override-generation-config {\"top_p\":2}", "'top_p' must be a number from 0 to 1"},
      {"m --override-generation-config {\"max_new_tokens\":2}", "there is no 'max_new_tokens'"},
  };
  for (const auto& [line, why] : lines) {
    const auto parsed = serve_line(line);
    ASSERT_FALSE(parsed.ok()) << line;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(parsed.status().message(), HasSubstr(why)) << line;
  }
}

// The value of an ignored flag does not become a word of its own, and that of ours stays whole.
TEST(TheirCommand, KeepsValuesTogether) {
  const auto parsed = serve_line("--swap-space --port --port 81 -fa --host ::1 -fa on m");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->options.server.http.port, 81);
  EXPECT_EQ(parsed->options.server.http.host, "::1");
  EXPECT_EQ(parsed->options.engine.model, "m");
  const auto said = run_line("-m m -p '-ngl is a flag' --stop -md --system=--jinja");
  ASSERT_TRUE(said.ok()) << said.status().message();
  EXPECT_EQ(said->options.prompt, "-ngl is a flag");
  EXPECT_EQ(said->options.stop, std::vector<std::string>{"-md"});
  EXPECT_EQ(said->options.system, "--jinja");
}

TEST(TheirCommand, RunsAsLlamaCli) {
  const auto parsed = run_line(
      "-m model.gguf -md draft.gguf -p 'I believe the meaning of life is' -n 128 -no-cnv -c 4096 "
      "-ngl 99 -s 7 --temp 0.8 --top-k 40 --top-p 0.95 --min-p 0.05 --draft 8 -t 2");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const RunOptions& o = parsed->options;
  EXPECT_EQ(o.engine.model, "model.gguf");
  EXPECT_EQ(o.form, PromptForm::kText);
  EXPECT_EQ(o.max_tokens, 128);
  EXPECT_EQ(o.engine.context, 4096);
  EXPECT_EQ(o.sampling.seed, 7u);
  EXPECT_EQ(o.sampling.top_k, 40);
  EXPECT_EQ(o.engine.threads, 2);
  EXPECT_EQ(to_string(o.engine.speculation),
            to_string(settings("draft_model:model=draft.gguf,num_speculative_tokens=8")));
  EXPECT_THAT(parsed->notes, HasSubstr("-ngl"));
  EXPECT_THAT(parsed->notes, Not(HasSubstr("-s")));
}

struct TemporaryFile {
  std::string path;
  TemporaryFile(const std::string& name, const std::string& text)
      : path(testing::TempDir() + name) {
    std::ofstream(path) << text;
  }
  ~TemporaryFile() { std::remove(path.c_str()); }
};

TEST(TheirCommand, ReadsYaml) {
  // TensorRT-LLM docs/source/features/speculative-decoding.md, and settings beside it.
  const TemporaryFile file("their_options.yaml",
                           "# Using a HuggingFace Hub model ID (auto-downloaded)\n"
                           "max_batch_size: 16   # requests\n"
                           "kv_cache_config:\n"
                           "  free_gpu_memory_fraction: 0.8\n"
                           "  dtype: fp8\n"
                           "cuda_graph_config:\n"
                           "  enable_padding: true\n"
                           "max_num_tokens: 99\n"
                           "speculative_config:\n"
                           "  decoding_type: Eagle3\n"
                           "  max_draft_len: 4\n"
                           "  speculative_model: 'yuhuili/EAGLE3-LLaMA3.1-Instruct-8B'\n");
  for (const std::string flag : {"--extra_llm_api_options ", "--config=", "--config "}) {
    const auto parsed = serve_line("m " + flag + file.path + " --max_num_tokens 128");
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->options.service.max_sequences, 16);
    EXPECT_EQ(parsed->options.service.max_pass_tokens, 128);
    EXPECT_EQ(parsed->options.engine.cache_type, kernels::KvType::kQ8);
    EXPECT_EQ(to_string(parsed->options.engine.speculation),
              to_string(settings("eagle3:model=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B,"
                                 "num_speculative_tokens=4")));
  }
  const TemporaryFile odd("their_odd.yaml", "no_such_setting: 3\n");
  EXPECT_THAT(serve_line("m --config " + odd.path).status().message(),
              HasSubstr("there is no no_such_setting"));
  const TemporaryFile bad("their_bad.yaml", "a:\n  b: 1\n c: 2\n");
  EXPECT_THAT(serve_line("m --config " + bad.path).status().message(), HasSubstr("line 3"));
  EXPECT_THAT(serve_line("m --config /nowhere.yaml").status().message(),
              HasSubstr("cannot be read"));
}

TEST(TheirFlags, NamesAreThereOnce) {
  std::vector<std::string> names;
  for (const TheirFlag& flag : their_flags()) {
    std::stringstream list{std::string(flag.names)};
    for (std::string name; std::getline(list, name, ',');) {
      EXPECT_TRUE(name.starts_with('-')) << name;
      names.push_back(name);
    }
    if (flag.fate == Fate::kRefused) {
      EXPECT_FALSE(flag.why.empty()) << flag.names;
    }
    if (flag.fate == Fate::kIgnored) {
      EXPECT_FALSE(flag.why.empty()) << flag.names;
    }
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  EXPECT_EQ(twice, names.end()) << *twice;
}

// What the table calls ours is there.
TEST(TheirFlags, AliasesAreFlags) {
  CLI::App serve("", "serve"), run("", "run");
  const auto kept = add_serve_options(serve);
  const auto kept_too = add_run_flags(run);
  for (const TheirFlag& flag : their_flags()) {
    if (flag.fate != Fate::kAlias && flag.fate != Fate::kAliasOrIgnored) continue;
    const std::string ours(flag.ours);
    EXPECT_TRUE(serve.get_option_no_throw(ours) != nullptr ||
                run.get_option_no_throw(ours) != nullptr)
        << ours;
  }
}

// vLLM docs/contributing/benchmarks.md, with paths of files.
TEST(TheirBench, MeansTheSame) {
  CLI::App app("", "serve");
  const auto run = add_bench_serve(app);
  const auto ours = to_our_command(
      app, their_bench_flags(),
      split("--backend vllm --model m --endpoint /v1/completions --dataset-name sharegpt "
            "--dataset-path set.jsonl --num-prompts 10 --max-concurrency 4 --request-rate inf "
            "--burstiness 1.0 --sharegpt-output-len 64 --save-result --result-filename out.json "
            "--base-url http://127.0.0.1:8000 --percentile-metrics ttft,tpot"));
  ASSERT_TRUE(ours.ok()) << ours.status().message();
  EXPECT_EQ(ours->words, (std::vector<std::string>{
                             "--model=m", "--endpoint=completions", "--dataset=set.jsonl",
                             "--num-prompts=10", "--concurrency=4", "--rate=inf", "--max-tokens=64",
                             "--json=out.json", "--url=http://127.0.0.1:8000/v1"}));
  EXPECT_EQ(ours->notes, std::vector<std::string>{"ignored, since they mean nothing here: "
                                                  "--save-result, --percentile-metrics"});
  const auto random = to_our_command(app, their_bench_flags(), {"--dataset-name", "random"});
  ASSERT_FALSE(random.ok());
  EXPECT_THAT(random.status().message(), HasSubstr("--dataset-name custom"));
  for (const TheirFlag& flag : their_bench_flags()) {
    if (flag.fate != Fate::kAlias) continue;
    EXPECT_NE(app.get_option_no_throw(std::string(flag.ours)), nullptr) << flag.ours;
  }
}

// Read from the repository's root, as all tests are.
TEST(TheirFlags, ThePageHasTheTables) {
  std::ifstream file("docs/flags.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  for (const bool bench : {false, true}) {
    const std::string table = flags_table(bench ? their_bench_flags() : their_flags());
    const std::string path =
        testing::TempDir() + (bench ? "their_bench_flags.md" : "their_flags.md");
    const bool same = page.find(table) != std::string::npos;
    if (!same) std::ofstream(path) << table;
    EXPECT_TRUE(same) << "docs/flags.md is not what tools/flags/their_flags.cc says: take " << path;
  }
}

}  // namespace aerie::their_command_test
