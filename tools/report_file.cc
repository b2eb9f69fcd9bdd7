#include "tools/report_file.h"

#include <span>
#include <utility>

#include "base/errors.h"
#include "base/standard_streams.h"

namespace aerie {

Expected<ReportFile> ReportFile::open(const std::string& path, const std::string& flag) {
  ReportFile report(flag);
  report.to_output_ = path == "-";
  if (path.empty() || report.to_output_) return report;
  Expected<OutputFile> file = OutputFile::create(path);
  const bool no_folder = file.status().code() == StatusCode::kNotFound;
  if (!file.ok()) {
    return invalid_argument("{} {}{}", flag, file.status().message(),
                            no_folder ? "; does its folder exist?" : "");
  }
  report.file_.emplace(*std::move(file));
  return report;
}

Status ReportFile::write(std::string_view text) {
  if (to_output_) print_output(text);
  if (!file_) return {};
  const Status written = file_->write(std::as_bytes(std::span(text)));
  AERIE_RETURN_IF_ERROR(written.with_context(flag_));
  return file_->commit().with_context(flag_);
}

void ReportFile::print_beside(std::string_view text) const {
  if (to_output_) {
    print_message(text);
  } else {
    print_output(text);
  }
}

}  // namespace aerie
