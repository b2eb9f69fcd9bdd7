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
#include "train/data/answer_file.h"

namespace aerie::train {

// What a file's metadata say.
struct FeatureKind {
  std::string fingerprint;  // DataInfo::fingerprint
  std::vector<int32_t> tap_layers;
  int hidden = 0;

  bool operator==(const FeatureKind&) const = default;
};
std::vector<std::pair<std::string, std::string>> feature_metadata(const FeatureKind& kind);
// Values of a token.
int64_t width(const FeatureKind& kind);
// A sample's tensor.
SafetensorsEntry feature_entry(const FeatureKind& kind, const std::string& id, int64_t tokens);

inline constexpr int64_t kFeatureFileBytes = int64_t{48} << 20;  // about, of a file
// Of the shard's numbers from `next` on the first that no file has; `next` is then behind it.
std::string free_feature_path(const std::string& folder, const Shard& shard, int& next);

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
  // is there twice.
  static Expected<FeatureFiles> open(const std::string& folder);
};

// kInvalidArgument if what is there is of other layers or of another model.
Status check_kind(const FeatureFiles& there, const std::string& folder, const FeatureKind& wanted);

}  // namespace aerie::train
