// A model whose weights are converted to another type while they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/thread_pool.h"
#include "format/gguf/metadata_builder.h"
#include "format/model_file.h"

namespace aerie {

struct Conversion {
  DType type = DType::kQ8_0;
  // Whether to convert weights that are quantised already: what the first quantisation lost stays
  // lost, and the second loses more.
  bool requantize = false;
};

// The type that a tensor has after a conversion. Matrices ("....weight" of more than one row)
// become what is asked for, but
// - norms, routers of experts, position embeddings, what gates of linear attention are made of and
//   everything of one row stay as they are: they are small, and sensitive or not multiplied;
// - token_embd.weight and output.weight become q8_0 when q4_0 or q4_1 is asked for: their errors
//   go straight to the logits (of a draft model, of draft_keys.h, they cost some of its drafts, and
//   become what is asked for);
// - rows that are not whole blocks become f16, or bf16 if they are that;
// - a tensor of a type that is not a DType stays.
std::optional<DType> converted_type(const TensorInfo& tensor, DType wanted, bool drafts = false);

// The values in another type, by the threads of `pool`, or by this one if it is null. Requires rows
// of whole blocks and can_quantize(type). kInvalidData, naming the element, for a value that the
// type cannot hold: NaN, infinite or too large.
Expected<TensorData> convert_values(const TensorView& from, DType type, ThreadPool* pool);

// The metadata is the file's, but for general.file_type and general.quantization_version. Tensors
// that stay are views as the file gives them; the others are made at each read.
class ConvertedFile final : public ModelFile {
 public:
  // `pool` must outlive the object and is used by read(), one at a time. kInvalidArgument if there
  // is no quantiser for the type; kUnsupported, naming tensor and type, if a tensor to be converted
  // is quantised already and that is not asked for.
  //
  // read() says kInvalidData, naming tensor and element, for a value that the type cannot hold:
  // NaN, infinite or too large.
  static Expected<std::unique_ptr<ConvertedFile>> wrap(std::unique_ptr<ModelFile> file,
                                                       const Conversion& conversion,
                                                       ThreadPool& pool);

  std::string format() const override;
  int64_t file_bytes() const override { return file_->file_bytes(); }  // of what is read
  Status check_intact() const override { return file_->check_intact(); }
  void release(const TensorView& view) const override { file_->release(view); }
  std::vector<SourceFile> sources() const override { return file_->sources(); }
  std::string origin_of(std::string_view name) const override { return file_->origin_of(name); }
  std::string origin_of_key(std::string_view key) const override {
    return file_->origin_of_key(key);
  }

 private:
  ConvertedFile(std::unique_ptr<ModelFile> file, DType type, ThreadPool& pool);
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override;

  std::unique_ptr<ModelFile> file_;
  DType type_;
  ThreadPool& pool_;
  mutable std::mutex pool_mutex_;
  MetadataBuilder builder_;
};

}  // namespace aerie
