// A folder of record files that stays within a size: the newest records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/recording/record_file.h"

namespace aerie {

// Files are named replies-YYYY-MM-DD-NNN.jsonl by the day (UTC) of their records and a number. Each
// opening, each day and each eighth of the bound begins a new one. What has other names is never
// touched, but for kLockName. For one thread; one process at a time writes to a folder.
class RecordFolder {
 public:
  static constexpr const char* kLockName = ".aerie-record.lock";
  static constexpr int64_t kLeastBytes = int64_t{1} << 20;

  // Makes the folder, which only its owner may enter, if it is not there. `max_bytes`, at least
  // kLeastBytes: of all files with such names together, those of earlier times included.
  // kInvalidArgument, naming the path, if nothing can be written there or another process writes
  // there already.
  static Expected<RecordFolder> open(const std::string& path, int64_t max_bytes);

  ~RecordFolder();
  RecordFolder(RecordFolder&& other) noexcept;
  RecordFolder& operator=(RecordFolder&&) = delete;

  // A line with its end, of a record that ended at `time` (seconds since 1970), whole or, with an
  // error, not at all. Before the bound is passed the oldest files go. Begins anew if the folder
  // was removed; after an error the next call may well succeed. kUnsupported for a line that is
  // longer than a file may be.
  Status append(const std::string& line, int64_t time);

 private:
  struct Entry {
    std::string name;
    std::string day;
    int64_t number = 0;
    int64_t bytes = 0;
  };

  RecordFolder(std::string path, int64_t max_bytes)
      : path_(std::move(path)), max_bytes_(max_bytes) {}
  static std::optional<Entry> entry_of(const std::string& name);
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }
  Status lock();
  Status begin_file(const std::string& day);
  Status make_room(int64_t bytes);

  std::string path_;
  int64_t max_bytes_;
  int lock_ = -1;
  std::vector<Entry> older_;  // than the file, the oldest first
  std::optional<RecordFile> file_;
  Entry current_;  // the file
};

}  // namespace aerie
