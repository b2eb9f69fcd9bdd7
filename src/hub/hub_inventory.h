// What the cache holds, and taking it out again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/download/file_lock.h"
#include "hub/hub_name.h"

namespace aerie {

// Something that can be opened: a GGUF file with its parts, or a folder of safetensors.
struct CachedModel {
  HubName name;      // as it would be asked for
  std::string path;  // a file or a folder
  int64_t bytes = 0;
  std::string label;  // "GGUF", "safetensors", "PyTorch"
};

// Of all repositories of models. Other programs' too; nothing is opened.
std::vector<CachedModel> cached_models(const std::string& cache);

struct Removal {
  std::vector<std::string> paths;  // files, links and folders, in the order in which they go
  int64_t bytes = 0;               // that the disk gets back
};

// What belongs to the name and to nothing else: of ORG/REPO all that the cache has; with a revision
// its snapshot; with a quantisation or file those links; and the blobs that no other snapshot links
// to. kNotFound if it is not in the cache.
Expected<Removal> plan_removal(const std::string& cache, const HubName& name, bool has_revision);
// Nobody can fetch files of the name's repository while this is held. kInvalidArgument if somebody
// does so now: Aerie, or another program of those that share the cache.
Expected<std::vector<FileLock>> lock_for_removal(const std::string& cache, const HubName& name);
Status remove_planned(const Removal& removal);

}  // namespace aerie
