#include "train/data/answer_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "format/input_file.h"

namespace aerie::train {

namespace fs = std::filesystem;

Expected<Shard> parse_shard(const std::string& text) {
  Shard shard;
  const char* end = text.data() + text.size();
  const auto part = std::from_chars(text.data(), end, shard.part);
  if (part.ec == std::errc() && part.ptr != end && *part.ptr == '/') {
    const auto of = std::from_chars(part.ptr + 1, end, shard.of);
    if (of.ec == std::errc() && of.ptr == end && shard.part >= 1 && shard.part <= shard.of) {
      return shard;
    }
  }
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("--shard {}: give PART/OF, such as 1/3, 2/3 and 3/3 for three machines", text));
}

Expected<std::vector<std::string>> answer_files(const std::string& folder) {
  return paths_in(folder, "answers-", ".jsonl");
}

Expected<std::vector<Sample>> read_answers(const std::string& path, int vocab) {
  std::vector<Sample> samples;
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_file(path, INT64_MAX));
  std::string_view rest = text;
  for (int line = 1;; ++line) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return samples;
    AERIE_ASSIGN_OR_RETURN(
        samples.emplace_back(),
        parse_sample(rest.substr(0, end), fmt::format("{}:{}", path, line), vocab));
    rest.remove_prefix(end + 1);
  }
}

Expected<AnswerFile> AnswerFile::open(const std::string& folder, const Shard& shard) {
  const std::string path =
      (fs::path(folder) / fmt::format("answers-{}-of-{}.jsonl", shard.part, shard.of)).string();
  const int fd = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0) return system_error(path, "the file cannot be written", errno);
  AnswerFile file(path, fd);
  if (retried([&] { return flock(fd, LOCK_EX | LOCK_NB); }) != 0) {
    return system_error(path, "another run may be writing this shard; wait for it or end it",
                        errno);
  }
  AERIE_RETURN_IF_ERROR(file.cut_torn_line());
  return file;
}

AnswerFile::AnswerFile(AnswerFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

AnswerFile::~AnswerFile() {
  if (fd_ >= 0) close(fd_);
}

Status AnswerFile::cut_torn_line() {
  const off_t size = lseek(fd_, 0, SEEK_END);
  off_t end = size;
  for (char byte = 0; end > 0; --end) {
    if (retried([&] { return pread(fd_, &byte, 1, end - 1); }) != 1) {
      return system_error(path_, "the file cannot be read", errno);
    }
    if (byte == '\n') break;
  }
  if (size < 0) return system_error(path_, "the file cannot be read", errno);
  if (end == size) return {};
  log(LogLevel::kWarning,
      fmt::format("{}: {} bytes of a line without an end are cut off: a run was "
                  "ended in the middle of it",
                  path_, size - end));
  if (ftruncate(fd_, end) != 0) return system_error(path_, "the file cannot be cut", errno);
  return {};
}

Status AnswerFile::append(const Sample& sample) {
  const std::string line = to_line(sample) + "\n";
  const off_t size = lseek(fd_, 0, SEEK_END);
  if (const int error = write_all(fd_, line); error != 0) {
    // The next run cuts off what this cannot.
    const int cut = ftruncate(fd_, size);
    return system_error(path_, cut == 0 ? "the sample was not added" : "half a sample was added",
                        error);
  }
  return {};
}

}  // namespace aerie::train
