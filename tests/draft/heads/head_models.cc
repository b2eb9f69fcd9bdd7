#include "tests/draft/heads/head_models.h"

#include <algorithm>
#include <filesystem>

#include "draft/heads/head_machine.h"
#include "format/safetensors/safetensors.h"
#include "kv/kv_cache.h"
#include "model/device/load_device_model.h"
#include "model/import/hugging_face_file.h"
#include "tensor/dtype.h"

namespace aerie::test {
namespace {

constexpr int kRows = 64, kLogits = 64;

}  // namespace

HeadModels::HeadModels(const std::string& target, device::Device* device) : pool_(2) {
  auto file = open_model_file(target);
  EXPECT_TRUE(file.ok()) << file.status().message();
  file_ = std::move(*file);
  ModelOptions options;
  options.backend = kernels::backend(kernels::best_isa());
  options.pool = &pool_;
  options.max_rows = kRows;
  options.max_logits = kLogits;
  options.max_positions = kPositions;
  auto model =
      device != nullptr ? load_device_model(*file_, options, *device) : load_model(*file_, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  model_ = std::move(*model);
}

HeadTarget HeadModels::head_target() const {
  HeadTarget target;
  const DeviceParts on_device = model_->device_parts();
  if (on_device.device == nullptr) target.parts = model_->parts();
  target.config = &model_->config();
  target.file = file_.get();
  target.backend = kernels::backend(kernels::best_isa());
  target.pool = const_cast<ThreadPool*>(&pool_);
  target.max_rows = kRows;
  target.max_logits = kLogits;
  target.max_positions = kPositions + kMostHeadDepth;
  target.ranks = kRanks;
  if (on_device.device != nullptr) put_on_device(on_device, target);
  return target;
}

Expected<std::unique_ptr<FeatureHead>> HeadModels::load(const std::string& method,
                                                        const std::string& path,
                                                        const HeadSettings& settings) {
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadFile> file,
                         HeadFile::open(path, {settings.dtype, &pool_}));
  heads_.push_back(std::move(file));
  const HeadTarget target = head_target();
  auto head = load_head(method, *heads_.back(), target, settings);
  if (target.device != nullptr) target.device->packer.reset();
  return head;
}

std::unique_ptr<DraftNetwork> HeadModels::network(const std::string& method,
                                                  const std::string& path,
                                                  const NetworkDrafterOptions& drafter,
                                                  HeadSettings settings, bool ahead) {
  settings.depth = draft_depth(drafter);
  auto head = load(method, path, settings);
  EXPECT_TRUE(head.ok()) << head.status().message();
  if (!head.ok()) return nullptr;
  FeatureNetworkOptions options;
  options.drafter = drafter;
  options.drafter.max_rows = kRows;
  options.drafter.max_logits = kLogits;
  options.max_positions = kPositions;
  options.ahead = ahead;
  auto network = make_feature_network(std::move(*head), options);
  EXPECT_TRUE(network.ok()) << network.status().message();
  return network.ok() ? std::move(*network) : nullptr;
}

std::vector<float> HeadModels::taps(const std::vector<int32_t>& text,
                                    const std::vector<int32_t>& layers) {
  const ModelCache cache = make_cache(*model_, {.positions = kPositions, .sequences = 1}).value();
  const auto id = cache->open();
  EXPECT_TRUE(cache->reserve(*id, static_cast<int>(text.size())).ok());
  ForwardBatch batch;
  batch.sequences.push_back({cache->pages(*id), 0, *id});
  batch.tap_layers = layers;
  for (int i = 0; i < static_cast<int>(text.size()); ++i) {
    BatchRow row;
    row.token = text[static_cast<size_t>(i)];
    row.position = i;
    row.slot = cache->slot(*id, i);
    row.parent = i - 1;
    row.wants_taps = true;
    batch.rows.push_back(row);
  }
  const ForwardOutputs outputs = model_->forward(batch, *cache);
  return {outputs.taps.begin(), outputs.taps.end()};
}

std::vector<std::string> golden_cases(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!std::filesystem::exists(entry.path() / "golden.json")) continue;
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string golden_test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

std::vector<float> recorded_taps(const std::string& path, const std::vector<int32_t>& layers) {
  const auto file = SafetensorsFile::open(path);
  if (!file.ok()) return {};
  const SafetensorsTensor& states = *file->find("states");
  std::vector<float> all(static_cast<size_t>(states.elements()));
  dequantize(DType::kF32, states.data.data(), states.elements(), all.data());
  const auto tokens = static_cast<size_t>(states.shape[1]);
  const auto hidden = static_cast<size_t>(states.shape[2]);
  std::vector<float> taps(tokens * layers.size() * hidden);
  auto out = taps.begin();
  for (size_t t = 0; t < tokens; ++t) {
    for (const int32_t layer : layers) {
      const size_t from = (static_cast<size_t>(layer) * tokens + t) * hidden;
      out = std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(from), hidden, out);
    }
  }
  return taps;
}

}  // namespace aerie::test
