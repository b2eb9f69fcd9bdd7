#include "train/data/features/feature_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "base/files.h"
#include "engine/samples/feature_file.h"
#include "format/safetensors/safetensors_write.h"
#include "tensor/dtype.h"
#include "train/data/dataset.h"
#include "train/data/features/feature_writer.h"
#include "train/data/features/features.h"

namespace aerie::train {
namespace {

namespace fs = std::filesystem;

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

bool cancelled(const StoreOptions& options) {
  return options.cancel != nullptr && options.cancel->load();
}

class Store {
 public:
  Store(const StoreOptions& options, FeatureKind kind, FeatureSource& source)
      : options_(options), kind_(std::move(kind)), source_(source) {}

  // Of a sample.
  int64_t bytes_of(const Sample& sample) const {
    return static_cast<int64_t>(sample.tokens.size()) * feature_width(kind_) *
           static_cast<int64_t>(sizeof(uint16_t));
  }
  Status check_room(std::span<const Sample* const> samples) const;
  Status run(std::span<const Sample* const> samples, StoreResult& result);

 private:
  Status write(std::span<const Sample* const> samples, StoreResult& result);
  Status put(const Sample& sample, const ByteSink& sink);

  const StoreOptions& options_;
  FeatureKind kind_;
  FeatureSource& source_;
  int next_file_ = 0;
  std::vector<float> values_;
  std::vector<uint16_t> rounded_;
};

Status Store::check_room(std::span<const Sample* const> samples) const {
  int64_t needed = 0;
  for (const Sample* sample : samples) needed += bytes_of(*sample);
  std::error_code error;
  const fs::space_info space = fs::space(options_.folder, error);
  if (error) return {};  // a full disk is an error later, too
  if (static_cast<uint64_t>(needed) <= space.available) return {};
  return {StatusCode::kResourceExhausted,
          fmt::format("features of {} samples take {}, and {} are free in {}; trainers compute "
                      "them where they are not stored",
                      samples.size(), gibibytes(needed),
                      gibibytes(static_cast<int64_t>(space.available)), options_.folder)};
}

Status Store::put(const Sample& sample, const ByteSink& sink) {
  if (cancelled(options_)) return {StatusCode::kCancelled, "stopped"};
  values_.resize(static_cast<size_t>(bytes_of(sample)) / sizeof(uint16_t));
  AERIE_RETURN_IF_ERROR(source_.read(sample, values_));
  rounded_.resize(values_.size());
  std::ranges::transform(values_, rounded_.begin(), f32_to_bf16);
  return sink(std::as_bytes(std::span(rounded_)));
}

Status Store::write(std::span<const Sample* const> samples, StoreResult& result) {
  const std::string path = free_feature_path(options_.folder, options_.shard, next_file_);
  std::vector<SafetensorsEntry> entries;
  for (const Sample* sample : samples) {
    entries.push_back(
        feature_entry(kind_, sample->id, static_cast<int64_t>(sample->tokens.size())));
  }
  int done = result.stored;
  const auto values = [&](size_t index, const ByteSink& sink) {
    Status status = put(*samples[index], sink);
    ++done;
    return status;
  };
  AERIE_ASSIGN_OR_RETURN(const int64_t bytes,
                         write_safetensors(path, entries, feature_metadata(kind_), values));
  result.stored = done;
  result.bytes += bytes;
  return {};
}

Status Store::run(std::span<const Sample* const> samples, StoreResult& result) {
  for (size_t first = 0; first < samples.size();) {
    size_t end = first;
    for (int64_t bytes = 0; end < samples.size() && (end == first || bytes < options_.file_bytes);
         ++end) {
      bytes += bytes_of(*samples[end]);
    }
    AERIE_RETURN_IF_ERROR(write(samples.subspan(first, end - first), result));
    first = end;
  }
  return {};
}

}  // namespace

Expected<StoreResult> store_features(const StoreOptions& options) {
  AERIE_ASSIGN_OR_RETURN(const Dataset dataset, read_dataset(options.folder));
  AERIE_ASSIGN_OR_RETURN(const std::string fingerprint, model_fingerprint(options.model));
  if (fingerprint != dataset.info.fingerprint) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: the samples are of {}, not of {}", options.folder,
                              dataset.info.model, options.model));
  }
  AERIE_ASSIGN_OR_RETURN(const FeatureFiles there, FeatureFiles::open(options.folder));
  AERIE_RETURN_IF_ERROR(check_kind(there, options.folder, {fingerprint, options.tap_layers}));
  StoreResult result;
  std::vector<const Sample*> samples;
  size_t longest = 2;
  for (const Sample& sample : dataset.samples) {
    if (!options.shard.has(sample.prompt)) continue;
    if (there.tensors.contains(sample.id)) {
      ++result.there;
    } else {
      samples.push_back(&sample);
      longest = std::max(longest, sample.tokens.size());
    }
  }
  if (samples.empty()) return result;
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<FeatureSource> source,
                         compute_features(options.model, options.tap_layers, options.threads,
                                          static_cast<int>(longest), options.device));
  Store store(options, {fingerprint, options.tap_layers, source->hidden()}, *source);
  AERIE_RETURN_IF_ERROR(store.check_room(samples));
  const Status status = store.run(samples, result);
  if (!status.ok() && status.code() != StatusCode::kCancelled) return status;
  result.missing = static_cast<int>(samples.size()) - result.stored;
  return result;
}

Status remove_features(const std::string& folder) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                         paths_in(folder, "features-", ".safetensors"));
  for (const std::string& path : paths) {
    std::error_code error;
    fs::remove(path, error);
    if (error) {
      return {StatusCode::kInternal,
              fmt::format("{} cannot be removed: {}", path, error.message())};
    }
  }
  return {};
}

}  // namespace aerie::train
