#include "tools/files/convert.h"

#include <fmt/format.h>

#include <ostream>

#include "base/clock.h"

namespace aerie {

Status convert(const ConvertOptions& options, std::ostream& messages) {
  const auto start = steady_now();
  AERIE_ASSIGN_OR_RETURN(const ConvertReport report, convert_model(options));
  for (const std::string& note : report.notes) {
    messages << fmt::format("note: the GGUF file cannot say that {}\n", note);
  }
  messages << fmt::format("wrote {}: {:.1f} MiB in {:.1f} s\n", options.output,
                          static_cast<double>(report.bytes) / (1 << 20), seconds_since(start));
  return {};
}

}  // namespace aerie
