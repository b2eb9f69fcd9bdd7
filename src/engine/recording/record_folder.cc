#include "engine/recording/record_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace aerie {
namespace {

constexpr std::string_view kPrefix = "replies-";
constexpr std::string_view kSuffix = ".jsonl";
constexpr std::string_view kDayForm = "dddd-dd-dd";
constexpr int kFilesWithinBound = 8;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_day(std::string_view text) {
  return std::ranges::equal(
      text, kDayForm, [](char c, char form) { return form == 'd' ? is_digit(c) : c == form; });
}

}  // namespace

std::optional<RecordFolder::Entry> RecordFolder::entry_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  std::string_view rest = name;
  rest.remove_prefix(kPrefix.size());
  if (rest.size() < kDayForm.size() + kSuffix.size() + 4) return std::nullopt;
  rest.remove_suffix(kSuffix.size());
  Entry entry;
  entry.name = name;
  entry.day = rest.substr(0, kDayForm.size());
  rest.remove_prefix(kDayForm.size());
  if (!is_day(entry.day) || rest.front() != '-') return std::nullopt;
  rest.remove_prefix(1);
  if (rest.size() > 9 || !std::ranges::all_of(rest, is_digit)) return std::nullopt;
  std::from_chars(rest.data(), rest.data() + rest.size(), entry.number);
  return entry;
}

Expected<RecordFolder> RecordFolder::open(const std::string& path, int64_t max_bytes) {
  RecordFolder folder(path, std::max(max_bytes, kLeastBytes));
  const Status status = folder.lock();
  if (status.code() == StatusCode::kNotFound) return invalid_argument(status.message());
  AERIE_RETURN_IF_ERROR(status);
  return folder;
}

RecordFolder::RecordFolder(RecordFolder&& other) noexcept
    : path_(std::move(other.path_)),
      max_bytes_(other.max_bytes_),
      lock_(std::exchange(other.lock_, -1)),
      older_(std::move(other.older_)),
      file_(std::move(other.file_)),
      current_(std::move(other.current_)) {}

RecordFolder::~RecordFolder() {
  if (lock_ >= 0) close(lock_);
}

// Held until the process ends, however it does.
Status RecordFolder::lock() {
  if (lock_ >= 0) {
    struct stat info = {};
    if (fstat(lock_, &info) == 0 && info.st_nlink > 0) return {};
    close(std::exchange(lock_, -1));
  }
  if (mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error(path_, "the folder cannot be made", errno);
  }
  if (!is_folder(path_)) return invalid_argument("{}: this is no folder", path_);
  const std::string name = path_of(kLockName);
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return system_error(path_, "nothing can be written in the folder", errno);
  if (retried([&] { return flock(fd, LOCK_EX | LOCK_NB); }) != 0) {
    const int error = errno;
    close(fd);
    if (error != EWOULDBLOCK) return system_error(name, "the file cannot be locked", error);
    return invalid_argument("{}: another process records there: give each a folder of its own",
                            path_);
  }
  lock_ = fd;
  return {};
}

Status RecordFolder::begin_file(const std::string& day) {
  AERIE_RETURN_IF_ERROR(lock());
  older_.clear();
  int64_t number = 0;
  for (const std::string& name : names_in(path_)) {
    std::optional<Entry> entry = entry_of(name);
    if (!entry) continue;
    if (entry->day == day) number = std::max(number, entry->number);
    struct stat info = {};
    if (lstat(path_of(name).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    entry->bytes = info.st_size;
    older_.push_back(std::move(*entry));
  }
  std::ranges::sort(older_, {}, [](const Entry& one) { return std::tie(one.day, one.number); });
  current_ = {fmt::format("{}{}-{:03}{}", kPrefix, day, number + 1, kSuffix), day, number + 1, 0};
  AERIE_ASSIGN_OR_RETURN(RecordFile file, RecordFile::create(path_of(current_.name)));
  file_.emplace(std::move(file));
  return {};
}

Status RecordFolder::make_room(int64_t bytes) {
  int64_t total = current_.bytes + bytes;
  for (const Entry& entry : older_) total += entry.bytes;
  while (total > max_bytes_ && !older_.empty()) {
    const Entry& oldest = older_.front();
    const std::string path = path_of(oldest.name);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return system_error(path, "the oldest file cannot be deleted", errno);
    }
    total -= oldest.bytes;
    older_.erase(older_.begin());
  }
  return {};
}

Status RecordFolder::append(const std::string& line, int64_t time) {
  const int64_t max_file = max_bytes_ / kFilesWithinBound;
  const auto bytes = static_cast<int64_t>(line.size());
  if (bytes > max_file) {
    return not_supported("{}: a record of {} bytes is longer than a file may be", path_, bytes);
  }
  const std::string day = fmt::format("{:%Y-%m-%d}", fmt::gmtime(static_cast<std::time_t>(time)));
  const bool full = current_.bytes + bytes > max_file;
  if (file_ && (full || day != current_.day || file_->is_removed())) file_.reset();
  if (!file_) AERIE_RETURN_IF_ERROR(begin_file(day));
  Status status = make_room(bytes);
  if (status.ok()) status = file_->append(line);
  if (status.ok()) {
    current_.bytes += bytes;
    return {};
  }
  // Half a line that could not be taken back stays a file's last one.
  file_.reset();
  if (current_.bytes == 0) unlink(path_of(current_.name).c_str());
  return status;
}

}  // namespace aerie
