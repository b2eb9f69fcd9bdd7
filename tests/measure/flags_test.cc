// The command line of `aerie bench`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/measure/models.h"
#include "tools/measure/bench_command.h"

namespace aerie::flags_test {

using testing::HasSubstr;

Status run(std::vector<std::string> words) {
  CLI::App app;
  const auto bench = add_bench_flags(app);
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return {StatusCode::kInvalidArgument, error.what()};
  }
  return bench();
}

std::string refusal(const std::vector<std::string>& words) {
  const Status status = run(words);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  return status.message();
}

TEST(BenchFlags, MakesAndVerifiesAModel) {
  const std::string model = testing::TempDir() + "bench_flags.gguf";
  const std::string figures = testing::TempDir() + "bench_flags.json";
  const Status made = run({"make-model", "--shape", "tiny", "--type", "Q5_1", model});
  ASSERT_TRUE(made.ok()) << made.message();
  const Status verified =
      run({"verify", "-m", model, "--rows", "1,2", "--context", "64,16", "--threads", "1",
           "--repeat", "1", "--cache-type", "q8", "--json", figures});
  EXPECT_TRUE(verified.ok()) << verified.message();
  std::ifstream file(figures);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  EXPECT_EQ(json["points"].size(), 4u);
  EXPECT_EQ(json["cache_type"], "q8");
  std::remove(model.c_str());
  std::remove(figures.c_str());
}

TEST(BenchFlags, VerifiesAModelWithoutAFile) {
  const std::string figures = testing::TempDir() + "bench_made.json";
  const Status verified = run({"verify", "--shape", "tiny", "--layers", "1", "--type", "bf16",
                               "--rows", "1", "--context", "16", "--prompt", "32,64", "--threads",
                               "1", "--repeat", "1", "--json", figures});
  EXPECT_TRUE(verified.ok()) << verified.message();
  std::ifstream file(figures);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  EXPECT_EQ(json["model"], "tiny-bf16");
  EXPECT_EQ(json["prompts"].size(), 2u);
  std::remove(figures.c_str());

  EXPECT_THAT(refusal({"verify"}), HasSubstr("give --model, or --shape: smollm2-135m"));
  EXPECT_THAT(refusal({"verify", "--shape", "small"}), HasSubstr("there is no shape 'small'"));
  EXPECT_THAT(refusal({"verify", "--shape", "tiny", "-m", "a.gguf"}), HasSubstr("excludes"));
  EXPECT_THAT(refusal({"verify", "-m", "a.gguf", "--type", "bf16"}), HasSubstr("requires"));
  EXPECT_THAT(refusal({"verify", "--shape", "tiny", "--layers", "3"}),
              HasSubstr("3 layers of tiny"));
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(BenchFlags, ComparesSpeculation) {
  const measure::MadeModel model("tiny", DType::kQ8_0);
  const std::string folder = testing::TempDir();
  const std::string prompts = folder + "flags.jsonl", figures = folder + "flags.json",
                    page = folder + "flags.html";
  std::ofstream(prompts)
      << "{\"turns\": [\"a b a b\"]}\n{\"prompt\": \"c\"}\n{\"prompt\": \"d\"}\n";
  const Status status = run({"spec",
                             "-m",
                             model.path(),
                             "--dataset",
                             prompts,
                             "--method",
                             "ngram:prompt_lookup_max=2,num_speculative_tokens=3",
                             "--method",
                             "draft_model:model=" + model.path(),
                             "--temperature",
                             "0,0.5",
                             "--limit",
                             "2",
                             "--sample",
                             "2",
                             "--max-tokens",
                             "8",
                             "--repeat",
                             "1",
                             "--seed",
                             "9",
                             "--ctx",
                             "256",
                             "--threads",
                             "1",
                             "--json",
                             figures,
                             "--html",
                             page});
  ASSERT_TRUE(status.ok()) << status.message();
  const auto json = nlohmann::json::parse(text_of(figures), nullptr, false);
  ASSERT_EQ(json["methods"].size(), 6u);
  EXPECT_EQ(json["methods"][0]["method"], "none");
  EXPECT_EQ(json["methods"][4]["method"],
            "ngram:prompt_lookup_max=2,num_speculative_tokens=3,gate=0");
  EXPECT_EQ(json["methods"][4]["temperature"], 0.5);
  EXPECT_EQ(json["prompts"], 2);
  EXPECT_EQ(json["seed"], 9);
  EXPECT_FALSE(json["passes"].empty());
  EXPECT_THAT(text_of(page), HasSubstr("</html>"));

  const Status swept = run({"sweep", "-m", model.path(), "--dataset", prompts, "--method", "ngram",
                            "--depths", "1,3", "--max-tokens", "8", "--repeat", "1", "--threads",
                            "1", "--json", figures, "--html", page});
  ASSERT_TRUE(swept.ok()) << swept.message();
  // Four temperatures unless it is told others.
  EXPECT_EQ(nlohmann::json::parse(text_of(figures), nullptr, false)["sweep"].size(), 4u);

  const Status simulated = run({"spec", "-m", model.path(), "--simulate-acceptance", "0.9,0.5",
                                "--draft-cost", "0.1", "--threads", "1", "--json", figures});
  ASSERT_TRUE(simulated.ok()) << simulated.message();
  EXPECT_EQ(nlohmann::json::parse(text_of(figures), nullptr, false)["synthetic"], true);
  for (const std::string& path : {prompts, figures, page}) std::remove(path.c_str());
}

TEST(BenchFlags, RefusesClearly) {
  EXPECT_THAT(refusal({}), HasSubstr("subcommand"));
  EXPECT_THAT(refusal({"make-model", "--shape", "huge", "x.gguf"}),
              HasSubstr("give one of smollm"));
  EXPECT_THAT(refusal({"make-model", "--shape", "tiny", "--type", "q9", "x.gguf"}),
              HasSubstr("no type 'q9': give one of f32"));
  EXPECT_THAT(refusal({"make-model", "x.gguf"}), HasSubstr("--shape"));
  EXPECT_THAT(refusal({"verify"}), HasSubstr("--model"));
  EXPECT_THAT(refusal({"verify", "-m", "x", "--rows", "1,two"}), HasSubstr("--rows"));
  EXPECT_THAT(refusal({"verify", "-m", "x", "--isa", "mmx"}), HasSubstr("--isa mmx"));
  EXPECT_THAT(refusal({"verify", "-m", "x", "--cache-type", "q4"}),
              HasSubstr("--cache-type q4: give f16 or q8"));
  EXPECT_THAT(refusal({"verify", "-m", "x", "--json", "/nowhere/x"}), HasSubstr("--json"));
  EXPECT_THAT(refusal({"kernels", "--types", "q4_0,q3"}), HasSubstr("no type 'q3'"));
  EXPECT_THAT(refusal({"decode", "-m", "x", "--speculate", "magic"}), HasSubstr("--speculate"));
  EXPECT_THAT(refusal({"spec", "-m", "x", "--method", "magic"}), HasSubstr("--method"));
  EXPECT_THAT(refusal({"spec", "-m", "x"}), HasSubstr("--dataset"));
  EXPECT_THAT(refusal({"spec", "-m", "x", "--verify", "maybe"}), HasSubstr("--verify"));
  EXPECT_THAT(refusal({"spec", "-m", "x", "--html", "/nowhere/x"}), HasSubstr("--html /nowhere/x"));
  EXPECT_THAT(refusal({"spec", "-m", "x", "--simulate-acceptance", "2"}), HasSubstr("2"));
  EXPECT_THAT(refusal({"spec", "-m", "x", "--simulate-acceptance", "1", "--method", "ngram"}),
              HasSubstr("leave out"));
}

TEST(BenchFlags, LoadsAServer) {
  const std::string prompts = testing::TempDir() + "flags_serve.jsonl";
  std::ofstream(prompts) << "{\"prompt\": \"c\"}\n";
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"serve", "--url", "http://127.0.0.1:1/v1/", "--dataset",
                                      prompts};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  EXPECT_EQ(run(with({})).code(), StatusCode::kNotFound);
  EXPECT_EQ(run(with({"--sweep"})).code(), StatusCode::kNotFound);
  EXPECT_EQ(run(with({"--compare", "off,ngram@5", "--rate", "inf"})).code(), StatusCode::kNotFound);
  EXPECT_THAT(refusal(with({"--compare", "off,,auto"})), HasSubstr("NAME@DEPTH"));
  EXPECT_THAT(refusal(with({"--compare", "off", "--sweep"})), HasSubstr("--sweep"));
  EXPECT_THAT(refusal(with({"--depths", "3"})), HasSubstr("--sweep"));
  EXPECT_THAT(refusal(with({"--rate", "0"})), HasSubstr("--rate"));
  EXPECT_THAT(refusal(with({"--extra-body", "[1]"})), HasSubstr("--extra-body"));
  EXPECT_THAT(refusal(with({"--extra-body", "{"})), HasSubstr("--extra-body"));
  EXPECT_THAT(refusal(with({"--endpoint", "chats"})), HasSubstr("completions"));
  // The server is 127.0.0.1:8000, as in vLLM, unless something else is said.
  for (const auto& [host, url] :
       {std::pair("127.0.0.1", "http://127.0.0.1:1/v1"), std::pair("::1", "http://[::1]:1/v1")}) {
    const Status status = run({"serve", "--host", host, "--port", "1", "--dataset", prompts});
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(url));
  }
  EXPECT_THAT(refusal({"serve", "--port", "1"}), HasSubstr("--dataset-name random"));
  EXPECT_THAT(refusal({"serve", "--dataset", prompts, "--dataset-name", "random"}),
              HasSubstr("leave --dataset out"));
  EXPECT_THAT(refusal({"serve", "--port", "0"}), HasSubstr("--port"));
  std::remove(prompts.c_str());
}

}  // namespace aerie::flags_test
