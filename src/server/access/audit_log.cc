#include "server/access/audit_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/files.h"
#include "server/access/line_log.h"

namespace aerie::server {
namespace {

// Whoever may read it learns who asks when: not everybody.
constexpr mode_t kMode = 0640;

int64_t size_of(int fd) {
  struct stat is = {};
  return fstat(fd, &is) == 0 ? is.st_size : 0;
}

Expected<int> open_file(const std::string& path) {
  // A pipe that nobody reads is an error, and none to wait for.
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  const int fd = retried([&] { return ::open(path.c_str(), flags, kMode); });
  if (fd < 0) return system_error(path, "the audit log cannot be opened", errno);
  return fd;
}

}  // namespace

// Of the writing thread, but for what is atomic.
struct AuditLog::File {
  std::string path;
  Warn warn;
  int fd = -1;
  bool is_torn = false;       // it ends within a line
  int64_t lost_in_a_row = 0;  // since a line was written
  std::atomic<bool> is_moved = false;
  std::atomic<int64_t> lost = 0;

  ~File() {
    if (fd >= 0) close(fd);
  }

  int write(const std::string& line) {
    const int64_t before = size_of(fd);
    const int error = write_all(fd, is_torn ? "\n" + line : line);
    is_torn = error != 0 && (is_torn || size_of(fd) != before);
    return error;
  }

  void open_anew() {
    auto opened = open_file(path);
    if (!opened.ok()) {
      warn(fmt::format("error: {}: the one before goes on", opened.status().message()));
      return;
    }
    close(std::exchange(fd, *opened));
    is_torn = false;
  }

  void add(const std::string& line) {
    if (is_moved.exchange(false)) open_anew();
    const int error = write(line);
    if (error != 0) {
      ++lost;
      if (lost_in_a_row++ == 0) {
        const Status status = system_error(path, "the audit log cannot be written", error);
        warn(fmt::format("error: {}: requests go on without it", status.message()));
      }
    } else if (const int64_t lines = std::exchange(lost_in_a_row, 0); lines > 0) {
      warn(fmt::format("{}: the audit log is written again; {} lines were lost", path, lines));
    }
  }
};

struct AuditLog::State {
  explicit State(std::shared_ptr<File> opened)
      : file(std::move(opened)), lines([to = file](const std::string& line) { to->add(line); }) {}

  const std::shared_ptr<File> file;
  LineLog lines;
};

AuditLog::AuditLog(std::shared_ptr<File> file) : state_(std::make_unique<State>(std::move(file))) {}
AuditLog::~AuditLog() = default;

Expected<std::unique_ptr<AuditLog>> AuditLog::open(const std::string& path, Warn warn) {
  auto file = std::make_shared<File>();
  file->path = path;
  file->warn = std::move(warn);
  AERIE_ASSIGN_OR_RETURN(file->fd, open_file(path));
  const std::string line = log_line({{"event", "opened"}});
  if (const int error = file->write(line); error != 0) {
    return system_error(path, "the audit log cannot be written", error);
  }
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(file)));
}

void AuditLog::add(const Json& event) {
  if (event.value("event", "") != "request") return;
  Json line = event;
  line["seconds"] = line.value("ms", 0.0) / 1e3;
  for (const char* name : {"path", "bytes", "ms"}) line.erase(name);
  state_->lines.event(line);
}

void AuditLog::reopen() {
  state_->file->is_moved.store(true);
  state_->lines.event({{"event", "opened"}});
}

int64_t AuditLog::lost() const {
  return state_->file->lost.load() + state_->lines.dropped();
}

std::string AuditLog::metrics() const {
  return fmt::format(
      "# HELP aerie:audit_lines_lost_total Lines of the audit log that could not be written\n"
      "# TYPE aerie:audit_lines_lost_total counter\n"
      "aerie:audit_lines_lost_total {}\n",
      lost());
}

}  // namespace aerie::server
