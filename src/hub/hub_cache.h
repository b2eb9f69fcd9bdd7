// The cache of Hugging Face's programs on this machine: models--ORG--REPO/{blobs,refs,snapshots}.
// Paths and links alone; nothing here asks the network.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

enum class RepoKind { kModel, kDataset };

// One repository's folder in the cache, whether or not it is there.
class HubRepo {
 public:
  // `cache`: HubSettings::cache. `repo`: "ORG/REPO", checked.
  HubRepo(std::string cache, RepoKind kind, std::string repo);

  RepoKind kind() const { return kind_; }
  const std::string& repo() const { return repo_; }
  const std::string& folder() const { return folder_; }
  std::string blobs() const { return folder_ + "/blobs"; }
  std::string blob(std::string_view etag) const;
  std::string snapshot(std::string_view commit) const;
  std::string lock(std::string_view etag) const;
  std::string locks() const;  // the folder of all of them
  // Shared by those who fetch, and had alone by who removes.
  std::string use_lock() const { return locks() + "/use.lock"; }

  // The commit that a branch or tag was last seen at; a commit is itself. kNotFound if it is not
  // known here.
  Expected<std::string> commit_of(const std::string& revision) const;
  Status set_ref(const std::string& revision, const std::string& commit) const;

  // Of a commit's files, those whose bytes are there; sorted. None if there is no such snapshot.
  std::vector<std::string> files(const std::string& commit) const;
  std::vector<std::string> commits() const;

  // Names a blob in a snapshot. A name that leads elsewhere is replaced.
  Status link(const std::string& commit, const std::string& file, const std::string& etag) const;

 private:
  std::string cache_;
  RepoKind kind_;
  std::string repo_;
  std::string folder_;
};

// All repositories of the cache, sorted.
std::vector<HubRepo> cached_repos(const std::string& cache);

// "ORG/REPO" of a path into a model's snapshot; empty for others.
std::string repo_of_path(const std::string& path);

}  // namespace aerie
