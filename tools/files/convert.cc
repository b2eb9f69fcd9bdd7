#include "tools/files/convert.h"

#include <fmt/format.h>

#include <chrono>
#include <ostream>

namespace aerie {

Status convert(const ConvertOptions& options, std::ostream& messages) {
  const auto start = std::chrono::steady_clock::now();
  AERIE_ASSIGN_OR_RETURN(const ConvertReport report, convert_model(options));
  for (const std::string& note : report.notes) {
    messages << fmt::format("note: the GGUF file cannot say that {}\n", note);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  messages << fmt::format("wrote {}: {:.1f} MiB in {:.1f} s\n", options.output,
                          static_cast<double>(report.bytes) / (1 << 20), seconds.count());
  return {};
}

}  // namespace aerie
