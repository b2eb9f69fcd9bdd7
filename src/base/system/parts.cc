#include "base/system/parts.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "base/errors.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

// Of the program, and of the library where this code is in one.
std::vector<fs::path> folders() {
  std::error_code ignored;
  std::vector<fs::path> found = {fs::read_symlink("/proc/self/exe", ignored).parent_path()};
  Dl_info here = {};
  if (dladdr(reinterpret_cast<const void*>(&find_part), &here) != 0 && here.dli_fname != nullptr) {
    const fs::path file = fs::weakly_canonical(here.dli_fname, ignored);
    if (!ignored) found.push_back(file.parent_path());
  }
  return found;
}

}  // namespace

std::string find_part(const std::string& file) {
  std::error_code ignored;
  for (const fs::path& folder : folders()) {
    for (const char* const beside : {".", "../lib", "../" AERIE_LIBDIR}) {
      const fs::path place = folder / beside / file;
      if (fs::exists(place, ignored)) return place.lexically_normal().string();
    }
  }
  return "";
}

Expected<void*> open_part(const std::string& path, PartNames names) {
  void* const library =
      dlopen(path.c_str(), RTLD_NOW | (names == PartNames::kShared ? RTLD_GLOBAL : RTLD_LOCAL));
  if (library != nullptr) return library;
  const char* const error = dlerror();
  return not_supported("{}", error != nullptr ? error : "for a reason unknown");
}

}  // namespace aerie
