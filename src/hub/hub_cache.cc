#include "hub/hub_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "format/input_file.h"
#include "format/output_file.h"
#include "hub/hub_name.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> kPrefixes = {"models--", "datasets--"};  // by RepoKind
constexpr int64_t kMaxRefBytes = 4096;

std::string_view prefix_of(RepoKind kind) {
  return kPrefixes[static_cast<size_t>(kind)];
}

// "ORG/REPO" of the rest of a folder's name; empty if it is none.
std::string repo_of_folder(std::string_view rest) {
  const size_t dashes = rest.find("--");
  if (dashes == std::string_view::npos) return "";
  std::string repo = fmt::format("{}/{}", rest.substr(0, dashes), rest.substr(dashes + 2));
  const auto name = parse_hub_name(repo);
  return name && name->repo == repo ? repo : "";
}

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? system_error(path.string(), "cannot make this folder", error.value()) : Status();
}

}  // namespace

HubRepo::HubRepo(std::string cache, RepoKind kind, std::string repo)
    : cache_(std::move(cache)), kind_(kind), repo_(std::move(repo)) {
  std::string name(prefix_of(kind));
  for (const char c : repo_) name += c == '/' ? std::string("--") : std::string(1, c);
  folder_ = cache_ + "/" + name;
}

std::string HubRepo::blob(std::string_view etag) const {
  return fmt::format("{}/{}", blobs(), etag);
}

std::string HubRepo::snapshot(std::string_view commit) const {
  return fmt::format("{}/snapshots/{}", folder_, commit);
}

std::string HubRepo::locks() const {
  return fmt::format("{}/.locks/{}", cache_, fs::path(folder_).filename().string());
}

std::string HubRepo::lock(std::string_view etag) const {
  return fmt::format("{}/{}.lock", locks(), etag);
}

Expected<std::string> HubRepo::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  AERIE_ASSIGN_OR_RETURN(std::string text, read_file(folder_ + "/refs/" + revision, kMaxRefBytes));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (!is_commit(text)) {
    return not_found("{}/refs/{}: this is no commit: fetch it again", folder_, revision);
  }
  return text;
}

Status HubRepo::set_ref(const std::string& revision, const std::string& commit) const {
  if (is_commit(revision)) return {};
  const fs::path path = fs::path(folder_) / "refs" / revision;
  AERIE_RETURN_IF_ERROR(make_folder(path.parent_path()));
  return write_file(path.string(), commit);
}

std::vector<std::string> HubRepo::files(const std::string& commit) const {
  const fs::path root = snapshot(commit);
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code none;
    if (it->is_regular_file(none)) names.push_back(it->path().lexically_relative(root).string());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> HubRepo::commits() const {
  std::vector<std::string> commits = names_in(folder_ + "/snapshots");
  std::erase_if(commits, [](const std::string& name) { return !is_commit(name); });
  return commits;
}

Status HubRepo::link(const std::string& commit, const std::string& file,
                     const std::string& etag) const {
  const fs::path path = fs::path(snapshot(commit)) / file;
  AERIE_RETURN_IF_ERROR(make_folder(path.parent_path()));
  const fs::path target = fs::path(blob(etag)).lexically_relative(path.parent_path());
  std::error_code error;
  if (fs::read_symlink(path, error) == target) return {};
  // Beside it and renamed over: who reads the folder meanwhile sees the old file or the new one.
  const fs::path temporary = fmt::format("{}.{}.new", path.string(), getpid());
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, path, error);
  return error ? system_error(path.string(), "cannot make this link", error.value()) : Status();
}

std::vector<HubRepo> cached_repos(const std::string& cache) {
  std::vector<HubRepo> repos;
  for (const std::string& name : names_in(cache)) {
    for (const RepoKind kind : {RepoKind::kModel, RepoKind::kDataset}) {
      if (!name.starts_with(prefix_of(kind))) continue;
      const std::string repo =
          repo_of_folder(std::string_view(name).substr(prefix_of(kind).size()));
      if (!repo.empty() && is_folder(fmt::format("{}/{}", cache, name)))
        repos.emplace_back(cache, kind, repo);
    }
  }
  return repos;
}

std::string repo_of_path(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  std::string folder;
  for (const fs::path& part : normal) {
    const std::string name = part.string();
    if (name == "snapshots" && folder.starts_with(prefix_of(RepoKind::kModel))) {
      return repo_of_folder(std::string_view(folder).substr(prefix_of(RepoKind::kModel).size()));
    }
    folder = name;
  }
  return "";
}

}  // namespace aerie
