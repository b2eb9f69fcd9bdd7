// Whatever a hub answers and whatever a model is called: what is accepted stays in its folder, and
// what is chosen was listed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hub/file_choice.h"
#include "hub/hub_api.h"
#include "hub/hub_name.h"
#include "tests/fuzz/fuzz_target.h"

namespace aerie {

static void check_name(std::string_view text) {
  const auto name = parse_hub_name(text);
  if (!name) return;
  require(is_safe_file_name(name->repo) && is_safe_file_name(name->revision));
  require(name->pick.empty() || is_safe_file_name(name->pick));
  require(parse_hub_name(to_string(*name)) == name);
}

static void check_choice(const RepoListing& listing, const std::string& pick) {
  const auto choice = choose_files(listing.names(), pick);
  if (!choice.ok()) return;
  require(!choice->files.empty());
  for (const std::string& file : choice->files) require(listing.find(file) != nullptr);
  require(choice->open.empty() || std::ranges::count(choice->files, choice->open) == 1);
}

}  // namespace aerie

AERIE_FUZZ_TARGET(hub) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  aerie::check_name(text);
  const auto listing = aerie::parse_listing(text, "fuzz");
  if (!listing.ok()) {
    aerie::require(listing.status().message().starts_with("fuzz"));
    return 0;
  }
  aerie::require(aerie::is_commit(listing->commit));
  for (const aerie::RepoFile& file : listing->files) {
    aerie::require(aerie::is_safe_file_name(file.name) && file.size >= 0);
    aerie::require(aerie::is_hex(file.etag, file.etag.size()));
    aerie::check_choice(*listing, file.name);
  }
  aerie::check_choice(*listing, "");
  aerie::check_choice(*listing, "q8_0");
  return 0;
}
