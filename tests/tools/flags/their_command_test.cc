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
#include <map>
#include <nlohmann/json.hpp>
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

// printed_commands.json: where a command line is printed, what stands behind `vllm serve`, `python3
// -m sglang.launch_server`, `llama-server` ..., and the model and the speculation that it means
// (empty: not compared).
Json printed_commands() {
  auto json = read_json("tests/tools/flags/printed_commands.json");
  EXPECT_TRUE(json.ok()) << json.status().message();
  return json.ok() ? *json : Json();
}

// What else some of them mean.
using Check = std::function<void(const ServeOptions&)>;
const std::map<std::string, Check>& checks() {
  static const std::map<std::string, Check> all = {
      {"vLLM docs/features/spec_decode/draft_model.md",
       [](const ServeOptions& o) {
         EXPECT_EQ(o.server.http.host, "0.0.0.0");
         EXPECT_EQ(o.server.http.port, 8000);
       }},
      {"vLLM docs/configuration/optimization.md and engine arguments",
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
       [](const ServeOptions& o) {
         EXPECT_FALSE(o.service.prefix_cache);
         EXPECT_EQ(o.sampling.temperature, 0.5);
       }},
      {"SGLang docs/advanced_features/speculative_decoding.md (memory)",
       [](const ServeOptions& o) {
         EXPECT_EQ(o.engine.context, 2048);
         EXPECT_EQ(o.service.max_sequences, 4);
         EXPECT_EQ(o.engine.prefill_chunk, 256);
         EXPECT_FALSE(o.service.prefix_cache);
       }},
      {"llama.cpp tools/server/README.md",
       [](const ServeOptions& o) { EXPECT_EQ(o.engine.context, 2048); }},
      {"llama.cpp tools/server/README.md (Docker)",
       [](const ServeOptions& o) { EXPECT_EQ(o.server.http.port, 8080); }},
      {"llama.cpp README.md (parallel decoding)",
       [](const ServeOptions& o) { EXPECT_EQ(o.service.max_sequences, 4); }},
      {"llama.cpp discussions: a server with a draft model",
       [](const ServeOptions& o) {
         EXPECT_EQ(o.engine.threads, 8);
         EXPECT_EQ(o.engine.prefill_chunk, 512);
         EXPECT_EQ(o.engine.cache_type, kernels::KvType::kQ8);
         EXPECT_EQ(o.sampling.temperature, 0.7);
         EXPECT_EQ(o.sampling.top_k, 40);
       }},
      {"TensorRT-LLM trtllm-serve: its flags",
       [](const ServeOptions& o) {
         EXPECT_EQ(o.service.max_sequences, 8);
         EXPECT_EQ(o.service.max_pass_tokens, 1024);
         EXPECT_EQ(o.engine.context, 512);
       }},
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
  const Json commands = printed_commands();
  EXPECT_GE(commands.size(), 25u);
  size_t checked = 0;
  for (const Json& one : commands) {
    const std::string where = one["where"], line = one["line"], speculation = one["speculation"];
    SCOPED_TRACE(where + ": " + line);
    const auto parsed = serve_line(line);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->options.engine.model, one["model"].get<std::string>());
    if (!speculation.empty()) {
      EXPECT_EQ(text_of(parsed->options.engine.speculation), text_of(settings(speculation)));
    }
    if (const auto check = checks().find(where); check != checks().end()) {
      check->second(parsed->options);
      ++checked;
    }
    // One line for all that is ignored, and one for a type of the cache.
    EXPECT_LE(std::ranges::count(parsed->notes, '\n'), 2) << parsed->notes;
  }
  EXPECT_EQ(checked, checks().size());
}

TEST(TheirCommand, SaysWhatIsIgnored) {
  const auto parsed = serve_line(
      "m --gpu-memory-utilization 0.9 --enforce-eager --kv-cache-dtype=fp8 --speculative-config "
      "{\"method\":\"ngram\",\"draft_tensor_parallel_size\":1}");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->notes,
            "--kv-cache-dtype fp8 is --cache-type q8 here\n"
            "ignored, since they mean nothing here: --enforce-eager, "
            "'draft_tensor_parallel_size' of speculation\n");
  EXPECT_EQ(parsed->options.engine.device_memory, DeviceShare{.share = 0.9});
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
      {"m --speculative-config {\"method\":\"jetspec\",\"model\":\"e\"}",
       "unknown method 'jetspec'"},
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

TEST(TheirCommand, TakesDevices) {
  const auto llama = run_line("-m m -ngl all -dev CUDA1");
  ASSERT_TRUE(llama.ok()) << llama.status().message();
  EXPECT_EQ(llama->options.engine.device, "cuda:1");
  EXPECT_GT(llama->options.engine.device_layers, 1000);
  const auto vllm = serve_line("m --device cuda --gpu_memory_utilization=0.5");
  ASSERT_TRUE(vllm.ok()) << vllm.status().message();
  EXPECT_EQ(vllm->options.engine.device, "cuda:0");
  EXPECT_EQ(vllm->options.engine.device_memory, DeviceShare{.share = 0.5});
  const auto sglang = serve_line("--model-path m --mem-fraction-static 0.8 --device cpu");
  ASSERT_TRUE(sglang.ok()) << sglang.status().message();
  EXPECT_EQ(sglang->options.engine.device, "cpu");
  for (const auto& [line, why] :
       {std::pair("m --device tpu", "--device: 'tpu': give auto, cpu, cuda, cuda:N or emulated"),
        {"m -dev CUDA0,CUDA1", "--device: 'CUDA0,CUDA1': give auto"},
        {"m -ngl some", "--n-gpu-layers: 'some': give a number, 0 for the processor"},
        {"m --gpu-memory 1.5", "--gpu-memory: '1.5': give a share of the device's"}}) {
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
  EXPECT_EQ(o.engine.device_layers, 99);
  EXPECT_THAT(parsed->notes, Not(HasSubstr("-ngl")));
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
      split(
          "--backend vllm --model m --endpoint /v1/completions --dataset-name sharegpt "
          "--dataset-path set.jsonl --num-prompts 10 --max-concurrency 4 --request-rate inf "
          "--burstiness 1.0 --sharegpt-output-len 64 --save-result --result-filename out.json "
          "--base-url http://127.0.0.1:8000 --percentile-metrics ttft,tpot --result-dir results"));
  ASSERT_TRUE(ours.ok()) << ours.status().message();
  EXPECT_EQ(ours->words,
            (std::vector<std::string>{
                "--backend=vllm", "--model=m", "--endpoint=completions", "--dataset-name=sharegpt",
                "--dataset=set.jsonl", "--num-prompts=10", "--concurrency=4", "--rate=inf",
                "--max-tokens=64", "--save-result", "--result-filename=out.json",
                "--url=http://127.0.0.1:8000/v1", "--result-dir=results"}));
  EXPECT_EQ(ours->notes, std::vector<std::string>{"ignored, since they mean nothing here: "
                                                  "--percentile-metrics"});
  const auto random = to_our_command(
      app, their_bench_flags(),
      split("--host ::1 --port 81 --dataset-name random --random-input-len 1024 "
            "--random-output-len 128 --random-range-ratio 0.2 --random-prefix-len 8"));
  ASSERT_TRUE(random.ok()) << random.status().message();
  EXPECT_TRUE(random->notes.empty());
  std::vector<std::string> words = random->words;
  std::reverse(words.begin(), words.end());
  EXPECT_NO_THROW(app.parse(words));
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
