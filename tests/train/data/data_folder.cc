#include "tests/train/data/data_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "train/data/dataset.h"

namespace aerie::train::test {

Scratch::Scratch() : folder_(testing::TempDir() + "aerie_data_XXXXXX") {
  if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << folder_ << " cannot be made";
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Scratch::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string write_target(const Scratch& scratch, const std::string& name, uint64_t seed) {
  aerie::test::TinySpec spec;
  spec.tokenizer = true;
  spec.vocab = aerie::test::kByteVocab;
  spec.context = 1024;
  spec.seed = seed;
  const Status status = tiny_gguf(spec).write(scratch.path(name));
  EXPECT_TRUE(status.ok()) << status.message();
  return scratch.path(name);
}

std::string write_prompts(const Scratch& scratch, const std::string& name, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    switch (i % 4) {
      case 0:
        text += fmt::format("{{\"turns\": [\"Say {}\", \"And again\"]}}\n", i);
        break;
      case 1:
        text += fmt::format("{{\"question\": \"What is {}?\", \"answer\": \"{}\"}}\n", i, i);
        break;
      case 2:
        text += fmt::format("{{\"task_id\": {}, \"text\": \"Write {}.\"}}\n", i, i);
        break;
      default:
        text += fmt::format(
            "{{\"messages\": [{{\"role\": \"system\", \"content\": \"Be brief.\"}}, {{\"role\": "
            "\"user\", \"content\": \"Tell {}\"}}, {{\"role\": \"assistant\", \"content\": "
            "\"No\"}}, {{\"role\": \"user\", \"content\": \"Why?\"}}]}}\n",
            i);
    }
  }
  return scratch.write(name, text);
}

GenerateOptions options_for(const Scratch& scratch, const std::string& model,
                            std::vector<std::string> prompts) {
  GenerateOptions options;
  options.target.model = model;
  options.target.threads = 1;
  options.target.sequences = 4;
  options.target.context = 256;
  options.prompts = std::move(prompts);
  options.out = scratch.path("out");
  options.settings.max_tokens = 24;
  options.settings.temperatures = {0.0, 1.0};
  options.settings.seed = 5;
  options.held_out = 0.25;
  return options;
}

GenerateResult generate(const GenerateOptions& options) {
  const auto result = generate_data(options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : GenerateResult();
}

std::map<std::string, std::string> lines_in(const std::string& folder) {
  std::map<std::string, std::string> lines;
  const auto dataset = read_dataset(folder);
  EXPECT_TRUE(dataset.ok()) << dataset.status().message();
  if (!dataset.ok()) return lines;
  for (const Sample& sample : dataset->samples) lines.emplace(sample.id, to_line(sample));
  return lines;
}

}  // namespace aerie::train::test
