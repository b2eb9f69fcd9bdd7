#include "train/run/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/files.h"

namespace aerie::train {
RunLog::RunLog(std::string path) : path_(std::move(path)) {}
RunLog::RunLog(RunLog&&) noexcept = default;
RunLog::~RunLog() = default;

const std::vector<Json>& RunLog::lines() const {
  return lines_;
}

Expected<RunLog> RunLog::open(const std::string& path, int64_t step) {
  RunLog log(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) return log;
  const std::string text(std::istreambuf_iterator<char>(file), {});
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string where = path + ":" + std::to_string(log.lines_.size() + 1);
    AERIE_ASSIGN_OR_RETURN(Json line, parse_json(text.substr(begin, end - begin), where));
    AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(line, where));
    AERIE_ASSIGN_OR_RETURN(const int64_t of_step, object.integer("step"));
    if (of_step > step) break;
    log.lines_.push_back(std::move(line));
  }
  if (begin < text.size() && truncate(path.c_str(), static_cast<off_t>(begin)) != 0) {
    return system_error(path, "cannot cut off what came after the checkpoint", errno);
  }
  return log;
}

Status RunLog::add(const Json& line) {
  const std::string text = line.dump() + "\n";
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return system_error(path_, "cannot write the log", errno);
  const int error = write_all(fd, text);
  close(fd);
  if (error != 0) return system_error(path_, "cannot write the log", error);
  lines_.push_back(line);
  return {};
}

}  // namespace aerie::train
