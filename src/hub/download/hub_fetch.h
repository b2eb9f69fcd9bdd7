// Files of a repository, from the hub into the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/hub_api.h"
#include "hub/hub_cache.h"
#include "hub/hub_settings.h"

namespace aerie {

struct FetchedFiles {
  std::string commit;
  std::string folder;   // the snapshot's
  int64_t bytes = 0;    // of all files
  int64_t fetched = 0;  // of those that were not there
};

// Asks for the revision's files, and fetches those that `choose` picks (its status is handed on).
// All are in the cache before any gets its name in the snapshot, and then the revision points to
// it: who looks meanwhile finds what was there before.
//
// Errors say what to do, and do not name the repository. kUnsupported where settings.offline.
using ChooseFiles = std::function<Expected<std::vector<std::string>>(const RepoListing& listing)>;
Expected<FetchedFiles> fetch_files(const HubSettings& settings, const HubRepo& repo,
                                   const std::string& revision, const ChooseFiles& choose);

}  // namespace aerie
