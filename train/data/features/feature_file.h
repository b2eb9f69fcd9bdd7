// What is said about files of features and how they are found.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/safetensors/safetensors.h"

namespace aerie::train {

// What a file's metadata say.
struct FeatureKind {
  std::string fingerprint;  // DataInfo::fingerprint
  std::vector<int32_t> tap_layers;
  int hidden = 0;

  bool operator==(const FeatureKind&) const = default;
};
std::vector<std::pair<std::string, std::string>> feature_metadata(const FeatureKind& kind);

// All files of features in a folder, open.
struct FeatureFiles {
  FeatureKind kind;  // of all files; as it was made if there are none
  std::vector<SafetensorsFile> files;
  // By sample id. Each has the type bfloat16 and the shape [tokens][taps][hidden].
  std::unordered_map<std::string, const SafetensorsTensor*> tensors;

  // kInvalidData, naming the file, for what is broken, for files of two kinds and for a sample that
  // is there twice.
  static Expected<FeatureFiles> open(const std::string& folder);
};

}  // namespace aerie::train
