#include "hub/hub_inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "hub/file_choice.h"
#include "hub/hub_cache.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

// Of links, what they lead to.
int64_t file_bytes(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

// The branches and tags by commit, "main" first.
std::map<std::string, std::vector<std::string>> refs_by_commit(const HubRepo& repo) {
  std::map<std::string, std::vector<std::string>> refs;
  const fs::path root = repo.folder() + "/refs";
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().lexically_relative(root).string();
    if (is_folder(it->path().string())) continue;
    const Expected<std::string> commit = repo.commit_of(name);
    if (commit.ok()) refs[*commit].push_back(name);
  }
  for (auto& [commit, names] : refs) {
    std::ranges::sort(names, {},
                      [](const std::string& name) { return std::pair(name != "main", name); });
  }
  return refs;
}

std::string label_of(const FileChoice& choice) {
  if (choice.open.ends_with(".gguf")) return "GGUF";
  const bool safe = std::ranges::any_of(
      choice.files, [](const std::string& file) { return file.ends_with(".safetensors"); });
  return safe ? "safetensors" : "PyTorch";
}

// Each GGUF file by itself, and what a folder is besides.
void add_models(const HubRepo& repo, const std::string& commit, const std::string& revision,
                std::vector<CachedModel>& out) {
  std::vector<std::string> files = repo.files(commit);
  const auto add = [&](const FileChoice& choice, const std::string& pick) {
    const std::string folder = repo.snapshot(commit);
    const fs::path root = folder;
    CachedModel model;
    model.name = {repo.repo(), revision, pick};
    model.path = choice.open.empty() ? folder : folder + "/" + choice.open;
    model.label = label_of(choice);
    for (const std::string& file : choice.files) model.bytes += file_bytes(root / file);
    out.push_back(std::move(model));
  };
  std::set<std::string> taken;
  for (const std::string& file : files) {
    if (!file.ends_with(".gguf") || taken.contains(file)) continue;
    const Expected<FileChoice> choice = choose_files(files, file);
    if (!choice.ok() || taken.contains(choice->open)) continue;
    taken.insert(choice->files.begin(), choice->files.end());
    add(*choice, choice->open);
  }
  std::erase_if(files, [](const std::string& file) { return file.ends_with(".gguf"); });
  if (const Expected<FileChoice> rest = choose_files(files, ""); rest.ok()) add(*rest, "");
}

// The blobs that the files of some snapshots lead to.
class Links {
 public:
  explicit Links(const HubRepo& repo) {
    for (const std::string& commit : repo.commits()) {
      for (const std::string& file : repo.files(commit)) {
        const std::string path = repo.snapshot(commit) + "/" + file;
        std::error_code error;
        const fs::path target = fs::read_symlink(path, error);
        blobs_.emplace(path, error ? "" : repo.blob(target.filename().string()));
      }
    }
  }
  // The blob that goes with these paths: none if another path leads to it, or it is no link.
  std::set<std::string> only_of(const std::set<std::string>& paths) const {
    std::set<std::string> blobs, kept;
    for (const auto& [path, blob] : blobs_) (paths.contains(path) ? blobs : kept).insert(blob);
    for (const std::string& blob : kept) blobs.erase(blob);
    blobs.erase("");
    return blobs;
  }
  std::set<std::string> below(const std::string& folder) const {
    std::set<std::string> paths;
    for (const auto& [path, blob] : blobs_) {
      if (path.starts_with(folder + "/")) paths.insert(path);
    }
    return paths;
  }

 private:
  std::map<std::string, std::string> blobs_;  // by path
};

Removal whole_repo(const HubRepo& repo) {
  Removal removal;
  std::error_code error;
  for (fs::recursive_directory_iterator it(repo.folder(), error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_symlink(error) && it->is_regular_file(error)) {
      removal.bytes += file_bytes(it->path());
    }
  }
  removal.paths = {repo.folder()};
  if (is_there(repo.locks())) removal.paths.push_back(repo.locks());
  return removal;
}

// The paths with the blobs that nothing else leads to.
Removal with_blobs(const Links& links, const std::set<std::string>& paths) {
  Removal removal;
  removal.paths.assign(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_symlink(path, error)) removal.bytes += file_bytes(path);
  }
  for (const std::string& blob : links.only_of(paths)) {
    removal.bytes += file_bytes(blob);
    removal.paths.push_back(blob);
  }
  return removal;
}

// A quantisation or file, of one revision.
Expected<Removal> files_of(const HubRepo& repo, const Links& links, const HubName& name,
                           const std::string& commit) {
  AERIE_ASSIGN_OR_RETURN(const FileChoice choice, choose_files(repo.files(commit), name.pick));
  std::set<std::string> paths;
  for (const std::string& file : choice.files) {
    const bool shared = label_of(choice) != "GGUF" && file != choice.open;
    if (!shared) paths.insert(repo.snapshot(commit) + "/" + file);
  }
  return with_blobs(links, paths);
}

}  // namespace

std::vector<CachedModel> cached_models(const std::string& cache) {
  std::vector<CachedModel> models;
  for (const HubRepo& repo : cached_repos(cache)) {
    if (repo.kind() != RepoKind::kModel) continue;
    const auto refs = refs_by_commit(repo);
    for (const std::string& commit : repo.commits()) {
      const auto found = refs.find(commit);
      add_models(repo, commit, found == refs.end() ? commit : found->second.front(), models);
    }
  }
  return models;
}

Expected<Removal> plan_removal(const std::string& cache, const HubName& name, bool has_revision) {
  const HubRepo repo(cache, RepoKind::kModel, name.repo);
  if (!is_folder(repo.folder())) {
    return not_found("{}: it is not in {}; `aerie list` shows what is", to_string(name), cache);
  }
  if (name.pick.empty() && !has_revision) return whole_repo(repo);
  const Expected<std::string> commit = repo.commit_of(name.revision);
  if (!commit.ok() || !is_folder(repo.snapshot(*commit))) {
    return not_found("{}: this revision is not in {}; `aerie list` shows what is", to_string(name),
                     cache);
  }
  const Links links(repo);
  if (!name.pick.empty()) {
    return in_context(files_of(repo, links, name, *commit), to_string(name));
  }
  Removal removal = with_blobs(links, links.below(repo.snapshot(*commit)));
  removal.paths.push_back(repo.snapshot(*commit));
  const auto refs = refs_by_commit(repo);
  if (const auto found = refs.find(*commit); found != refs.end()) {
    for (const std::string& ref : found->second) {
      removal.paths.push_back(repo.folder() + "/refs/" + ref);
    }
  }
  return removal;
}

Expected<std::vector<FileLock>> lock_for_removal(const std::string& cache, const HubName& name) {
  const HubRepo repo(cache, RepoKind::kModel, name.repo);
  // Other programs have locks of files alone.
  std::vector<std::string> paths = {repo.use_lock()};
  for (const std::string& file : names_in(repo.locks())) {
    const std::string path = fmt::format("{}/{}", repo.locks(), file);
    if (file.ends_with(".lock") && path != paths.front()) paths.push_back(path);
  }
  std::vector<FileLock> locks;
  for (const std::string& path : paths) {
    AERIE_ASSIGN_OR_RETURN(std::optional<FileLock> lock, FileLock::try_take(path));
    if (!lock) {
      return invalid_argument(
          "{}: another process is fetching it, and nothing was removed: wait for its end, or end "
          "it, and try again",
          to_string(name));
    }
    locks.push_back(*std::move(lock));
  }
  return locks;
}

Status remove_planned(const Removal& removal) {
  for (const std::string& path : removal.paths) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) return system_error(path, "cannot remove it", error.value());
  }
  return {};
}

}  // namespace aerie
