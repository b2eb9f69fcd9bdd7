// What drafters are made with here: opens files and checks the memory that is left.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/draft_host.h"
#include "engine/model_source.h"
#include "engine/placement/device_choice.h"
#include "engine/placement/memory.h"

namespace aerie {

// Appends to `sources` what it opens; they must outlive the drafters. What is checked counts as
// taken of `memory`, if there is one. Models are loaded on `device`, if there is one that computes
// them and has room.
class EngineDraftHost final : public DraftHost {
 public:
  EngineDraftHost(DraftTarget target, std::vector<ModelSource>& sources,
                  MemoryRoom* memory = nullptr, OpenedDevice* device = nullptr);

  const DraftTarget& target() const override { return target_; }
  Expected<DraftSource> open_model(const std::string& name, std::optional<DType> type) override;
  Expected<HeadFile*> open_head(const std::string& name, std::optional<DType> type) override;
  Status check_memory(const std::string& what, int64_t weight_bytes, int64_t cache_bytes,
                      int64_t work_bytes) override;
  Status check_device_memory(const std::string& what, int64_t weight_bytes, int64_t cache_bytes,
                             int64_t work_bytes) override;
  void return_device_memory(int64_t bytes) override {
    if (device_ != nullptr) device_->room.taken -= bytes;
  }
  Expected<std::unique_ptr<Model>> load(const std::string& what, const ModelFile& file,
                                        const ModelConfig& config, const ModelOptions& options,
                                        const KvCache::Creation& cache) override;

 private:
  Expected<std::unique_ptr<Model>> load_on_device(const std::string& what, const ModelFile& file,
                                                  const ModelConfig& config,
                                                  const ModelOptions& options,
                                                  KvCache::Creation cache);

  DraftTarget target_;
  std::vector<ModelSource>& sources_;
  MemoryRoom* memory_;
  OpenedDevice* device_;
};

}  // namespace aerie
