#include "engine/engine_draft_host.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/log.h"
#include "hub/locate.h"
#include "model/device/load_device_model.h"

namespace aerie {

EngineDraftHost::EngineDraftHost(DraftTarget target, std::vector<ModelSource>& sources,
                                 MemoryRoom* memory, OpenedDevice* device)
    : target_(std::move(target)), sources_(sources), memory_(memory), device_(device) {}

Expected<DraftSource> EngineDraftHost::open_model(const std::string& name,
                                                  std::optional<DType> type) {
  AERIE_ASSIGN_OR_RETURN(const std::string path, locate_model(name, LocateFor::kHead));
  AERIE_ASSIGN_OR_RETURN(ModelSource source, open_draft_source(path, type, *target_.pool));
  const DraftSource opened = {source.file.get(), source.tokenizer.get()};
  sources_.push_back(std::move(source));
  return opened;
}

Expected<HeadFile*> EngineDraftHost::open_head(const std::string& name, std::optional<DType> type) {
  AERIE_ASSIGN_OR_RETURN(const std::string path, locate_model(name, LocateFor::kHead));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadFile> file,
                         HeadFile::open(path, {type, target_.pool}));
  HeadFile* const opened = file.get();
  ModelSource source;
  source.file = std::move(file);
  sources_.push_back(std::move(source));
  return opened;
}

Status EngineDraftHost::check_memory(const std::string& what, int64_t weight_bytes,
                                     int64_t cache_bytes, int64_t work_bytes) {
  const int64_t free = memory_ != nullptr ? memory_->free() : available_memory();
  const MemoryNeed need = {weight_bytes, cache_bytes, work_bytes};
  AERIE_RETURN_IF_ERROR(aerie::check_memory(what, need, free));
  if (memory_ != nullptr) memory_->taken += need.all();
  return {};
}

Status EngineDraftHost::check_device_memory(const std::string& what, int64_t weight_bytes,
                                            int64_t cache_bytes, int64_t work_bytes) {
  if (device_ == nullptr) return {};
  const MemoryNeed need = {weight_bytes, cache_bytes, work_bytes};
  AERIE_RETURN_IF_ERROR(aerie::check_device_memory(what, need, *device_));
  device_->room.taken += need.all();
  return {};
}

Expected<std::unique_ptr<Model>> EngineDraftHost::load(const std::string& what,
                                                       const ModelFile& file,
                                                       const ModelConfig& config,
                                                       const ModelOptions& options,
                                                       const KvCache::Creation& cache) {
  if (device_ == nullptr) return DraftHost::load(what, file, config, options, cache);
  auto model = load_on_device(what, file, config, options, cache);
  if (model.ok()) return model;
  const StatusCode code = model.status().code();
  if (code != StatusCode::kUnsupported && code != StatusCode::kResourceExhausted) return model;
  log(LogLevel::kWarning,
      fmt::format("the processor computes drafts: {}", model.status().message()));
  return DraftHost::load(what, file, config, options, cache);
}

Expected<std::unique_ptr<Model>> EngineDraftHost::load_on_device(const std::string& what,
                                                                 const ModelFile& file,
                                                                 const ModelConfig& config,
                                                                 const ModelOptions& options,
                                                                 KvCache::Creation cache) {
  AERIE_RETURN_IF_ERROR(supported_by_device(file).with_context(what));
  cache.planes = KvCache::Planes::kElsewhere;
  const int64_t weights = device_weight_bytes(file), work = device_working_bytes(file, options);
  const int64_t of_cache = KvCache::bytes_needed(config, cache);
  AERIE_RETURN_IF_ERROR(check_device_memory(what, weights, of_cache, work));
  auto model = load_device_model(file, options, *device_->device);
  if (!model.ok()) return_device_memory(weights + of_cache + work);
  return model;
}

}  // namespace aerie
