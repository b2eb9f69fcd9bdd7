// The values of tensors of a Hugging Face folder, as those of the GGUF file that it would be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "format/safetensors/safetensors_folder.h"
#include "model/import/hugging_face_import.h"
#include "model/import/weights/quantization_scheme.h"

namespace aerie {

// Where a tensor's values come from.
struct Origin {
  const SafetensorsTensor* tensor = nullptr;  // null: made, or a stack
  TensorChange change = TensorChange::kNone;
  size_t made = 0;  // of HuggingFaceImport::made()
  // Of factors of NVFP4: the number of the tensor that is multiplied by them.
  std::optional<size_t> factors_of = {};
  // Of a stack: by number of the expert, null where it has not been met.
  std::vector<const SafetensorsTensor*> stack = {};
};

// Any thread.
class FolderReader {
 public:
  // `name`: of the folder, for errors. All else must outlive it.
  FolderReader(std::string name, const SafetensorsFolder& tensors, const QuantizationScheme& scheme,
               const HuggingFaceImport& import)
      : name_(std::move(name)), tensors_(tensors), scheme_(scheme), import_(import) {}

  // How the folder's weights are packed.
  bool is_nvfp4(const SafetensorsTensor& tensor) const;
  bool is_int4(const SafetensorsTensor& tensor) const;
  // As it is once it is unpacked.
  std::vector<int64_t> shape_of(const SafetensorsTensor& tensor) const;
  // Of MXFP4's 4-bit blocks, which lie beside them; null: there are none.
  const SafetensorsTensor* scales_of(const SafetensorsTensor& tensor) const;
  // Whether it is the name of such.
  bool has_blocks(std::string_view scales) const;

  // As `info`, with its type and shape; of what is no factor.
  Expected<TensorData> read(const TensorInfo& info, const Origin& origin) const;
  // The factors of the tensor that `of` is the origin of.
  Expected<TensorData> read_factors(const TensorInfo& info, const Origin& of) const;

 private:
  Expected<TensorData> read_stored(const SafetensorsTensor& tensor, const TensorInfo& info,
                                   const Shape& shape) const;
  Expected<TensorData> read_heads(const TensorInfo& info, const Origin& origin) const;
  Expected<TensorData> read_stack(const TensorInfo& info, const Origin& origin) const;
  Expected<TensorData> turn_rows(const TensorInfo& info, const Origin& origin,
                                 const TensorView& from) const;

  std::string name_;
  const SafetensorsFolder& tensors_;
  const QuantizationScheme& scheme_;
  const HuggingFaceImport& import_;
};

}  // namespace aerie
