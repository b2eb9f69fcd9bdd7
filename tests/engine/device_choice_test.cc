#include "engine/placement/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "draft/network/draft_model.h"
#include "engine/engine.h"
#include "engine/opened_model.h"
#include "model/device/load_device_model.h"
#include "model/import/hugging_face_file.h"
#include "tests/engine/small_tokenizer.h"
#include "tests/testing/tiny_model.h"

namespace aerie::device_choice_test {

using testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

// One that is only asked what it is.
class IdleDevice final : public device::Device {
 public:
  explicit IdleDevice(int64_t free) { free_ = free; }
  device::Info info() override {
    device::Info info;
    std::strcpy(info.name, "Test GPU");
    info.memory = 320 * kMiB;
    info.free = free_;
    return info;
  }
  void* allocate(size_t) override { return nullptr; }
  void release(void*) override {}
  void* allocate_host(size_t) override { return nullptr; }
  void release_host(void*) override {}
  void copy_in(void*, const void*, size_t) override {}
  void copy_out(void*, const void*, size_t) override {}
  void clear(void*, size_t) override {}
  bool wait() override { return true; }
  void mark() override {}
  bool wait_for_mark() override { return true; }
  const char* error() override { return ""; }
  void begin_graph() override {}
  device::Graph* end_graph() override { return nullptr; }
  void launch(device::Graph*) override {}
  void destroy(device::Graph*) override {}
  void product(const device::Product&) override {}
  void place(const device::Place&) override {}
  void place_latent(const device::PlaceLatent&) override {}
  void attend(const device::Attend&) override {}
  void begin(const device::Begin&) override {}
  void layer_norm(const device::LayerNorm&) override {}
  void add_normed(const device::AddNormed&) override {}
  void copy_rows(const device::CopyRows&) override {}
  void narrow_rows(const device::NarrowRows&) override {}
  void narrow_heads(const device::NarrowHeads&) override {}
  void map_rows(const device::MapRows&) override {}
  void top(const device::Top&) override {}
  void next_rows(const device::NextRows&) override {}
  void route(const device::Route&) override {}
  void expert_product(const device::ExpertProduct&) override {}
  void add_experts(const device::AddExperts&) override {}
  void add_beside(const device::AddBeside&) override {}
  void convolve(const device::Convolve&) override {}
  void scan_states(const device::ScanStates&) override {}
  void gate_heads(const device::GateHeads&) override {}
  void gate_groups(const device::GateGroups&) override {}
  void move_states(const device::MoveStates&) override {}
  void gate_rows(const device::GateRows&) override {}
  void join_inputs(const device::JoinInputs&) override {}
  void move_entries(const device::MoveEntries&) override {}
  void best(const device::Best&) override {}
  void start_clock() override {}
  double stop_clock() override { return 0.0; }
  void time_graphs(bool) override {}
  double graph_seconds() override { return 0.0; }

 private:
  int64_t free_ = 0;
};

class DeviceChoice : public testing::Test {
 protected:
  DeviceChoice() {
    access_.open = [this](const std::string& name) -> Expected<std::unique_ptr<device::Device>> {
      opened_.push_back(name);
      if (!status_.ok()) return status_;
      return std::unique_ptr<device::Device>(new IdleDevice(free_));
    };
    access_.supports = [this](const ModelFile&) { return supported_; };
    access_.is_there = [this] { return is_there_; };
  }

  // The device's name, "cpu", or the error; what was logged is in said_.
  std::string choose(const EngineOptions& options) {
    const auto config = read_model_config(file_.gguf());
    EXPECT_TRUE(config.ok());
    testing::internal::CaptureStderr();
    auto chosen = choose_device(options, file_.gguf(), *config, access_);
    said_ = testing::internal::GetCapturedStderr();
    if (!chosen.ok()) return std::string(chosen.status().message());
    if (*chosen == nullptr) return "cpu";
    device_ = std::move(*chosen);
    return device_->name;
  }
  std::string choose(const std::string& device, std::optional<int> layers = std::nullopt) {
    EngineOptions options;
    options.device = device;
    options.device_layers = layers;
    return choose(options);
  }

  const test::TinyFile file_{test::TinySpec{}};  // two layers
  DeviceAccess access_;
  Status status_, supported_;
  bool is_there_ = true;
  int64_t free_ = 200 * kMiB;
  std::vector<std::string> opened_;
  std::unique_ptr<OpenedDevice> device_;
  std::string said_;
};

TEST(DeviceNames, AreRead) {
  for (const auto& [text, name] : {std::pair("auto", "auto"),
                                   {"cpu", "cpu"},
                                   {"none", "cpu"},
                                   {"cuda", "cuda:0"},
                                   {"gpu", "cuda:0"},
                                   {"cuda:3", "cuda:3"},
                                   {"CUDA1", "cuda:1"},
                                   {"emulated", "emulated"}}) {
    const auto read = parse_device(text);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, name);
  }
  for (const char* text : {"", "cuda:", "cuda:-1", "cuda:x", "cuda:1 ", "CUDA0,CUDA1", "rocm"}) {
    const auto read = parse_device(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(read.status().message(), HasSubstr("give auto, cpu, cuda, cuda:N or emulated"));
  }
}

TEST(DeviceMemoryLimit, IsBytesOrAShare) {
  EXPECT_EQ(*parse_device_memory("0.9"), DeviceShare{.share = 0.9});
  EXPECT_EQ(*parse_device_memory("1"), DeviceShare{.share = 1.0});
  EXPECT_EQ(*parse_device_memory("1048576"), DeviceShare{.bytes = kMiB});
  EXPECT_EQ(*parse_device_memory("20G"), DeviceShare{.bytes = 20480 * kMiB});
  EXPECT_EQ(*parse_device_memory("1.5GiB"), DeviceShare{.bytes = 1536 * kMiB});
  EXPECT_EQ(*parse_device_memory("500mb"), DeviceShare{.bytes = 500 * kMiB});
  for (const char* text : {"", "0", "-1", "nan", "inf", "1.5", "24", "20X", "20Gx", "G", "1e30"}) {
    const auto read = parse_device_memory(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(read.status().message(), HasSubstr("such as 20G")) << text;
  }
}

TEST(DeviceLayers, AreANumberOrAll) {
  EXPECT_EQ(*parse_device_layers("99"), 99);
  EXPECT_EQ(*parse_device_layers("all"), INT_MAX);
  EXPECT_EQ(*parse_device_layers("auto"), EngineOptions::kLayersThatFit);
  EXPECT_EQ(*parse_device_layers("-1"), EngineOptions::kLayersThatFit);
  EXPECT_EQ(*parse_device_layers("-9"), EngineOptions::kLayersThatFit);
  for (const char* text : {"", "some", "3.5", "9999999999999"}) {
    EXPECT_FALSE(parse_device_layers(text).ok()) << text;
  }
}

TEST_F(DeviceChoice, TheProcessorIsAskedForNothing) {
  EXPECT_EQ(choose("cpu"), "cpu");
  EXPECT_EQ(choose("auto", 0), "cpu");
  EXPECT_THAT(opened_, testing::IsEmpty());
  EXPECT_EQ(said_, "");
}

TEST_F(DeviceChoice, AutoTakesTheFirstGpu) {
  EXPECT_EQ(choose("auto"), "cuda:0");
  EXPECT_EQ(device_->words(), "cuda:0 (Test GPU)");
  EXPECT_EQ(said_, "");
  EXPECT_EQ(choose("auto", 2), "cuda:0");
  EXPECT_EQ(choose("auto", 99), "cuda:0");
  EXPECT_EQ(choose("cuda:1", 0), "cuda:1");  // a name says more
}

TEST_F(DeviceChoice, AutoSaysWhyAGpuIsNotUsed) {
  status_ = not_supported("too old");
  EXPECT_EQ(choose("auto"), "cpu");
  EXPECT_THAT(said_, HasSubstr("there is a GPU, and the processor computes"));
  EXPECT_THAT(said_, HasSubstr("too old"));
  is_there_ = false;
  EXPECT_EQ(choose("auto"), "cpu");
  EXPECT_EQ(said_, "");
  EXPECT_EQ(choose("auto", 99), "cpu");
  EXPECT_THAT(said_, HasSubstr("in spite of --n-gpu-layers: too old"));
  is_there_ = true;
  status_ = Status();
  supported_ = not_supported("no code for such layers");
  opened_.clear();
  EXPECT_EQ(choose("auto"), "cpu");
  EXPECT_THAT(said_, HasSubstr("no code for such layers"));
  EXPECT_THAT(opened_, testing::IsEmpty());
}

TEST_F(DeviceChoice, ADeviceThatWasAskedForIsHadOrAnError) {
  status_ = not_supported("there is no driver");
  EXPECT_EQ(choose("cuda:0"), "--device cuda:0: there is no driver");
  status_ = Status();
  supported_ = not_supported("no code for such layers");
  EXPECT_EQ(choose("emulated"), "--device emulated: no code for such layers");
  supported_ = Status();
  EngineOptions options;
  options.device = "cuda:0";
  options.cache_type = kernels::KvType::kQ8;
  EXPECT_THAT(choose(options), HasSubstr("caches of f16 alone: leave out --cache-type q8"));
  options.device = "auto";
  EXPECT_EQ(choose(options), "cpu");
  EXPECT_THAT(said_, HasSubstr("caches of f16 alone"));
}

TEST_F(DeviceChoice, RanksAreOfProcessors) {
  class Nobody final : public Group {
   public:
    int rank() const override { return 0; }
    int size() const override { return 2; }
    std::string name(int) const override { return ""; }
    int neighbours() const override { return 2; }
    void tell(std::span<const std::byte>) override {}
    void listen(std::vector<std::byte>&) override {}
    void answer(std::span<const std::byte>) override {}
    std::vector<std::vector<std::byte>> collect() override { return {}; }
    void all_gather(std::span<const std::span<std::byte>>) override {}
  };
  EngineOptions options;
  options.group = std::make_shared<Nobody>();
  options.device = "cuda:0";
  EXPECT_THAT(choose(options), HasSubstr("--device cuda:0: --tensor-parallel shares a model"));
  options.device = "auto";
  is_there_ = false;
  EXPECT_EQ(choose(options), "cpu");
  EXPECT_EQ(said_, "");
}

TEST_F(DeviceChoice, TheLastLayersAreTheDevices) {
  for (const char* device : {"auto", "cuda:0"}) {
    ASSERT_EQ(choose(device, 1), "cuda:0");
    EXPECT_EQ(device_->first_layer, 1);
    EXPECT_EQ(device_->words(), "cuda:0 (Test GPU, from layer 1 on; the processor before)");
    for (const int layers : {2, 99}) {
      ASSERT_EQ(choose(device, layers), "cuda:0");
      EXPECT_EQ(device_->first_layer, 0);
      EXPECT_EQ(device_->words(), "cuda:0 (Test GPU)");
    }
  }
}

TEST_F(DeviceChoice, MemoryIsWhatIsFreeWithinTheLimit) {
  EngineOptions options;
  options.device = "cuda:0";
  ASSERT_EQ(choose(options), "cuda:0");
  EXPECT_EQ(device_->room.free(), 190 * kMiB);  // a 32nd of 320 MiB is left alone
  options.device_memory.share = 0.5;
  ASSERT_EQ(choose(options), "cuda:0");
  EXPECT_EQ(device_->room.free(), 160 * kMiB);
  device_->room.taken = 100 * kMiB;
  EXPECT_EQ(device_->room.free(), 60 * kMiB);
  options.device_memory = {.bytes = 1000 * kMiB};
  ASSERT_EQ(choose(options), "cuda:0");
  EXPECT_EQ(device_->room.free(), 190 * kMiB);
}

TEST_F(DeviceChoice, SaysWhatIsMissing) {
  EngineOptions options;
  options.device = "cuda:0";
  options.device_memory.bytes = 100 * kMiB;
  ASSERT_EQ(choose(options), "cuda:0");
  EXPECT_TRUE(check_device_memory("m", {50 * kMiB, 30 * kMiB, 20 * kMiB}, *device_).ok());
  const Status status = check_device_memory("m.gguf", {150 * kMiB, 30 * kMiB, 20 * kMiB}, *device_);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "m.gguf: 150 MiB of weights, 30 MiB of cache and 20 MiB of working memory do not fit "
            "into the 100 MiB that cuda:0 (Test GPU) has left of 320 MiB, of which --gpu-memory "
            "allows 100 MiB: 100 MiB are missing; take a smaller model, a smaller context, or a "
            "cache of fewer tokens or fewer bits");
}

TEST_F(DeviceChoice, AutoLeavesADeviceWithoutRoomAlone) {
  EngineOptions options;
  ASSERT_EQ(choose(options), "cuda:0");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(leave_device(options, *device_, resource_exhausted("9 MiB are missing")).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("and not cuda:0 (Test GPU): 9 MiB are missing"));
  // What is wrong with the model is wrong elsewhere, too.
  EXPECT_EQ(leave_device(options, *device_, invalid_data("torn")).message(), "torn");
  EXPECT_TRUE(leave_device(options, *device_, not_supported("no code for it")).ok());
  options.device = "cuda:0";
  EXPECT_EQ(leave_device(options, *device_, resource_exhausted("full")).message(), "full");
}

// The emulator, through the engine.
class DeviceOfAnEngine : public testing::Test {
 protected:
  DeviceOfAnEngine() {
    test::TinySpec spec;
    spec.vocab = test::kByteVocab;
    spec.tokenizer = true;
    EXPECT_TRUE(test::tiny_gguf(spec).write(path_).ok());
  }
  ~DeviceOfAnEngine() override { std::remove(path_.c_str()); }

  EngineOptions options(const std::string& speculation) const {
    EngineOptions options;
    options.model = path_;
    options.threads = 1;
    options.context = 64;
    options.device = "emulated";
    options.speculation = *parse_speculative_spec(speculation);
    return options;
  }

  // With drafts, of which there are some, and without.
  static void expect_same_ids(Engine& engine, std::vector<int32_t> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = 12;
    request.ignore_eos = true;
    const auto drafted = engine.generate(request, nullptr);
    ASSERT_TRUE(drafted.ok()) << drafted.status().message();
    EXPECT_GT(drafted->stats.drafted, 0);
    request.speculate = false;
    const auto plain = engine.generate(request, nullptr);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    EXPECT_EQ(drafted->tokens, plain->tokens);
  }

  const std::string path_ = testing::TempDir() + "device_choice.gguf";
};

TEST_F(DeviceOfAnEngine, ComputesModelAndDrafts) {
  EngineOptions options = this->options("draft_model:model=" + path_ + ",gate=0");
  const auto engine = Engine::open(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  OpenedModel& parts = (*engine)->parts();
  EXPECT_EQ(parts.options.device, "emulated");
  ASSERT_NE(parts.device, nullptr);
  EXPECT_THAT(parts.device_make(), HasSubstr("emulated"));
  EXPECT_EQ(parts.cache->plane(0), nullptr);
  EXPECT_EQ(parts.memory.taken, 0);  // drafts are there, too
  EXPECT_GT(parts.device->room.taken, 0);
  Request request;
  request.prompt = {65, 66, 67};
  request.max_tokens = 6;
  request.ignore_eos = true;
  const auto drafted = (*engine)->generate(request, nullptr);
  ASSERT_TRUE(drafted.ok()) << drafted.status().message();
  EXPECT_GT(drafted->stats.accepted, 0);
  request.speculate = false;
  const auto plain = (*engine)->generate(request, nullptr);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(drafted->tokens, plain->tokens);

  options.device_memory.bytes = kMiB;
  const auto refused = Engine::open(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("--gpu-memory allows 1 MiB"));
}

// Layers on either side: the same ids with drafts and without, memory of both, and what is missing
// on either is said.
TEST_F(DeviceOfAnEngine, MayHaveSomeOfTheLayers) {
  for (const std::string& speculation : {std::string("draft_model:gate=0,model=") + path_,
                                         std::string("early_exit:gate=0,exit_layer=1"),
                                         std::string("layer_skip:gate=0,skip_layers=0")}) {
    SCOPED_TRACE(speculation);
    EngineOptions options = this->options(speculation);
    options.device_layers = 1;
    const auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    OpenedModel& parts = (*engine)->parts();
    EXPECT_EQ(parts.device->first_layer, 1);
    EXPECT_NE(parts.cache->plane(0), nullptr);
    EXPECT_EQ(parts.cache->plane(1), nullptr);
    EXPECT_GT(parts.memory.taken, 0);
    EXPECT_GT(parts.device->room.taken, 0);
    ASSERT_NO_FATAL_FAILURE(expect_same_ids(**engine, {65, 66, 67, 65, 66, 67, 65}));
  }
  EngineOptions options = this->options("ngram");
  options.device_layers = 1;
  options.device_memory.bytes = 100000;
  EXPECT_THAT(Engine::open(options).status().message(), HasSubstr("of which --gpu-memory allows"));
}

// Of a hybrid, without layers on either side of the division: what a cache of the rest takes here
// is counted by the layers that are left here.
TEST_F(DeviceOfAnEngine, MayHaveSomeOfTheLayersOfAHybrid) {
  EngineOptions options = this->options("layer_skip:gate=0,skip_layers=0+3");
  const std::string folder = testing::TempDir() + "device_choice_hybrid";
  std::filesystem::remove_all(folder);
  std::filesystem::copy("tests/golden/families/granite-hybrid", folder);
  std::ofstream(folder + "/tokenizer.json") << test::small_tokenizer().dump();
  options.model = folder;
  options.device_layers = 1;
  const auto engine = Engine::open(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->parts().device->first_layer, 3);
  ASSERT_NO_FATAL_FAILURE(expect_same_ids(**engine, {5, 6, 7, 5, 6, 7, 5}));
}

// As many as there is room for; none, and so the reason, where there is room for none.
TEST_F(DeviceOfAnEngine, HasAsManyLayersAsFit) {
  EngineOptions options = this->options("ngram");
  options.device_layers = EngineOptions::kLayersThatFit;
  const auto whole = open_model(options, {.sequences = 1});
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(whole->device->first_layer, 0);
  options.device_memory.bytes = whole->device->room.taken - 1;
  testing::internal::CaptureStderr();
  const auto some = open_model(options, {.sequences = 1});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("1 of 2 layers (--n-gpu-layers 1)"));
  ASSERT_TRUE(some.ok()) << some.status().message();
  EXPECT_EQ(some->device->first_layer, 1);
  EXPECT_EQ(some->options.device_layers, 1);
  // Without being asked nothing is divided.
  EngineOptions named = options;
  named.device_layers.reset();
  EXPECT_EQ(open_model(named, {.sequences = 1}).status().code(), StatusCode::kResourceExhausted);
  options.device_memory.bytes = 100000;
  const auto none = open_model(options, {.sequences = 1});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("do not fit"));
}

// What the parts take is what the whole takes.
TEST_F(DeviceOfAnEngine, CountsTheMemoryOfEither) {
  int64_t cache = 0;
  const auto taken = [&](std::optional<int> layers) {
    EngineOptions options = this->options("ngram");
    options.device_layers = layers;
    const auto opened = open_model(options, {.sequences = 2});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    cache = KvCache::bytes_needed(opened->config(), opened->cache->creation());
    return std::pair(opened->memory.taken, opened->device->room.taken);
  };
  const auto whole = taken(std::nullopt), divided = taken(1);
  EXPECT_EQ(whole.first, 0);
  EXPECT_GT(divided.first, 0);
  EXPECT_LT(divided.second, whole.second);
  const auto file = open_model_file(path_).value();
  const ModelConfig config = *read_model_config(*file);
  const int64_t cache_of_layer = cache / config.layers;
  const int64_t weights = device_weight_bytes(*file) - device_weight_bytes(*file, {.first = 1});
  EXPECT_EQ(whole.second - divided.second, weights + cache_of_layer);
  const kernels::Backend& backend = *kernels::backend(kernels::best_isa());
  EXPECT_GE(divided.first, loaded_weight_bytes(*file, backend, {.end = 1}) + cache_of_layer);
}

TEST_F(DeviceOfAnEngine, CountsTheCachesOfDrafts) {
  // Of three sequences.
  const auto taken = [&](const std::string& speculation) {
    const auto opened =
        open_model(options(speculation), {.sequences = 3, .cache_positions = Concurrency::kAll});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    EXPECT_EQ(opened->memory.taken, 0);
    return opened->device->room.taken;
  };
  const int64_t plain = taken("ngram:num_speculative_tokens=3");
  const ModelConfig config = *read_model_config(*open_model_file(path_).value());
  DraftModelOptions drafting;
  drafting.num_tokens = 3;
  drafting.max_positions = 64;
  drafting.max_sequences = 3;
  drafting.cache_positions = 3 * 64;
  const auto cache = [&](const ModelConfig& one) {
    return KvCache::bytes_needed(one, draft_cache(one, drafting));
  };
  constexpr int32_t kSkipped[] = {1};
  const ModelConfig thin = config.without(kSkipped);
  EXPECT_EQ(taken("layer_skip:skip_layers=1,num_speculative_tokens=3"), plain + cache(thin));
  EXPECT_GE(taken("draft_model:model=" + path_ + ",num_speculative_tokens=3"),
            plain + cache(config));
  EXPECT_GE(cache(config), 3 * KvCache::bytes_needed(config, 64));
}

}  // namespace aerie::device_choice_test
