#include "hub/hub_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "format/json.h"
#include "format/text.h"
#include "hub/hub_name.h"

namespace aerie {
namespace {

constexpr size_t kMaxFiles = 200'000;
constexpr int64_t kMaxFileBytes = int64_t{1} << 50;

// For an address; slashes stay if they part folders.
std::string escaped(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && keep_slashes);
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Expected<RepoFile> read_file_entry(const JsonObject& entry) {
  RepoFile file;
  AERIE_ASSIGN_OR_RETURN(const std::string_view name, entry.string("rfilename"));
  if (!is_safe_file_name(name)) {
    return invalid_data(
        "{}: a file is called '{}', which could lead out of its folder: nothing is fetched from "
        "this repository",
        entry.file(), printable(name));
  }
  file.name = name;
  std::string_view digest;
  if (entry.has("lfs")) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject large, entry.object("lfs"));
    AERIE_ASSIGN_OR_RETURN(digest, large.string(large.has("sha256") ? "sha256" : "oid"));
    AERIE_ASSIGN_OR_RETURN(file.size, large.integer_in("size", 0, kMaxFileBytes));
    file.digest = DigestKind::kSha256;
  } else {
    AERIE_ASSIGN_OR_RETURN(digest, entry.string("blobId"));
    AERIE_ASSIGN_OR_RETURN(file.size, entry.integer_in("size", 0, kMaxFileBytes));
  }
  if (!is_hex(digest, file.digest == DigestKind::kSha256 ? 64 : 40)) {
    return invalid_data("{}: the digest of {} is none: '{}'", entry.file(), printable(name),
                        printable(digest));
  }
  file.etag = digest;
  return file;
}

}  // namespace

std::vector<std::string> RepoListing::names() const {
  std::vector<std::string> out;
  for (const RepoFile& file : files) out.push_back(file.name);
  return out;
}

const RepoFile* RepoListing::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(files, name, {}, &RepoFile::name);
  return found != files.end() && found->name == name ? &*found : nullptr;
}

std::string listing_url(const std::string& endpoint, RepoKind kind, const std::string& repo,
                        const std::string& revision) {
  return fmt::format("{}/api/{}/{}/revision/{}?blobs=true", endpoint,
                     kind == RepoKind::kModel ? "models" : "datasets", repo,
                     escaped(revision, false));
}

std::string file_url(const std::string& endpoint, RepoKind kind, const std::string& repo,
                     const std::string& commit, const std::string& file) {
  return fmt::format("{}/{}{}/resolve/{}/{}", endpoint, kind == RepoKind::kModel ? "" : "datasets/",
                     repo, commit, escaped(file, true));
}

Expected<RepoListing> parse_listing(std::string_view answer, const std::string& where) {
  AERIE_ASSIGN_OR_RETURN(const Json json, parse_json(answer, where));
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(json, where));
  RepoListing listing;
  AERIE_ASSIGN_OR_RETURN(const std::string_view commit, object.string("sha"));
  if (!is_commit(commit)) {
    return invalid_data("{}: sha is no commit: '{}'", where, printable(commit));
  }
  listing.commit = commit;
  const Json* const siblings = object.find("siblings");
  if (siblings == nullptr || !siblings->is_array() || siblings->size() > kMaxFiles) {
    return invalid_data("{}: there is no list of files that can be read: is HF_ENDPOINT a hub?",
                        where);
  }
  for (const Json& sibling : *siblings) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject entry, JsonObject::view(sibling, where));
    AERIE_ASSIGN_OR_RETURN(RepoFile file, read_file_entry(entry));
    listing.files.push_back(std::move(file));
  }
  std::ranges::sort(listing.files, {}, &RepoFile::name);
  const auto twice = std::ranges::adjacent_find(listing.files, {}, &RepoFile::name);
  if (twice != listing.files.end()) {
    return invalid_data("{}: {} is there twice", where, printable(twice->name));
  }
  return listing;
}

}  // namespace aerie
