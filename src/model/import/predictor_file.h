// The layers behind a model's in its file, which predict further tokens, as a file of their own.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "format/model_file.h"
#include "model/blueprint.h"

namespace aerie {

// Whether a model's file has such layers: blk.N.nextn.eh_proj.weight, N behind the model's.
bool has_predictors(const ModelFile& file);

// Whether a tensor is of such a layer. Requires the file's metadata to be those of a model.
bool is_of_predictor(const ModelFile& file, std::string_view tensor);

// Its tensors are those of such layers alone, which are counted from 0: blk.48.nextn.enorm.weight
// is blk.0.nextn.enorm.weight here. There are no metadata.
class PredictorFile final : public ModelFile {
 public:
  // With a type, matrices of any type are converted to it as they are read (converted_type()), by
  // the threads of `pool` or, without one, the reading one alone. kInvalidArgument if the file has
  // no such layers; errors of the family's for a shape that is not supported.
  static Expected<std::unique_ptr<PredictorFile>> wrap(std::unique_ptr<ModelFile> file,
                                                       std::optional<DType> type, ThreadPool* pool);

  // As many layers as there are, all with attention: none is linear, whatever the model's are.
  const Blueprint& blueprint() const { return blueprint_; }

  std::string format() const override { return file_->format(); }
  int64_t file_bytes() const override { return file_->file_bytes(); }
  Status check_intact() const override { return file_->check_intact(); }
  void release(const TensorView& view) const override { file_->release(view); }
  std::vector<SourceFile> sources() const override { return file_->sources(); }
  std::string origin_of(std::string_view name) const override;
  std::string origin_of_key(std::string_view key) const override {
    return file_->origin_of_key(key);
  }

 private:
  PredictorFile(std::unique_ptr<ModelFile> file, Blueprint blueprint, ThreadPool* pool);
  void list_tensors(std::optional<DType> type);
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override;

  std::unique_ptr<ModelFile> file_;
  Blueprint blueprint_;
  int first_;  // of the layers, in the file
  ThreadPool* pool_;
  std::deque<std::string> names_;
  std::vector<const TensorInfo*> origins_;  // of tensors(), in their order
};

}  // namespace aerie
