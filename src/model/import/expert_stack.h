// The matrices of all experts of a layer, or their biases, in one tensor of a Hugging Face folder.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "format/safetensors/safetensors.h"
#include "model/import/hugging_face_import.h"
#include "tensor/tensor.h"

namespace aerie {

// Whether a tensor with this change is such a stack.
bool is_stack(TensorChange change);
// What a second result is made by, of a stack whose first is made by `first`.
TensorChange second_half(TensorChange first);

// What a GGUF file has of a stack: a tensor for each result of its rule.
class ExpertStack {
 public:
  // kUnsupported, with a message that goes on after the tensor's name, if its shape or type does
  // not fit. `scales`: of 4-bit blocks (MXFP4: OCP Microscaling Formats 1.0), [experts, outputs,
  // inputs / 32, 16], the factors' exponents [experts, outputs, inputs / 32]; null for others. Both
  // must outlive the object.
  static Expected<ExpertStack> of(const SafetensorsTensor& tensor, const SafetensorsTensor* scales,
                                  TensorChange change, int64_t experts);

  DType dtype() const { return dtype_; }
  // [inputs, outputs, experts], or of biases [outputs, experts].
  Shape shape() const;
  bool is_bias() const { return is_bias_; }

  // A view of the folder where the values lie there as they are wanted, else a copy.
  Expected<TensorData> read() const;

 private:
  ExpertStack(const SafetensorsTensor& tensor, TensorChange change)
      : tensor_(&tensor), change_(change) {}
  Status read_shape(int64_t experts);
  Status read_blocks_shape(const SafetensorsTensor* scales, int64_t experts);
  // The output of the tensor that is output r of the result.
  int64_t source_of(int64_t r) const;
  void copy_blocks(std::byte* to) const;
  void copy_rows(std::byte* to) const;
  template <typename Element>
  void copy_columns(std::byte* to) const;

  const SafetensorsTensor* tensor_;
  const SafetensorsTensor* scales_ = nullptr;  // of 4-bit blocks
  TensorChange change_;
  DType dtype_ = DType::kF32;
  bool is_bias_ = false;
  bool on_side_ = false;  // [experts, inputs, outputs]
  // Of the result, and the outputs that the tensor has.
  int64_t experts_ = 0, outputs_ = 0, inputs_ = 0, all_outputs_ = 0;
};

}  // namespace aerie
