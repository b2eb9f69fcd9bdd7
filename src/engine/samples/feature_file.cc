#include "engine/samples/feature_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/files.h"
#include "format/text.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFingerprintKey = "model_fingerprint";
constexpr const char* kLayersKey = "tap_layers";
constexpr const char* kHiddenKey = "hidden";
constexpr int kMostHidden = 1 << 20;

Status broken(const SafetensorsFile& file, const std::string& what) {
  return {StatusCode::kInvalidData,
          fmt::format("{}: {}; remove it and store the features again", file.name(), what)};
}

// Whole numbers with commas between them, none of them negative.
std::vector<int32_t> parse_list(std::string_view text) {
  std::vector<int32_t> out;
  for (const char *at = text.data(), *end = at + text.size(); at <= end;) {
    int32_t value = -1;
    const auto result = std::from_chars(at, end, value);
    if (result.ec != std::errc() || value < 0 || (result.ptr != end && *result.ptr != ',')) {
      return {};
    }
    out.push_back(value);
    at = result.ptr + 1;
  }
  return out;
}

Expected<FeatureKind> kind_of(const SafetensorsFile& file) {
  FeatureKind kind;
  std::vector<int32_t> hidden;
  for (const auto& [key, value] : file.metadata()) {
    if (key == kFingerprintKey) kind.fingerprint = value;
    if (key == kLayersKey) kind.tap_layers = parse_list(value);
    if (key == kHiddenKey) hidden = parse_list(value);
  }
  if (kind.tap_layers.empty() || hidden.size() != 1 || hidden[0] < 1 || hidden[0] > kMostHidden) {
    return broken(file, "its metadata do not say what the features are");
  }
  kind.hidden = hidden[0];
  return kind;
}

Status check(const SafetensorsFile& file, const SafetensorsTensor& tensor,
             const FeatureKind& kind) {
  if (tensor.type == SafetensorsType::kBF16 && tensor.shape.size() == 3 &&
      tensor.shape[1] == static_cast<int64_t>(kind.tap_layers.size()) &&
      tensor.shape[2] == kind.hidden) {
    return {};
  }
  return broken(file, fmt::format("tensor '{}' is no bfloat16 [tokens, {}, {}]",
                                  printable(tensor.name), kind.tap_layers.size(), kind.hidden));
}

}  // namespace

std::vector<int32_t> eagle3_layers(int layers) {
  return {std::min(2, layers), layers / 2, std::max(0, layers - 3)};
}

std::vector<std::pair<std::string, std::string>> feature_metadata(const FeatureKind& kind) {
  std::string layers;
  for (const int32_t layer : kind.tap_layers) {
    layers += fmt::format("{}{}", layers.empty() ? "" : ",", layer);
  }
  return {{kFingerprintKey, kind.fingerprint},
          {kLayersKey, layers},
          {kHiddenKey, fmt::format("{}", kind.hidden)}};
}

Expected<FeatureFiles> FeatureFiles::open(const std::string& folder, bool served) {
  FeatureFiles out;
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                         paths_in(folder, "features-", ".safetensors"));
  for (const std::string& path : paths) {
    Expected<SafetensorsFile> opened = SafetensorsFile::open(path);
    if (served && opened.status().code() == StatusCode::kNotFound) continue;
    AERIE_ASSIGN_OR_RETURN(SafetensorsFile file, std::move(opened));
    AERIE_ASSIGN_OR_RETURN(FeatureKind kind, kind_of(file));
    if (out.files.empty()) out.kind = kind;
    if (kind != out.kind) {
      return broken(file, "it is of another model or other layers than " + out.files[0].name());
    }
    for (const SafetensorsTensor& tensor : file.tensors()) {
      AERIE_RETURN_IF_ERROR(check(file, tensor, kind));
      if (!out.tensors.insert({std::string(tensor.name), {&tensor, out.files.size()}}).second) {
        return broken(file,
                      fmt::format("sample {} is in another file, too", printable(tensor.name)));
      }
    }
    out.files.push_back(std::move(file));
  }
  return out;
}

int64_t feature_width(const FeatureKind& kind) {
  return static_cast<int64_t>(kind.tap_layers.size()) * kind.hidden;
}

SafetensorsEntry feature_entry(const FeatureKind& kind, const std::string& id, int64_t tokens) {
  return {id,
          SafetensorsType::kBF16,
          {tokens, static_cast<int64_t>(kind.tap_layers.size()), kind.hidden}};
}

Expected<std::vector<uint16_t>> read_first_rows(const std::string& path, const FeatureKind& kind,
                                                const std::string& sample, size_t rows) {
  AERIE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  const SafetensorsTensor* tensor = file.find(sample);
  if (tensor == nullptr) return broken(file, fmt::format("there is no sample {}", sample));
  AERIE_RETURN_IF_ERROR(check(file, *tensor, kind));
  std::vector<uint16_t> out(rows * static_cast<size_t>(feature_width(kind)));
  const size_t bytes = out.size() * sizeof(uint16_t);
  if (tensor->data.size() < bytes) {
    return broken(file, fmt::format("sample {} has fewer than {} tokens", sample, rows));
  }
  if (bytes > 0) std::memcpy(out.data(), tensor->data.data(), bytes);
  AERIE_RETURN_IF_ERROR(file.check());
  return out;
}

Status check_kind(const FeatureFiles& there, const std::string& folder, const FeatureKind& wanted) {
  if (there.files.empty() || (there.kind.tap_layers == wanted.tap_layers &&
                              there.kind.fingerprint == wanted.fingerprint)) {
    return {};
  }
  return {StatusCode::kInvalidArgument,
          fmt::format("{}: there are features of layers {} already; give these, or remove "
                      "features-*.safetensors",
                      folder, fmt::join(there.kind.tap_layers, ","))};
}

}  // namespace aerie
