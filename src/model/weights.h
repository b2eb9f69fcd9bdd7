// Takes tensors out of a file by name, checks their shapes and packs them for a backend.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/model.h"

namespace aerie {

class WeightLoader {
 public:
  WeightLoader(const ModelFile& file, const ModelOptions& options)
      : file_(file), options_(options) {}

  // A packed matrix of k inputs and n outputs.
  Expected<kernels::PackedMatrix> matrix(const std::string& name, int64_t k, int64_t n);
  // Outputs [begin, begin + count) of one of n.
  Expected<kernels::PackedMatrix> part(const std::string& name, int64_t k, int64_t n, int64_t begin,
                                       int64_t count);
  // A vector as floats.
  Expected<std::vector<float>> vector(const std::string& name, int64_t length);
  // The same; empty if there is no such tensor.
  Expected<std::vector<float>> vector_if_any(const std::string& name, int64_t length);
  // The values as they are.
  Expected<TensorData> read(const std::string& name, int64_t k, int64_t n);

  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  // A tensor that may be there and is not needed.
  void ignore(const std::string& name) { used_.insert(name); }

  // kUnsupported if the file has a tensor that was not asked for: leaving it out would compute
  // something else than the model.
  Status check_all_used(std::string_view family) const;

  int64_t packed_bytes() const { return packed_bytes_; }

 private:
  const ModelFile& file_;
  const ModelOptions& options_;
  std::unordered_set<std::string> used_;
  int64_t packed_bytes_ = 0;
};

}  // namespace aerie
