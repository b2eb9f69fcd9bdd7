// Takes tensors out of a file by name, checks their shapes and packs them for a backend.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/progress.h"
#include "model/model.h"
#include "model/weight_cache.h"

namespace aerie {

// A tensor NAME.scale beside NAME.weight, as llama.cpp writes them for NVFP4, is a factor of the
// matrix or one for each of a stack: it becomes PackedMatrix::factor. NAME.input_scale, of
// activations, is passed over: these keep their precision.

// Outputs [begin, begin + count) of a matrix of k inputs and n outputs, or of a stack of such
// matrices in one tensor, their outputs counted on.
struct MatrixPart {
  kernels::PackedMatrix* into = nullptr;
  std::string name;
  int64_t k = 0, n = 0;
  int64_t begin = 0, count = 0;
  int64_t stack = 1;
  bool has_factor = true;  // NAME.scale, if there is one, is that
};

class WeightLoader {
 public:
  // Looks for packed weights if the options name a folder for them.
  WeightLoader(const ModelFile& file, const ModelOptions& options);

  // Packs what goes into one product (Backend::pack()).
  Status load(std::span<const MatrixPart> parts);
  // Rows `ids` of a matrix of k inputs and n outputs, packed, in memory of their own. Not for the
  // cache.
  Expected<kernels::PackedMatrix> rows(const std::string& name, int64_t k, int64_t n,
                                       std::span<const int32_t> ids);
  // The first `count` outputs of each of `stack` parts of a matrix of k inputs and n outputs, each
  // part lying on its side: matrices of `count` inputs and k outputs, in floats and memory of their
  // own. Not for the cache.
  Expected<std::vector<kernels::PackedMatrix>> turned(const std::string& name, int64_t k, int64_t n,
                                                      int64_t stack, int64_t count);
  // A vector as floats, or `count` of them in one tensor, one after the other.
  Expected<std::vector<float>> vector(const std::string& name, int64_t length, int64_t count = 1);
  // The same; empty if there is no such tensor.
  Expected<std::vector<float>> vector_if_any(const std::string& name, int64_t length);
  // The values as they are, in memory of the result's own.
  Expected<TensorData> table(const std::string& name, int64_t k, int64_t n);

  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  const ModelFile& file() const { return file_; }
  // A tensor that may be there and is not needed.
  void ignore(const std::string& name) { used_.insert(name); }

  // The end of loading. kUnsupported if the file has a tensor that was not asked for: leaving it
  // out would compute something else than the model. kInvalidData if what was loaded need not be
  // what the file held (ModelFile::check_intact()).
  Status check_all_used(std::string_view family) const;

  // Keeps for the next time what had to be packed. What was loaded must still be there.
  void save_packed();

  int64_t packed_bytes() const { return packed_bytes_; }

 private:
  Expected<TensorView> describe(const std::string& name, const Shape& shape);
  Expected<TensorData> read(const std::string& name, int64_t k, int64_t n);
  Expected<float> factor(const std::string& name, int64_t index, int64_t stack);
  Expected<Arena*> arena();
  Status pack(std::span<const MatrixPart> parts, std::span<kernels::PackedMatrix> matrices);
  bool restore(std::span<const MatrixPart> parts, std::span<kernels::PackedMatrix> matrices);
  Expected<TensorData> copied(TensorData tensor);
  Expected<TensorData> restore_table(const TensorView& view, const WeightCache::Entry& entry);
  void keep(std::string name, std::span<const std::byte> bytes);
  void give_up(const Status& why);

  const ModelFile& file_;
  const ModelOptions& options_;
  Progress progress_;
  std::unordered_set<std::string> used_;
  std::string factors_of_;  // the tensor of the factors read last
  std::vector<float> factors_;
  std::optional<Arena> arena_;
  std::optional<WeightCache> cache_;
  std::vector<WeightCache::Item> items_;  // all that belongs into it
  bool stale_ = false;                    // whether it lacks some of that
  int64_t packed_bytes_ = 0;
};

}  // namespace aerie
