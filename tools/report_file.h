// The files that --json, --html and --out name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "format/output_file.h"

namespace aerie {

// Opened before the work, so that what cannot be written is known before, and written once, behind
// it: a file whole or not at all (format/output_file.h).
class ReportFile {
 public:
  // An empty path: nothing is written; "-": to standard output. kInvalidArgument with flag and path
  // if nothing can be.
  static Expected<ReportFile> open(const std::string& path, const std::string& flag = "--json");

  // All of it. Messages begin with the flag.
  Status write(std::string_view text);
  // What people read of the same: to standard output, or to standard error where the report goes
  // there.
  void print_beside(std::string_view text) const;

 private:
  explicit ReportFile(std::string flag) : flag_(std::move(flag)) {}

  std::string flag_;
  std::optional<OutputFile> file_;
  bool to_output_ = false;
};

}  // namespace aerie
