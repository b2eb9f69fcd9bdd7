#include "measure/audit/audit_records.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "format/json.h"

namespace aerie::measure {
namespace {

// A regular file's lines, one at a time.
class LineReader {
 public:
  // kNotFound if it cannot be read.
  static Expected<LineReader> open(const std::string& path);
  ~LineReader() {
    if (fd_ >= 0) close(fd_);
  }
  LineReader(LineReader&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), left_(other.left_) {}
  LineReader& operator=(LineReader&&) = delete;

  // Whether there was another one. `line` comes without its end; `whole`: it has one.
  Expected<bool> next(std::string& line, bool& whole);

 private:
  LineReader(std::string path, int fd, int64_t bytes)
      : path_(std::move(path)), fd_(fd), left_(bytes) {}
  Status fill();

  std::string path_;
  int fd_ = -1;
  int64_t left_ = 0;  // bytes that are not in the buffer yet
  std::string buffer_;
  size_t from_ = 0;  // in the buffer
};

Status unreadable(const std::string& path) {
  return not_found("RECORDS {}: the file cannot be read", path);
}

Expected<LineReader> LineReader::open(const std::string& path) {
  // A pipe is not waited for.
  const int fd = retried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) return unreadable(path);
  LineReader reader(path, fd, 0);
  // Who adds a line holds the lock (engine/recording/record_file.h), so that the file ends with a
  // line's end now. Without locks it may not, and the last line shows it.
  const bool locked = retried([&] { return flock(fd, LOCK_SH); }) == 0;
  struct stat info = {};
  const int result = fstat(fd, &info);
  if (locked) flock(fd, LOCK_UN);
  if (result != 0 || !S_ISREG(info.st_mode)) return unreadable(path);
  reader.left_ = info.st_size;
  return reader;
}

Status LineReader::fill() {
  constexpr int64_t kPiece = int64_t{1} << 20;
  std::string piece(static_cast<size_t>(std::min(left_, kPiece)), '\0');
  const ssize_t count = retried([&] { return read(fd_, piece.data(), piece.size()); });
  if (count < 0) return unreadable(path_);
  left_ = count == 0 ? 0 : left_ - count;
  buffer_.erase(0, std::exchange(from_, 0));
  buffer_.append(piece, 0, static_cast<size_t>(count));
  return {};
}

Expected<bool> LineReader::next(std::string& line, bool& whole) {
  size_t searched = from_;
  for (;;) {
    const size_t end = buffer_.find('\n', searched);
    whole = end != std::string::npos;
    if (whole || left_ == 0) {
      if (!whole && from_ == buffer_.size()) return false;
      line.assign(buffer_, from_, (whole ? end : buffer_.size()) - from_);
      from_ = whole ? end + 1 : buffer_.size();
      return true;
    }
    searched = buffer_.size() - from_;
    if (static_cast<int64_t>(searched) > kMaxJsonBytes) {
      return invalid_data("{}: a line has more than {} MiB", path_, kMaxJsonBytes >> 20);
    }
    AERIE_RETURN_IF_ERROR(fill());
  }
}

class Chooser {
 public:
  explicit Chooser(const RecordChoice& choice) : choice_(choice), random_(choice.seed) {}

  // `in_folder`: its last line may be unfinished.
  Status read_file(const std::string& path, bool in_folder);
  ChosenRecords result();

 private:
  void take(AuditRecord record);

  struct Numbered {
    int64_t number = 0;
    AuditRecord record;
  };

  const RecordChoice& choice_;
  std::mt19937_64 random_;
  std::vector<Numbered> kept_;
  std::vector<std::string> unfinished_;
  int64_t seen_ = 0;  // records to draw from
};

// Each of those seen has the same chance to be among the kept (Vitter's algorithm R).
void Chooser::take(AuditRecord record) {
  const int64_t number = seen_++;
  if (choice_.sample == 0 || number < choice_.sample) {
    kept_.push_back({number, std::move(record)});
    return;
  }
  const int64_t place = std::uniform_int_distribution<int64_t>(0, number)(random_);
  if (place < choice_.sample) kept_[static_cast<size_t>(place)] = {number, std::move(record)};
}

Status Chooser::read_file(const std::string& path, bool in_folder) {
  AERIE_ASSIGN_OR_RETURN(LineReader reader, LineReader::open(path));
  std::string line;
  bool whole = true;
  int taken = 0;
  for (int number = 1;; ++number) {
    AERIE_ASSIGN_OR_RETURN(const bool found, reader.next(line, whole));
    if (!found) return {};
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    Expected<Record> record = parse_record(line, where);
    if (!record.ok()) {
      if (whole || !in_folder) return record.status();
      unfinished_.push_back(where);
      continue;
    }
    if (choice_.since > 0 && record->time < choice_.since) continue;
    if (choice_.limit == 0 || taken++ < choice_.limit) take({std::move(*record), where});
  }
}

ChosenRecords Chooser::result() {
  std::ranges::sort(kept_, {}, &Numbered::number);
  ChosenRecords out;
  out.unfinished = std::move(unfinished_);
  for (Numbered& one : kept_) out.records.push_back(std::move(one.record));
  return out;
}

}  // namespace

Expected<ChosenRecords> read_records(const std::vector<std::string>& paths,
                                     const RecordChoice& choice) {
  Chooser chooser(choice);
  for (const std::string& path : paths) {
    if (!is_folder(path)) {
      AERIE_RETURN_IF_ERROR(chooser.read_file(path, false));
      continue;
    }
    AERIE_ASSIGN_OR_RETURN(const auto files, in_context(paths_in(path, "", ".jsonl"), "RECORDS"));
    for (const std::string& file : files) {
      const Status status = chooser.read_file(file, true);
      // A server may have deleted its oldest one since.
      if (!status.ok() && is_there(file)) return status;
    }
  }
  return chooser.result();
}

}  // namespace aerie::measure
