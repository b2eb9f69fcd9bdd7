// Who asked what of the server when, without any text: a file that is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "format/json.h"

namespace aerie::server {

// A line for each request, at the end of the file. What cannot be written is counted and told, and
// keeps no request from its answer. Any thread.
class AuditLog {
 public:
  // Told once when lines cannot be written, once when they can be again, and of a file that cannot
  // be opened anew; by another thread. Must not wait.
  using Warn = std::function<void(const std::string& message)>;

  // Writes a first line, {"event": "opened"}. Fails where the file cannot be opened, or written to.
  static Expected<std::unique_ptr<AuditLog>> open(const std::string& path, Warn warn);
  ~AuditLog();

  // What an EventLog (server/access/request_account.h) hears, without what the client chose to
  // write; other events are let go.
  void add(const Json& event);

  // By its name, before the next line: whoever moved the file has a new one. Where that fails, the
  // old one goes on.
  void reopen();

  int64_t lost() const;  // lines
  // That, in the form of /metrics.
  std::string metrics() const;

 private:
  struct File;
  explicit AuditLog(std::shared_ptr<File> file);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace aerie::server
