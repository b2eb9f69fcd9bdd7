#include "model/weights.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/errors.h"
#include "base/log.h"

namespace aerie {
namespace {

std::string entry_name(const MatrixPart& part) {
  return fmt::format("{}[{}:{}]", part.name, part.begin, part.begin + part.count);
}

// Without ".weight".
std::string stem_of(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

// Of a file or a folder, for people.
std::string short_name(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

// Reads entries by several threads.
class CacheRead {
 public:
  CacheRead(const WeightCache& cache, std::span<const WeightCache::Entry* const> entries)
      : cache_(cache), entries_(entries), sums_(entries.size()) {}

  kernels::FillPart fill() {
    return [this](size_t index, int64_t offset, std::span<std::byte> part) {
      const Status status = cache_.read(*entries_[index], offset, part, sums_[index]);
      if (status.ok()) return;
      const std::lock_guard lock(mutex_);
      status_ = status;
    };
  }

  // Of all that was read.
  Status check() const {
    if (!status_.ok()) return status_;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (sums_[i] == entries_[i]->checksum) continue;
      return invalid_data("{}: is damaged", cache_.path());
    }
    return {};
  }

 private:
  const WeightCache& cache_;
  std::span<const WeightCache::Entry* const> entries_;
  std::vector<std::atomic<uint64_t>> sums_;
  std::mutex mutex_;
  Status status_;
};

}  // namespace

WeightLoader::WeightLoader(const ModelFile& file, const ModelOptions& options)
    : file_(file),
      options_(options),
      progress_("loading " + short_name(file.name()),
                loaded_weight_bytes(file, *options.backend, options.layers), ProgressUnit::kBytes) {
  if (options.weight_cache.empty()) return;
  Expected<WeightCache> cache = WeightCache::of(options.weight_cache, file, *options.backend);
  if (!cache.ok()) {
    log(LogLevel::kWarning, cache.status().message());
    return;
  }
  cache_ = std::move(cache).value();
  const Status opened = cache_->open();
  stale_ = !opened.ok();
  if (stale_ && opened.code() != StatusCode::kNotFound) give_up(opened);
}

void WeightLoader::give_up(const Status& why) {
  log(LogLevel::kWarning, why.message() + "; the weights are packed anew");
  cache_->close();
  stale_ = true;
}

// A tensor that must be there in this shape; the view has no data.
Expected<TensorView> WeightLoader::describe(const std::string& name, const Shape& shape) {
  AERIE_ASSIGN_OR_RETURN(const TensorInfo* tensor, file_.tensor_info(name));
  if (tensor->shape != shape) {
    return invalid_data("{}: tensor '{}' has shape {} where the metadata ask for {}", file_.name(),
                        file_.origin_of(name), shape_to_string(tensor->shape),
                        shape_to_string(shape));
  }
  used_.insert(name);
  return TensorView{*tensor->dtype, Device::kCpu, tensor->shape, nullptr};
}

Expected<TensorData> WeightLoader::read(const std::string& name, int64_t k, int64_t n) {
  AERIE_RETURN_IF_ERROR(describe(name, {k, n, 1, 1}).status());
  return file_.read(name);
}

// That of matrix `index` of a stack; 1 if the file has none.
Expected<float> WeightLoader::factor(const std::string& name, int64_t index, int64_t stack) {
  const std::string stem = stem_of(name);
  ignore(stem + ".input_scale");
  const std::string scale = stem + ".scale";
  if (!has(scale)) return 1.0f;
  if (factors_of_ != scale) {
    const int64_t count = file_.find_tensor(scale)->elements() == 1 ? 1 : stack;
    AERIE_ASSIGN_OR_RETURN(factors_, vector(scale, count));
    factors_of_ = scale;
  }
  return factors_[factors_.size() == 1 ? 0 : static_cast<size_t>(index)];
}

Expected<Arena*> WeightLoader::arena() {
  if (!arena_) {
    const bool used = options_.backend->uses_arena();
    const int64_t bytes = used ? packed_weight_bytes(file_, *options_.backend, options_.layers) : 0;
    AERIE_ASSIGN_OR_RETURN(arena_, Arena::reserve(static_cast<size_t>(bytes)));
  }
  return &*arena_;
}

Status WeightLoader::load(std::span<const MatrixPart> parts) {
  AERIE_ASSIGN_OR_RETURN(Arena * memory, arena());
  std::vector<kernels::PackedMatrix> matrices;
  for (const MatrixPart& part : parts) {
    AERIE_ASSIGN_OR_RETURN(TensorView view, describe(part.name, {part.k, part.n, part.stack, 1}));
    view.shape = {part.k, part.count, 1, 1};
    AERIE_ASSIGN_OR_RETURN(kernels::PackedMatrix matrix, options_.backend->allocate(view, *memory));
    if (part.has_factor) {
      AERIE_ASSIGN_OR_RETURN(matrix.factor, factor(part.name, part.begin / part.n, part.stack));
    }
    matrices.push_back(std::move(matrix));
  }
  if (!restore(parts, matrices)) AERIE_RETURN_IF_ERROR(pack(parts, matrices));
  for (size_t i = 0; i < parts.size(); ++i) {
    const Buffer& data = matrices[i].data;
    packed_bytes_ += matrices[i].bytes();
    progress_.add(matrices[i].bytes());
    keep(entry_name(parts[i]), {data.data(), data.size()});
    *parts[i].into = std::move(matrices[i]);
  }
  return {};
}

Status WeightLoader::pack(std::span<const MatrixPart> parts,
                          std::span<kernels::PackedMatrix> matrices) {
  std::vector<TensorData> tensors;
  std::vector<TensorView> views;
  for (size_t i = 0; i < parts.size(); ++i) {
    // Parts of one tensor follow each other, and reading it may be work.
    if (i == 0 || parts[i].name != parts[i - 1].name) {
      AERIE_ASSIGN_OR_RETURN(TensorData tensor, file_.read(parts[i].name));
      tensors.push_back(std::move(tensor));
    }
    TensorView view = tensors.back().view;
    view.data = view.row(parts[i].begin);
    view.shape = {parts[i].k, parts[i].count, 1, 1};
    views.push_back(view);
  }
  options_.backend->pack(*options_.pool, views, matrices);
  for (const TensorView& view : views) file_.release(view);
  return {};
}

// Leaves the matrices 0 if not all of them are in the cache.
bool WeightLoader::restore(std::span<const MatrixPart> parts,
                           std::span<kernels::PackedMatrix> matrices) {
  if (!cache_) return false;
  std::vector<const WeightCache::Entry*> entries;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto size = static_cast<int64_t>(matrices[i].data.size());
    entries.push_back(cache_->find(entry_name(parts[i]), size));
    if (entries.back() != nullptr) continue;
    stale_ = true;
    return false;
  }
  CacheRead read(*cache_, entries);
  options_.backend->fill(*options_.pool, matrices, read.fill());
  const Status status = read.check();
  if (status.ok()) return true;
  give_up(status);
  for (kernels::PackedMatrix& matrix : matrices) {
    std::memset(matrix.data.data(), 0, matrix.data.size());
  }
  return false;
}

Expected<kernels::PackedMatrix> WeightLoader::rows(const std::string& name, int64_t k, int64_t n,
                                                   std::span<const int32_t> ids) {
  AERIE_ASSIGN_OR_RETURN(const TensorData whole, read(name, k, n));
  AERIE_ASSIGN_OR_RETURN(const TensorData chosen, select_rows(whole, ids));
  AERIE_ASSIGN_OR_RETURN(kernels::PackedMatrix matrix,
                         options_.backend->packed(*options_.pool, chosen.view));
  AERIE_ASSIGN_OR_RETURN(matrix.factor, factor(name, 0, 1));
  file_.release(whole.view);
  packed_bytes_ += matrix.bytes();
  return matrix;
}

Expected<std::vector<kernels::PackedMatrix>> WeightLoader::turned(const std::string& name,
                                                                  int64_t k, int64_t n,
                                                                  int64_t stack, int64_t count) {
  AERIE_ASSIGN_OR_RETURN(const TensorData whole, read(name, k, n));
  const TensorView& view = whole.view;
  std::vector<float> row(static_cast<size_t>(k)), part(static_cast<size_t>(k * count));
  std::vector<kernels::PackedMatrix> matrices;
  for (int64_t i = 0; i < stack; ++i) {
    for (int64_t r = 0; r < count; ++r) {
      dequantize(view.dtype, view.row(i * (n / stack) + r), k, row.data());
      for (int64_t at = 0; at < k; ++at) {
        part[static_cast<size_t>(at * count + r)] = row[static_cast<size_t>(at)];
      }
    }
    const TensorView turned = {DType::kF32, Device::kCpu, Shape{count, k, 1, 1},
                               reinterpret_cast<const std::byte*>(part.data())};
    AERIE_ASSIGN_OR_RETURN(kernels::PackedMatrix matrix,
                           options_.backend->packed(*options_.pool, turned));
    AERIE_ASSIGN_OR_RETURN(matrix.factor, factor(name, 0, 1));
    packed_bytes_ += matrix.bytes();
    matrices.push_back(std::move(matrix));
  }
  file_.release(view);
  return matrices;
}

Expected<TensorData> WeightLoader::table(const std::string& name, int64_t k, int64_t n) {
  AERIE_ASSIGN_OR_RETURN(TensorView view, describe(name, {k, n, 1, 1}));
  if (has(stem_of(name) + ".scale")) {
    return not_supported(
        "{}: tensor '{}' is looked up in and has a factor beside it, which is not "
        "supported",
        file_.name(), file_.origin_of(name));
  }
  const WeightCache::Entry* entry = cache_ ? cache_->find(name, view.bytes()) : nullptr;
  TensorData tensor;
  if (entry != nullptr) {
    AERIE_ASSIGN_OR_RETURN(tensor, restore_table(view, *entry));
  }
  const bool is_restored = tensor.view.valid();
  if (!is_restored) {
    AERIE_ASSIGN_OR_RETURN(tensor, file_.read(name));
  }
  progress_.add(view.bytes());
  if (tensor.owned.size() == 0) return copied(std::move(tensor));
  if (!is_restored) stale_ = true;
  keep(name, {tensor.owned.data(), tensor.owned.size()});
  return tensor;
}

// Passes read it as long as the model is open, and the file's bytes may change or vanish.
Expected<TensorData> WeightLoader::copied(TensorData tensor) {
  const TensorView from = tensor.view;
  AERIE_ASSIGN_OR_RETURN(tensor.owned, Buffer::allocate(static_cast<size_t>(from.bytes())));
  options_.pool->parallel_for(from.bytes(), 64, [&](int64_t begin, int64_t end, int) {
    std::memcpy(tensor.owned.data() + begin, from.data + begin, static_cast<size_t>(end - begin));
  });
  file_.release(from);
  tensor.view.data = tensor.owned.data();
  return tensor;
}

// Nothing if the entry is damaged.
Expected<TensorData> WeightLoader::restore_table(const TensorView& view,
                                                 const WeightCache::Entry& entry) {
  TensorData tensor;
  AERIE_ASSIGN_OR_RETURN(tensor.owned, Buffer::allocate(static_cast<size_t>(view.bytes())));
  const WeightCache::Entry* const entries[] = {&entry};
  CacheRead read(*cache_, entries);
  options_.pool->parallel_for(view.bytes(), 64, [&](int64_t begin, int64_t end, int) {
    read.fill()(0, begin, {tensor.owned.data() + begin, static_cast<size_t>(end - begin)});
  });
  if (Status status = read.check(); !status.ok()) {
    give_up(status);
    return TensorData();
  }
  tensor.view = view;
  tensor.view.data = tensor.owned.data();
  return tensor;
}

void WeightLoader::keep(std::string name, std::span<const std::byte> bytes) {
  if (cache_) items_.push_back({std::move(name), bytes});
}

void WeightLoader::save_packed() {
  if (!cache_ || !stale_) return;
  if (Status status = cache_->save(items_, *options_.pool); !status.ok()) {
    log(LogLevel::kWarning, status.message() + "; the packed weights are not kept");
  }
}

Expected<std::vector<float>> WeightLoader::vector(const std::string& name, int64_t length,
                                                  int64_t count) {
  AERIE_ASSIGN_OR_RETURN(const TensorData tensor, read(name, length, count));
  std::vector<float> values(static_cast<size_t>(length * count));
  dequantize(tensor.view.dtype, tensor.view.data, length * count, values.data());
  return values;
}

Expected<std::vector<float>> WeightLoader::vector_if_any(const std::string& name, int64_t length) {
  return has(name) ? vector(name, length) : Expected<std::vector<float>>(std::vector<float>());
}

Status WeightLoader::check_all_used(std::string_view family) const {
  AERIE_RETURN_IF_ERROR(file_.check_intact());
  for (const TensorInfo& tensor : file_.tensors()) {
    if (used_.contains(std::string(tensor.name))) continue;
    return not_supported(
        "{}: the tensor '{}' has no place in a model of the family '{}' as it is supported here",
        file_.name(), file_.origin_of(tensor.name), family);
  }
  return {};
}

}  // namespace aerie
