#include "base/files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/errors.h"

namespace aerie {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> list(const std::string& folder, std::error_code& error) {
  std::vector<std::string> names;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

Status system_error(const std::string& path, std::string_view what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM;
  const StatusCode code = full              ? StatusCode::kResourceExhausted
                          : error == ENOENT ? StatusCode::kNotFound
                                            : StatusCode::kInvalidArgument;
  return {code, fmt::format("{}: {}: {}", path, what, std::generic_category().message(error))};
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = retried([&] { return write(fd, bytes.data(), bytes.size()); });
    if (count < 0) return errno;
    if (count == 0) return ENOSPC;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::error_code ignored;
  return list(folder, ignored);
}

Expected<std::vector<std::string>> paths_in(const std::string& folder, std::string_view prefix,
                                            std::string_view suffix) {
  std::error_code error;
  std::vector<std::string> paths = list(folder, error);
  if (error) {
    return not_found("{}: the folder cannot be read: {}", folder, error.message());
  }
  std::erase_if(paths, [&](const std::string& name) {
    return !name.starts_with(prefix) || !name.ends_with(suffix);
  });
  for (std::string& path : paths) path = (fs::path(folder) / path).string();
  return paths;
}

}  // namespace aerie
