#include "engine/engine_draft_host.h"

#include <memory>
#include <utility>

#include "hub/locate.h"

namespace aerie {

EngineDraftHost::EngineDraftHost(DraftTarget target, std::vector<ModelSource>& sources,
                                 MemoryRoom* memory)
    : target_(std::move(target)), sources_(sources), memory_(memory) {}

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
  AERIE_RETURN_IF_ERROR(aerie::check_memory(what, weight_bytes, cache_bytes, work_bytes, free));
  if (memory_ != nullptr) memory_->taken += weight_bytes + cache_bytes + work_bytes;
  return {};
}

}  // namespace aerie
