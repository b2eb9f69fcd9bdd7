// The real model: exactness with both drafters, the gain on a prompt that invites quoting, the time
// and the memory that opening takes.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "tests/testing/nightly.h"
#include "tests/testing/sanitized.h"

namespace aerie::real_test {

constexpr const char* kModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
// Of a reply. Where drafts change a token, they do so within a few rounds or not in many.
const int kTokens = test::kSanitized ? 21 : test::nightly() ? 96 : 51;

#define SKIP_WITHOUT_MODEL()            \
  if (!std::filesystem::exists(kModel)) \
  GTEST_SKIP() << kModel << " is missing: see models/README.md"

EngineOptions options_for(int threads, int chunk, const SpeculativeConfig& speculation) {
  EngineOptions options;
  options.model = kModel;
  options.context = 512;
  options.threads = threads;
  options.prefill_chunk = chunk;
  options.speculation = speculation;
  return options;
}

std::unique_ptr<Engine> open(const EngineOptions& options) {
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(engine).value();
}

std::vector<int32_t> chat_prompt(const Engine& engine, const std::string& text) {
  const std::vector<ChatMessage> messages = {{"user", text}};
  const auto rendered = engine.parts().chat_template()->render(messages, true);
  EXPECT_TRUE(rendered.ok());
  std::vector<int32_t> ids;
  EXPECT_TRUE(engine.parts()
                  .tokenizer()
                  .encode(*rendered, {.add_special = false, .parse_special = true}, ids)
                  .ok());
  return ids;
}

const char* const kPrompts[] = {
    "Write a short story about a lighthouse.",
    "List the numbers from one to twenty as words, separated by commas.",
    "Write a Python function that reverses a string, and explain it.",
};
constexpr double kTemperatures[] = {0.0, 0.7, 1.2};
constexpr int kCases = 9;  // a prompt and a temperature

Request request_of(const Engine& engine, int index) {
  Request request;
  request.prompt = chat_prompt(engine, kPrompts[index / 3]);
  request.sampling.temperature = kTemperatures[index % 3];
  if (index % 3 == 1) request.sampling.top_p = 0.95;
  request.sampling.seed = 100 + static_cast<uint64_t>(index);
  request.max_tokens = kTokens;
  request.ignore_eos = true;
  return request;
}

Generation generate(Engine& engine, const Request& request) {
  auto out = engine.generate(request, nullptr);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return std::move(out).value();
}

// Each case alone, one thread, the whole prompt at once.
const std::vector<std::vector<int32_t>>& plain_tokens() {
  static const std::vector<std::vector<int32_t>> tokens = [] {
    std::vector<std::vector<int32_t>> all;
    const auto engine = open(options_for(1, 512, {}));
    for (int i = 0; i < kCases; ++i)
      all.push_back(generate(*engine, request_of(*engine, i)).tokens);
    return all;
  }();
  return tokens;
}

constexpr int kChunks[] = {1, 7, 512};

// By day every two of prompt, temperature, piece of the prompt and number of threads meet.
bool is_tried(int index, int piece, int threads) {
  const int prompt = index / 3, temperature = index % 3;
  if (test::nightly()) return true;
  return temperature == (prompt + piece) % 3 && threads == (prompt == piece ? 2 : 1);
}

template <typename Check>
void compare_with_plain(const SpeculativeConfig& speculation, const Check& check) {
  for (const int threads : {1, 2}) {
    for (int piece = 0; piece < 3; ++piece) {
      const int chunk = kChunks[piece];
      const auto engine = open(options_for(threads, chunk, speculation));
      for (int index = 0; index < kCases; ++index) {
        if (!is_tried(index, piece, threads)) continue;
        const Generation out = generate(*engine, request_of(*engine, index));
        EXPECT_EQ(out.tokens, plain_tokens()[static_cast<size_t>(index)])
            << kPrompts[index / 3] << ", temperature " << kTemperatures[index % 3] << ", "
            << threads << " threads, chunks of " << chunk;
        EXPECT_EQ(out.target_passes, (out.prompt_tokens + chunk - 1) / chunk + out.stats.rounds);
        check(out);
      }
    }
  }
}

TEST(RealModel, NgramIsExact) {
  SKIP_WITHOUT_MODEL();
  const SpeculativeConfig speculation = parse_speculative_spec("ngram:gate=0").value();
  compare_with_plain(speculation, [](const Generation& out) { EXPECT_GT(out.stats.drafted, 0); });
}

// The model as its own draft: all that it proposes is right.
TEST(RealModel, DraftModelIsExact) {
  SKIP_WITHOUT_MODEL();
  const SpeculativeConfig speculation =
      parse_speculative_spec(std::string("draft_model:gate=0,num_speculative_tokens=4,model=") +
                             kModel)
          .value();
  compare_with_plain(speculation, [](const Generation& out) {
    EXPECT_EQ(out.stats.accepted, out.stats.drafted);
    EXPECT_EQ(out.stats.rounds, (kTokens - 1) / 5);
    EXPECT_EQ(out.stats.mean_accepted_length(), 5.0);
  });
}

// The heads that come with it say nothing else either, and what they draft is accepted.
TEST(RealModel, ShippedHeadsDraftForIt) {
  SKIP_WITHOUT_MODEL();
  const std::string heads = "models/heads/SmolLM2-135M-Instruct";
  const struct {
    std::string spec;
    double least;  // tokens of a round
  } cases[] = {
      {"eagle3:gate=0,num_speculative_tokens=5,model=" + heads + "-EAGLE3", 1.5},
      {"eagle3:gate=0,num_speculative_tokens=12,topk=4,num_steps=5,model=" + heads + "-EAGLE3",
       1.8},
      {"eagle3:gate=0,num_speculative_tokens=7,model=" + heads + "-P-EAGLE", 1.3},
      {"medusa:gate=0,num_speculative_tokens=4,model=" + heads + "-Medusa", 1.15},
      {"draft_model:gate=0,num_speculative_tokens=4,model=" + heads +
           "-draft/SmolLM2-135M-Instruct-draft.Q4_0.gguf",
       1.3},
  };
  for (const auto& [spec, least] : cases) {
    SCOPED_TRACE(spec);
    const auto engine = open(options_for(2, 512, parse_speculative_spec(spec).value()));
    int64_t rounds = 0, accepted = 0;
    for (int i = 0; i < kCases; i += 3) {  // at temperature 0
      const Generation out = generate(*engine, request_of(*engine, i));
      EXPECT_EQ(out.tokens, plain_tokens()[static_cast<size_t>(i)]) << kPrompts[i / 3];
      rounds += out.stats.rounds;
      accepted += out.stats.accepted;
    }
    EXPECT_GT(1.0 + static_cast<double>(accepted) / static_cast<double>(rounds), least);
  }
}

TEST(RealModel, NgramPaysOnQuotes) {
  SKIP_WITHOUT_MODEL();
  const SpeculativeConfig speculation = parse_speculative_spec("ngram:gate=0").value();
  const auto engine = open(options_for(2, 512, speculation));
  Request request;
  request.prompt = chat_prompt(
      *engine,
      "Fix the typo in this sentence and write the whole text again: The old lighthouse keeper "
      "climbed teh winding stairs every evening, carrying a lantern in one hand and a book of "
      "poems "
      "in the other.");
  request.max_tokens = 96;
  const Generation fast = generate(*engine, request);
  EXPECT_GT(fast.tokens.size(), 20u);
  EXPECT_GT(fast.stats.mean_accepted_length(), 1.5);
  request.speculate = false;
  const Generation plain = generate(*engine, request);
  EXPECT_EQ(fast.tokens, plain.tokens);
  EXPECT_EQ(fast.text, plain.text);
  EXPECT_LT(fast.target_passes, plain.target_passes);
}

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return -1;
}

// Not a test: what the next one runs in a process of its own.
TEST(RealModelProcess, DISABLED_OpensAndSaysOneToken) {
  const auto start = steady_now();
  EngineOptions options;
  options.model = kModel;
  const auto engine = open(options);
  Request request;
  request.prompt = chat_prompt(*engine, kPrompts[0]);
  request.max_tokens = 1;
  EXPECT_EQ(generate(*engine, request).tokens.size(), 1u);
  const double seconds = seconds_since(start);
  const int64_t cache =
      KvCache::bytes_needed(engine->parts().config(), engine->parts().options.context);
  std::printf("\nmeasured %f %ld %ld\n", seconds, static_cast<long>(peak_resident_bytes()),
              static_cast<long>(cache));
}

struct Measured {
  double seconds = -1.0;
  long peak = 0;
  long cache = 0;
};

Measured run_process() {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      "'" + self + "' --gtest_also_run_disabled_tests --gtest_filter=RealModelProcess.*";
  Measured measured;
  FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  char line[1024];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) {
    std::sscanf(line, "measured %lf %ld %ld", &measured.seconds, &measured.peak, &measured.cache);
  }
  EXPECT_EQ(pclose(pipe), 0);
  return measured;
}

TEST(RealModel, OpensSoonAndTakesLittle) {
  SKIP_WITHOUT_MODEL();
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer takes time and memory of its own";
  // The first run brings the file into the system's cache; of the others the best counts, since
  // other programs may be running.
  Measured best = run_process();
  for (int i = 0; i < 3; ++i) {
    const Measured measured = run_process();
    if (measured.seconds < best.seconds) best = measured;
  }
  const auto file = static_cast<double>(std::filesystem::file_size(kModel));
  std::printf("first token after %.2f s, peak %.0f MiB, file %.0f MiB, cache %.0f MiB\n",
              best.seconds, static_cast<double>(best.peak) / 1048576.0, file / 1048576.0,
              static_cast<double>(best.cache) / 1048576.0);
  EXPECT_GT(best.seconds, 0.0);
  // By day other tests have the cores, too.
  EXPECT_LT(best.seconds, test::nightly() ? 2.0 : 20.0);
  EXPECT_LT(static_cast<double>(best.peak), 2.5 * file + static_cast<double>(best.cache));
}

}  // namespace aerie::real_test
