// What the hub says of a repository.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hub/download/digest.h"
#include "hub/hub_cache.h"

namespace aerie {

struct RepoFile {
  std::string name;  // safe: is_safe_file_name()
  int64_t size = 0;
  // The digest that its bytes must have, which names its blob in the cache.
  std::string etag;
  DigestKind digest = DigestKind::kGitBlob;
};

struct RepoListing {
  std::string commit;
  std::vector<RepoFile> files;  // sorted by name, no name twice

  std::vector<std::string> names() const;
  const RepoFile* find(std::string_view name) const;  // nullptr if there is none
};

// No answer of the hub about a repository is longer.
inline constexpr int64_t kMaxListingBytes = int64_t{64} << 20;

// Where it says so, and where a file lies.
std::string listing_url(const std::string& endpoint, RepoKind kind, const std::string& repo,
                        const std::string& revision);
std::string file_url(const std::string& endpoint, RepoKind kind, const std::string& repo,
                     const std::string& commit, const std::string& file);

// Reads the answer. kInvalidData, with `where`, for what is no listing, names that could lead out
// of a folder, and files without size or digest.
Expected<RepoListing> parse_listing(std::string_view answer, const std::string& where);

}  // namespace aerie
