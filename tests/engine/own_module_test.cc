// A module for multi-token prediction in the target's own file or folder: auto drafts with it
// unasked, and does without one that cannot be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/opened_model.h"
#include "tests/engine/small_tokenizer.h"

namespace aerie::own_module_test {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

constexpr int kLayers = 2;  // of the models; their modules tap what is behind the last

enum class Kind : uint8_t { kLlamaCpp, kFolder, kConverted };

struct Source {
  const char* name;
  Kind kind;
};

constexpr Source kSources[] = {{"qwen35-moe", Kind::kLlamaCpp},
                               {"deepseek3", Kind::kFolder},
                               {"deepseek3", Kind::kConverted},
                               {"glm4-moe-lite", Kind::kConverted}};

// A model with a module in a place of its own, where it may be changed.
class ModelCopy {
 public:
  explicit ModelCopy(const Source& source)
      : base_(fs::path(testing::TempDir()) / ("aerie_own_" + std::to_string(getpid()))),
        path_(base_ / "model"),
        is_folder_(source.kind == Kind::kFolder) {
    fs::remove_all(base_);
    fs::create_directory(base_);
    if (source.kind == Kind::kLlamaCpp) {
      path_ += ".gguf";
      fs::copy_file("tests/golden/gguf/qwen35-moe.q8_0.gguf", path_);
      return;
    }
    fs::copy(fs::path("tests/golden/families") / source.name, path_);
    std::ofstream(path_ / "tokenizer.json") << test::small_tokenizer().dump();
    if (source.kind == Kind::kConverted) convert();
  }
  ~ModelCopy() { fs::remove_all(base_); }
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;

  std::string path() const { return path_; }
  bool is_folder() const { return is_folder_; }

  // A name in the file that has the tensors, which the new one must be as long as.
  void change(const std::string& from, const std::string& to) {
    const fs::path file = is_folder_ ? path_ / "model.safetensors" : path_;
    std::ifstream in(file, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    in.close();
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(from.size(), to.size());
    std::ofstream(file, std::ios::binary) << bytes.replace(at, to.size(), to);
  }

 private:
  void convert() {
    ConvertOptions options;
    options.input = path_;
    options.output = base_ / "model.gguf";
    options.threads = 1;
    EXPECT_EQ(convert_model(options).status().message(), "");
    path_ = options.output;
  }

  fs::path base_, path_;
  bool is_folder_;
};

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

class OwnModule : public testing::TestWithParam<Source> {
 protected:
  ModelCopy copy_{GetParam()};
};

TEST_P(OwnModule, IsAmongThoseOfAuto) {
  EXPECT_THAT(taps(copy_.path(), "auto"), Contains(kLayers));
  EXPECT_THAT(taps(copy_.path(), "mtp"), Contains(kLayers));
  EXPECT_THAT(taps(copy_.path(), "auto,mtp:num_speculative_tokens=2"), Contains(kLayers));
  EXPECT_THAT(taps(copy_.path(), "ngram"), Not(Contains(kLayers)));
  EXPECT_THAT(taps(copy_.path(), "none"), Not(Contains(kLayers)));
}

TEST_P(OwnModule, ChangesNoToken) {
  for (const double temperature : {0.0, 0.9}) {
    const Generation plain = generate(copy_.path(), "none", temperature);
    ASSERT_EQ(plain.tokens.size(), 60u);
    EXPECT_EQ(generate(copy_.path(), "auto", temperature).tokens, plain.tokens);
    const Generation own = generate(copy_.path(), "mtp", temperature);
    EXPECT_EQ(own.tokens, plain.tokens);
    EXPECT_GT(own.stats.drafted, 0);
    // Several steps with the one module.
    EXPECT_EQ(own.stats.proposed_at.size(), 5u);
  }
}

TEST_P(OwnModule, ThatCannotBeReadIsLeftOut) {
  const std::string of = copy_.is_folder() ? "model.layers.2." : "blk.2.nextn.";
  copy_.change(of + "hnorm.weight", of + "xnorm.weight");
  const Generation plain = generate(copy_.path(), "none", 0.0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(generate(copy_.path(), "auto", 0.0).tokens, plain.tokens);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(copy_.is_folder() ? "the model is read without its module"
                                          : "auto drafts without method mtp"));
  EXPECT_THAT(taps(copy_.path(), "auto"), Not(Contains(kLayers)));
  const Status named = Engine::open(options_for(copy_.path(), "mtp")).status();
  EXPECT_FALSE(named.ok());
  EXPECT_THAT(named.message(), HasSubstr(copy_.is_folder() ? "model.layers.2.xnorm.weight"
                                                           : "no tensor 'blk.2.nextn.hnorm"));
}

// Model and module on a device: what it asks for in the device's memory, and ids with and without.
TEST(OwnModuleOnADevice, ChangesNoToken) {
  const ModelCopy copy({"deepseek3", Kind::kFolder});
  const auto generate_there = [&](const std::string& spec) {
    EngineOptions options = options_for(copy.path(), spec);
    options.device = "emulated";
    testing::internal::CaptureStderr();
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("the processor computes")));
    if (!engine.ok()) return Generation();
    Request request;
    request.prompt = {1, 20, 31, 42};
    request.max_tokens = 20;
    request.ignore_eos = true;
    return (*engine)->generate(request, nullptr).value();
  };
  const Generation plain = generate_there("none"), own = generate_there("mtp");
  ASSERT_EQ(plain.tokens.size(), 20u);
  EXPECT_EQ(own.tokens, plain.tokens);
  EXPECT_GT(own.stats.drafted, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, OwnModule, testing::ValuesIn(kSources),
                         [](const testing::TestParamInfo<Source>& one) {
                           return "Number" + std::to_string(one.index);
                         });

}  // namespace aerie::own_module_test
