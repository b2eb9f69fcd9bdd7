// What is said about files of features and how they are found.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/safetensors/safetensors.h"
#include "format/safetensors/safetensors_write.h"

namespace aerie {

// What a file's metadata say.
struct FeatureKind {
  std::string fingerprint;  // DataInfo::fingerprint
  std::vector<int32_t> tap_layers;
  int hidden = 0;

  bool operator==(const FeatureKind&) const = default;
};
std::vector<std::pair<std::string, std::string>> feature_metadata(const FeatureKind& kind);
// The layers that EAGLE-3's authors read, of a model with so many: early, middle and late.
std::vector<int32_t> eagle3_layers(int layers);
// Values of a token.
int64_t feature_width(const FeatureKind& kind);
// A sample's tensor.
SafetensorsEntry feature_entry(const FeatureKind& kind, const std::string& id, int64_t tokens);

inline constexpr int64_t kFeatureFileBytes = int64_t{48} << 20;  // about, of a file

// All files of features in a folder, open.
struct FeatureFiles {
  FeatureKind kind;  // of all files; as it was made if there are none
  std::vector<SafetensorsFile> files;
  // Each tensor has the type bfloat16 and the shape [tokens][taps][hidden].
  struct Place {
    const SafetensorsTensor* tensor = nullptr;
    size_t file = 0;  // of `files`
  };
  std::unordered_map<std::string, Place> tensors;  // by sample id

  // kInvalidData, naming the file, for what is broken, for files of two kinds and for a sample that
  // is there twice. Of a folder that is `served` (DataInfo) files may go at any time, which then
  // count as if they had never been there.
  static Expected<FeatureFiles> open(const std::string& folder, bool served = false);
};

// bfloat16 [rows][taps][hidden] of a sample's first tokens. kNotFound, kInvalidData if the file has
// not so many of it.
Expected<std::vector<uint16_t>> read_first_rows(const std::string& path, const FeatureKind& kind,
                                                const std::string& sample, size_t rows);

// kInvalidArgument if what is there is of other layers or of another model.
Status check_kind(const FeatureFiles& there, const std::string& folder, const FeatureKind& wanted);

}  // namespace aerie
