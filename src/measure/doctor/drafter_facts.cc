#include "measure/doctor/drafter_facts.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "draft/drafter.h"
#include "draft/make_drafter.h"
#include "draft/method.h"
#include "engine/engine_draft_host.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace aerie::measure {
namespace {

// Layers that have keys of their own, whatever the head calls them; the configuration may count
// the target's.
int attention_layers(const HeadFile& file) {
  constexpr std::array<std::string_view, 4> kKeys = {"attn_k.weight", "k_proj.weight",
                                                     "attn_qkv.weight", "qkv_proj.weight"};
  return static_cast<int>(std::ranges::count_if(file.tensors(), [&](const TensorInfo& tensor) {
    return std::ranges::any_of(kKeys,
                               [&](std::string_view end) { return tensor.name.ends_with(end); });
  }));
}

int64_t head_cache_bytes(const HeadFile& file, const DraftTarget& target) {
  if (file.is_of_model()) {
    return KvCache::bytes_needed(file.blueprint()->config, target.max_positions, target.cache_type);
  }
  Expected<ModelConfig> config = read_model_config(*target.file);
  if (!config.ok()) return 0;
  // Modules may come with the target.
  const int layers =
      attention_layers(file) - (file.name() == target.file->name() ? config->layers : 0);
  if (layers <= 0) return 0;
  // A head without a shape of its own has layers of the target's.
  if (auto blueprint = file.blueprint(); blueprint.ok()) config = std::move(blueprint->config);
  config->layers = layers;
  config->linear_layers.clear();
  config->windows.clear();
  return KvCache::bytes_needed(*config, target.max_positions, target.cache_type);
}

// Opens files as the engine does, and ends the making of a drafter once its memory is known: before
// anything is loaded.
class MeasuringHost final : public DraftHost {
 public:
  explicit MeasuringHost(const DraftTarget& target) : host_(target, sources_) {}

  const DraftTarget& target() const override { return host_.target(); }
  Expected<DraftSource> open_model(const std::string& name, std::optional<DType> type) override {
    return host_.open_model(name, type);
  }
  Expected<HeadFile*> open_head(const std::string& name, std::optional<DType> type) override {
    AERIE_ASSIGN_OR_RETURN(HeadFile* const file, host_.open_head(name, type));
    cache_bytes_ = head_cache_bytes(*file, target());
    return file;
  }
  Status check_memory(const std::string& what, int64_t weight_bytes, int64_t cache_bytes,
                      int64_t work_bytes) override {
    facts_.emplace();
    facts_->name = what;
    facts_->weight_bytes = weight_bytes;
    facts_->cache_bytes = std::max(cache_bytes, cache_bytes_);
    facts_->work_bytes = work_bytes;
    return {StatusCode::kCancelled, "its memory is known"};
  }

  // None: it could not be opened.
  const std::optional<DrafterFacts>& facts() const { return facts_; }

 private:
  std::vector<ModelSource> sources_;
  EngineDraftHost host_;
  int64_t cache_bytes_ = 0;
  std::optional<DrafterFacts> facts_;
};

}  // namespace

Expected<std::vector<DrafterFacts>> read_drafter_facts(const SpeculativeConfig& speculation,
                                                       const DraftTarget& target) {
  std::vector<DrafterFacts> all;
  for (const MethodConfig& config : speculation.methods) {
    if (config.method->find(kModelKey) == nullptr) continue;
    MeasuringHost host(target);
    const auto made = config.method->make(config, host);
    if (!host.facts() && made.ok()) continue;
    if (!host.facts()) return made.status().with_context(std::string(config.method->name));
    all.push_back(*host.facts());
    all.back().method = config.method->name;
  }
  for (const MethodConfig& config : methods_of_target(speculation, *target.file)) {
    MeasuringHost host(target);
    (void)config.method->make(config, host);
    // The engine warns of it and goes on.
    if (!host.facts()) continue;
    all.push_back(*host.facts());
    all.back().method = config.method->name;
  }
  return all;
}

}  // namespace aerie::measure
