#include "train/data/features/feature_writer.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "format/safetensors/safetensors_write.h"

namespace aerie::train {

namespace fs = std::filesystem;

std::string free_feature_path(const std::string& folder, const Shard& shard, int& next) {
  std::string path;
  std::error_code ignored;
  do {
    path = (fs::path(folder) /
            fmt::format("features-{}-of-{}-{:03}.safetensors", shard.part, shard.of, next++))
               .string();
  } while (fs::exists(path, ignored));
  return path;
}

Expected<FeatureWriter> FeatureWriter::open(const std::string& folder, const Shard& shard,
                                            const FeatureKind& kind, int64_t file_bytes) {
  AERIE_ASSIGN_OR_RETURN(const FeatureFiles there, FeatureFiles::open(folder));
  AERIE_RETURN_IF_ERROR(check_kind(there, folder, kind));
  FeatureWriter writer;
  writer.folder_ = folder;
  writer.shard_ = shard;
  writer.kind_ = kind;
  writer.file_bytes_ = file_bytes;
  for (const auto& [id, tensor] : there.tensors) writer.there_.insert(id);
  return writer;
}

Status FeatureWriter::add(const std::string& id, std::vector<uint16_t> values) {
  if (there_.contains(id)) return {};
  bytes_ += static_cast<int64_t>(values.size() * sizeof(uint16_t));
  waiting_.push_back({id, std::move(values)});
  return bytes_ < file_bytes_ ? Status() : finish();
}

Status FeatureWriter::finish() {
  if (waiting_.empty()) return {};
  std::vector<SafetensorsEntry> entries;
  for (const Entry& entry : waiting_) {
    entries.push_back(feature_entry(
        kind_, entry.id, static_cast<int64_t>(entry.values.size()) / feature_width(kind_)));
  }
  const auto values = [this](size_t index, const ByteSink& sink) {
    return sink(std::as_bytes(std::span(waiting_[index].values)));
  };
  AERIE_RETURN_IF_ERROR(write_safetensors(free_feature_path(folder_, shard_, next_file_), entries,
                                          feature_metadata(kind_), values)
                            .status());
  waiting_.clear();
  bytes_ = 0;
  return {};
}

}  // namespace aerie::train
