#include "hub/locate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "hub/download/hub_fetch.h"
#include "hub/file_choice.h"
#include "hub/hub_cache.h"
#include "hub/hub_settings.h"

namespace aerie {
namespace {

std::string path_in(const std::string& folder, const FileChoice& choice) {
  return choice.open.empty() ? folder : folder + "/" + choice.open;
}

void tell_note(const HubName& name, const FileChoice& choice) {
  if (!choice.note.empty()) tell_hub_listener(fmt::format("{}: {}", name.repo, choice.note));
}

struct Cached {
  std::string path;
  FileChoice choice;
  bool complete = false;
};

// What the cache has of it, if that can be opened at all.
std::optional<Cached> find_cached(const HubRepo& repo, const HubName& name, LocateFor use) {
  const Expected<std::string> commit = repo.commit_of(name.revision);
  if (!commit.ok()) return std::nullopt;
  Expected<FileChoice> choice = choose_files(repo.files(*commit), name.pick);
  if (!choice.ok()) return std::nullopt;
  const std::string folder = repo.snapshot(*commit);
  const bool complete = is_complete(*choice, folder, use == LocateFor::kModel);
  return Cached{path_in(folder, *choice), *std::move(choice), complete};
}

Expected<HubRepo> repo_of(const HubSettings& settings, RepoKind kind, const std::string& repo) {
  if (settings.cache.empty()) {
    return not_found("there is no home folder to keep models in: set HF_HOME to a folder");
  }
  return HubRepo(settings.cache, kind, repo);
}

Expected<PulledModel> fetch_model(const HubSettings& settings, const HubRepo& repo,
                                  const HubName& name) {
  FileChoice choice;
  const auto choose = [&](const RepoListing& listing) -> Expected<std::vector<std::string>> {
    AERIE_ASSIGN_OR_RETURN(choice, choose_files(listing.names(), name.pick));
    tell_note(name, choice);
    return choice.files;
  };
  AERIE_ASSIGN_OR_RETURN(const FetchedFiles fetched,
                         fetch_files(settings, repo, name.revision, choose));
  return PulledModel{path_in(fetched.folder, choice), fetched.bytes, fetched.fetched};
}

Expected<std::string> locate_on_hub(const HubName& name, LocateFor use) {
  const HubSettings settings = hub_settings();
  AERIE_ASSIGN_OR_RETURN(const HubRepo repo, repo_of(settings, RepoKind::kModel, name.repo));
  const std::optional<Cached> cached = find_cached(repo, name, use);
  if (cached && (cached->complete || settings.offline)) {
    tell_note(name, cached->choice);
    return cached->path;
  }
  AERIE_ASSIGN_OR_RETURN(const PulledModel fetched, fetch_model(settings, repo, name));
  return fetched.path;
}

bool fits(const std::string& file, const std::string& wanted) {
  return wanted.starts_with('.') ? file.ends_with(wanted) : file == wanted;
}

// The files of a repository that are wanted; none if one thing is not there.
std::vector<std::string> wanted_files(std::span<const std::string> files,
                                      std::span<const std::string> wanted) {
  std::vector<std::string> out;
  for (const std::string& one : wanted) {
    const size_t before = out.size();
    std::ranges::copy_if(files, std::back_inserter(out),
                         [&](const std::string& file) { return fits(file, one); });
    if (out.size() == before) return {};
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

Expected<std::string> locate_model(const std::string& name, LocateFor use) {
  if (is_there(name)) return name;
  const std::optional<HubName> hub = parse_hub_name(name);
  if (!hub) return name;
  return in_context(locate_on_hub(*hub, use), name + ": there is no such file or folder");
}

Expected<PulledModel> pull_model(const HubName& name) {
  const HubSettings settings = hub_settings();
  AERIE_ASSIGN_OR_RETURN(const HubRepo repo, repo_of(settings, RepoKind::kModel, name.repo));
  return in_context(fetch_model(settings, repo, name), to_string(name));
}

Expected<std::string> locate_dataset(const std::string& name, std::span<const std::string> wanted) {
  const std::optional<HubName> hub = parse_hub_name(name);
  if (!hub || !hub->pick.empty()) {
    return invalid_argument("{}: this is no name of a dataset: give ORG/REPO or ORG/REPO@REVISION",
                            name);
  }
  const HubSettings settings = hub_settings();
  AERIE_ASSIGN_OR_RETURN(const HubRepo repo, repo_of(settings, RepoKind::kDataset, hub->repo));
  const Expected<std::string> commit = repo.commit_of(hub->revision);
  if (commit.ok() && !wanted_files(repo.files(*commit), wanted).empty()) {
    return repo.snapshot(*commit);
  }
  const auto choose = [&](const RepoListing& listing) -> Expected<std::vector<std::string>> {
    std::vector<std::string> files = wanted_files(listing.names(), wanted);
    if (!files.empty()) return files;
    return not_found("the dataset does not have all of {}", fmt::join(wanted, ", "));
  };
  const auto fetched = fetch_files(settings, repo, hub->revision, choose);
  if (!fetched.ok()) return fetched.status().with_context(name);
  return fetched->folder;
}

}  // namespace aerie
