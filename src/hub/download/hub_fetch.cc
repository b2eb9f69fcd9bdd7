#include "hub/download/hub_fetch.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "hub/download/blob_fetch.h"
#include "hub/download/file_lock.h"
#include "hub/download/hub_http.h"
#include "hub/download/hub_retry.h"

namespace aerie {
namespace {

constexpr size_t kConnections = 4;

std::string page_of(const HubSettings& settings, const HubRepo& repo) {
  return fmt::format("{}/{}{}", settings.endpoint,
                     repo.kind() == RepoKind::kModel ? "" : "datasets/", repo.repo());
}

Expected<RepoListing> fetch_listing(HubHttp& http, const HubSettings& settings, const HubRepo& repo,
                                    const std::string& revision) {
  HubRequest request;
  request.url = listing_url(settings.endpoint, repo.kind(), repo.repo(), revision);
  request.most_bytes = kMaxListingBytes;
  HubRetry retry;
  while (true) {
    const HubAnswer answer = http.get(request);
    if (answer.problem.empty() && answer.status == 200) {
      return parse_listing(answer.body, "the hub's answer");
    }
    if (!retry.again(answer, interrupted)) {
      return hub_error(answer, "revision " + revision, page_of(settings, repo),
                       !settings.token.empty());
    }
  }
}

double gigabytes(int64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

Status check_disk(const HubRepo& repo, int64_t wanted) {
  struct statvfs info = {};
  if (retried([&] { return statvfs(repo.blobs().c_str(), &info); }) != 0) return {};
  const auto free = static_cast<int64_t>(info.f_bavail * info.f_frsize);
  if (wanted <= free) return {};
  return resource_exhausted(
      "{}: the disk is too full: {:.3f} GB are wanted and {:.3f} GB are free: make room (`aerie "
      "list` and `aerie remove`), or set HF_HUB_CACHE to a folder on another disk",
      repo.folder(), gigabytes(wanted), gigabytes(free));
}

// What several threads fetch together; the first error ends the others.
class ParallelFetch {
 public:
  ParallelFetch(const HubSettings& settings, const HubRepo& repo, std::string commit,
                std::vector<const RepoFile*> files, Progress& progress)
      : settings_(settings),
        repo_(repo),
        commit_(std::move(commit)),
        files_(std::move(files)),
        progress_(progress) {}

  Status run();

 private:
  void work();
  void fail(const Status& status);

  const HubSettings& settings_;
  const HubRepo& repo_;
  const std::string commit_;
  const std::vector<const RepoFile*> files_;
  Progress& progress_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  Status status_;
};

Status ParallelFetch::run() {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(kConnections, files_.size()); ++i) {
    threads.emplace_back([this] { work(); });
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return status_;
}

void ParallelFetch::work() {
  auto http = HubHttp::create(settings_.endpoint, settings_.token);
  if (!http.ok()) return fail(http.status());
  for (size_t i = next_++; i < files_.size() && !stop_; i = next_++) {
    BlobSource source;
    source.url = file_url(settings_.endpoint, repo_.kind(), repo_.repo(), commit_, files_[i]->name);
    source.commit = commit_;
    source.page = page_of(settings_, repo_);
    source.has_token = !settings_.token.empty();
    const Status done = fetch_blob(**http, repo_, *files_[i], source, progress_, stop_);
    if (!done.ok()) return fail(done);
  }
}

void ParallelFetch::fail(const Status& status) {
  const std::scoped_lock lock(mutex_);
  if (status_.ok()) status_ = status;
  stop_ = true;
}

// Those that the cache lacks, the largest first: these decide when all are there.
std::vector<const RepoFile*> lacking(const HubRepo& repo, std::span<const RepoFile* const> files) {
  std::vector<const RepoFile*> out;
  std::set<std::string> etags;  // the same bytes may have several names
  for (const RepoFile* file : files) {
    if (!has_blob(repo, *file) && etags.insert(file->etag).second) out.push_back(file);
  }
  std::ranges::stable_sort(out, std::ranges::greater(), &RepoFile::size);
  return out;
}

Status fetch_lacking(const HubSettings& settings, const HubRepo& repo, const std::string& commit,
                     std::vector<const RepoFile*> files, FetchedFiles& out) {
  int64_t begun = 0;
  for (const RepoFile* file : files) {
    out.fetched += file->size;
    begun += begun_bytes(repo, *file);
  }
  AERIE_RETURN_IF_ERROR(check_disk(repo, out.fetched - begun));
  Progress progress("fetching " + repo.repo(), out.fetched, ProgressUnit::kBytes);
  progress.skip(begun);
  return ParallelFetch(settings, repo, commit, std::move(files), progress).run();
}

}  // namespace

Expected<FetchedFiles> fetch_files(const HubSettings& settings, const HubRepo& repo,
                                   const std::string& revision, const ChooseFiles& choose) {
  if (settings.offline) {
    return not_supported(
        "it is not in {}, and the hub is not asked (--offline, HF_HUB_OFFLINE): fetch it where "
        "there is a network with `aerie pull {}`",
        settings.cache, repo.repo());
  }
  AERIE_ASSIGN_OR_RETURN(const auto http, HubHttp::create(settings.endpoint, settings.token));
  AERIE_ASSIGN_OR_RETURN(const RepoListing listing, fetch_listing(*http, settings, repo, revision));
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string> names, choose(listing));
  std::vector<const RepoFile*> files;
  FetchedFiles out;
  for (const std::string& name : names) {
    const RepoFile* const file = listing.find(name);
    if (file == nullptr) return not_found("the hub lists no {}", name);
    files.push_back(file);
    out.bytes += file->size;
  }
  AERIE_ASSIGN_OR_RETURN(
      const FileLock lock,
      FileLock::share(repo.use_lock(),
                      fmt::format("{}: another program removes it: waiting for it", repo.repo())));
  std::error_code error;
  std::filesystem::create_directories(repo.blobs(), error);
  if (error) return system_error(repo.blobs(), "cannot make this folder", error.value());
  if (auto missing = lacking(repo, files); !missing.empty()) {
    AERIE_RETURN_IF_ERROR(fetch_lacking(settings, repo, listing.commit, std::move(missing), out));
  }
  for (const RepoFile* file : files) {
    AERIE_RETURN_IF_ERROR(repo.link(listing.commit, file->name, file->etag));
  }
  AERIE_RETURN_IF_ERROR(repo.set_ref(revision, listing.commit));
  out.commit = listing.commit;
  out.folder = repo.snapshot(listing.commit);
  return out;
}

}  // namespace aerie
