// One file of a repository, from the hub into the cache.
#pragma once

#include <atomic>
#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "hub/download/hub_http.h"
#include "hub/hub_api.h"
#include "hub/hub_cache.h"

namespace aerie {

struct BlobSource {
  std::string url;
  std::string commit;      // that the hub has to say it is of
  std::string page;        // for messages
  bool has_token = false;  // for messages
};

// Whether the cache has the file's bytes.
bool has_blob(const HubRepo& repo, const RepoFile& file);
// Bytes that are there of one that was not finished.
int64_t begun_bytes(const HubRepo& repo, const RepoFile& file);

// Takes the file's lock, goes on where an earlier try ended (blobs/ETAG.incomplete), and gives it
// its name when its size and digest are right. Does nothing if it is there. `stop` ends it, as
// Ctrl-C does where that is caught; what has come stays for the next time.
Status fetch_blob(HubHttp& http, const HubRepo& repo, const RepoFile& file,
                  const BlobSource& source, Progress& progress, const std::atomic<bool>& stop);

}  // namespace aerie
