#include "tools/serve/key_source.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace aerie {

// What tells a file from the one that was there before, and from itself before it was written to.
std::string KeySource::look() const {
  std::string out;
  for (const std::string& file : files) {
    struct stat is = {};
    if (stat(file.c_str(), &is) != 0) is = {};
    out += fmt::format("{} {} {} {}.{:09}\n", is.st_dev, is.st_ino, is.st_size, is.st_mtim.tv_sec,
                       is.st_mtim.tv_nsec);
  }
  return out;
}

Expected<server::ApiKeys> KeySource::read() {
  // Before: what changes in between is read again.
  read_state_ = last_state_ = look();
  server::ApiKeys out;
  for (const std::string& file : files) {
    AERIE_RETURN_IF_ERROR(out.add_file(file).with_context("--api-key-file"));
  }
  for (const std::string& key : keys) {
    AERIE_RETURN_IF_ERROR(out.add(key).with_context("--api-key"));
  }
  return out;
}

bool KeySource::has_changed(SteadyTime now) {
  if (files.empty() || seconds_between(looked_, now) < 1.0) return false;
  looked_ = now;
  std::string state = look();
  const bool is_settled = state == last_state_;
  last_state_ = std::move(state);
  return is_settled && last_state_ != read_state_;
}

}  // namespace aerie
