// Lines that are added to a file whole or not at all.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "engine/recording/record.h"

namespace aerie {

// A file of records that grows by whole lines, for one thread; several processes may write to one.
class RecordFile {
 public:
  // What the file holds stays; one that is not there is made. Devices and pipes are written to as
  // they are (format/output_file.h). kInvalidArgument or kNotFound, naming the path, if that cannot
  // be done.
  static Expected<RecordFile> open(const std::string& path);
  // A new one that nobody else may read. kInvalidArgument if something is there, or as open().
  static Expected<RecordFile> create(const std::string& path);

  ~RecordFile();
  RecordFile(RecordFile&& other) noexcept;
  RecordFile& operator=(RecordFile&&) = delete;

  // Adds a line whole or, with an error (kResourceExhausted if the disk is full), not at all, but
  // for devices and pipes. After an unfinished line that something else left behind, begins a new
  // one.
  Status append(const Record& record);
  Status append(std::string line);  // that ends with its line's end

  // Whether it has no name any more: what is added then is lost.
  bool is_removed() const;

 private:
  RecordFile(std::string path, int fd, bool is_regular)
      : path_(std::move(path)), fd_(fd), is_regular_(is_regular) {}

  std::string path_;
  int fd_ = -1;
  bool is_regular_ = true;
};

}  // namespace aerie
