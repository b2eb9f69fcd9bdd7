#include "format/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "format/checksum.h"

namespace aerie {
namespace {

constexpr size_t kSample = 256;

uint64_t sample(std::span<const std::byte> tensor) {
  if (tensor.size() <= 3 * kSample) return checksum(tensor);
  const size_t middle = (tensor.size() - kSample) / 2;
  return checksum(tensor.first(kSample)) + checksum(tensor.subspan(middle, kSample), kSample) +
         checksum(tensor.last(kSample), 2 * kSample);
}

void describe(const SourceFile& file, int64_t modified, std::string& text) {
  size_t header = file.bytes.size();
  for (const auto& tensor : file.tensors) {
    if (!tensor.empty()) {
      header = std::min(header, static_cast<size_t>(tensor.data() - file.bytes.data()));
    }
  }
  fmt::format_to(std::back_inserter(text), "file {} {} {} {:x}", file.bytes.size(), modified,
                 header, checksum(file.bytes.first(header)));
  for (const auto& tensor : file.tensors) {
    fmt::format_to(std::back_inserter(text), " {:x}", sample(tensor));
  }
}

std::optional<uint64_t> fingerprint(const ModelFile& file, bool with_times) {
  const std::vector<SourceFile> sources = file.sources();
  if (sources.empty()) return std::nullopt;
  std::string text;
  for (const SourceFile& source : sources) describe(source, with_times ? source.modified : 0, text);
  for (const TensorInfo& tensor : file.tensors()) {
    fmt::format_to(std::back_inserter(text), " {} {} {}", tensor.name, tensor.type_name,
                   shape_to_string(tensor.shape));
  }
  if (!file.check_intact().ok()) return std::nullopt;
  return checksum(std::as_bytes(std::span(text))) + text.size();
}

}  // namespace

std::optional<uint64_t> fingerprint(const ModelFile& file) {
  return fingerprint(file, true);
}

std::optional<uint64_t> content_fingerprint(const ModelFile& file) {
  return fingerprint(file, false);
}

}  // namespace aerie
