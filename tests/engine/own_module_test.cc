// A module for multi-token prediction in the target's own file: auto drafts with it unasked, and
// does without one that cannot be read. The file is one of llama.cpp's converter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/engine.h"
#include "engine/opened_model.h"

namespace aerie::own_module_test {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kFile = "tests/golden/gguf/qwen35-moe.q8_0.gguf";
constexpr int kLayers = 2;  // of the model; the module taps what is behind the last

EngineOptions options_for(const std::string& model, const std::string& spec) {
  EngineOptions options;
  options.model = model;
  options.threads = 1;
  options.speculation = parse_speculative_spec(spec).value();
  options.speculation.open_gate();
  return options;
}

std::vector<int32_t> taps(const std::string& model, const std::string& spec) {
  const auto opened = open_model(options_for(model, spec), {});
  EXPECT_TRUE(opened.ok()) << spec << ": " << opened.status().message();
  if (!opened.ok() || opened->drafter() == nullptr) return {};
  return opened->drafter()->needs().tap_layers;
}

Generation generate(const std::string& model, const std::string& spec, double temperature) {
  auto engine = Engine::open(options_for(model, spec));
  EXPECT_TRUE(engine.ok()) << spec << ": " << engine.status().message();
  if (!engine.ok()) return {};
  Request request;
  request.prompt = {1, 20, 31, 42};
  request.sampling.temperature = temperature;
  request.sampling.seed = 3;
  request.max_tokens = 60;
  request.ignore_eos = true;
  return (*engine)->generate(request, nullptr).value();
}

// The file with a name in it changed, which must be as long.
class ChangedFile {
 public:
  ChangedFile(const std::string& from, const std::string& to)
      : path_(testing::TempDir() + "aerie_" + std::to_string(getpid()) + "_changed.gguf") {
    std::ifstream in(kFile, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos);
    EXPECT_EQ(from.size(), to.size());
    if (at != std::string::npos) bytes.replace(at, to.size(), to);
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~ChangedFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(OwnModule, IsAmongThoseOfAuto) {
  EXPECT_THAT(taps(kFile, "auto"), Contains(kLayers));
  EXPECT_THAT(taps(kFile, "mtp"), Contains(kLayers));
  EXPECT_THAT(taps(kFile, "auto,mtp:num_speculative_tokens=2"), Contains(kLayers));
  EXPECT_THAT(taps(kFile, "ngram"), Not(Contains(kLayers)));
  EXPECT_THAT(taps(kFile, "none"), Not(Contains(kLayers)));
}

TEST(OwnModule, ChangesNoToken) {
  for (const double temperature : {0.0, 0.9}) {
    const Generation plain = generate(kFile, "none", temperature);
    ASSERT_EQ(plain.tokens.size(), 60u);
    EXPECT_EQ(generate(kFile, "auto", temperature).tokens, plain.tokens);
    const Generation own = generate(kFile, "mtp", temperature);
    EXPECT_EQ(own.tokens, plain.tokens);
    EXPECT_GT(own.stats.drafted, 0);
    // Several steps with the one module.
    EXPECT_EQ(own.stats.proposed_at.size(), 5u);
  }
}

TEST(OwnModule, ThatCannotBeReadIsLeftOut) {
  const ChangedFile file("blk.2.nextn.hnorm.weight", "blk.2.nextn.xnorm.weight");
  const Generation plain = generate(file.path(), "none", 0.0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(generate(file.path(), "auto", 0.0).tokens, plain.tokens);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("auto drafts without method mtp"));
  EXPECT_THAT(taps(file.path(), "auto"), Not(Contains(kLayers)));
  const Status named = Engine::open(options_for(file.path(), "mtp")).status();
  EXPECT_EQ(named.code(), StatusCode::kNotFound);
  EXPECT_THAT(named.message(), HasSubstr("there is no tensor 'blk.2.nextn.hnorm.weight'"));
}

}  // namespace aerie::own_module_test
