#include "model/import/expert_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/errors.h"

namespace aerie {
namespace {

constexpr int64_t kBlock = 32;      // values with one scale in MXFP4
constexpr int64_t kHalfBlock = 16;  // bytes of them

bool has_halves(TensorChange change) {
  return change != TensorChange::kStack && change != TensorChange::kSideStack;
}

bool lies_on_side(TensorChange change) {
  return change == TensorChange::kSideStack || change == TensorChange::kEvenOutputs ||
         change == TensorChange::kOddOutputs;
}

// Neighbours share a byte in the folder's blocks, the lower one first; in GGUF's, values that lie
// half a block apart.
void reorder_block(const std::byte* from, std::byte* to) {
  constexpr std::byte kLow{0x0F}, kHigh{0xF0};
  for (int64_t i = 0; i < kHalfBlock / 2; ++i) {
    const std::byte first = from[i], second = from[i + kHalfBlock / 2];
    to[2 * i] = (first & kLow) | second << 4;
    to[2 * i + 1] = first >> 4 | (second & kHigh);
  }
}

}  // namespace

bool is_stack(TensorChange change) {
  return change == TensorChange::kStack || change == TensorChange::kFirstHalves ||
         change == TensorChange::kSecondHalves || lies_on_side(change);
}

TensorChange second_half(TensorChange first) {
  return first == TensorChange::kEvenOutputs ? TensorChange::kOddOutputs
                                             : TensorChange::kSecondHalves;
}

Expected<ExpertStack> ExpertStack::of(const SafetensorsTensor& tensor,
                                      const SafetensorsTensor* scales, TensorChange change,
                                      int64_t experts) {
  assert(is_stack(change));
  ExpertStack stack(tensor, change);
  // With scales beside them, floats would not be the matrices either.
  const bool is_blocks =
      lies_on_side(change) && (scales != nullptr || tensor.type == SafetensorsType::kU8);
  AERIE_RETURN_IF_ERROR(is_blocks ? stack.read_blocks_shape(scales, experts)
                                  : stack.read_shape(experts));
  return stack;
}

Status ExpertStack::read_shape(int64_t experts) {
  const std::vector<int64_t>& shape = tensor_->shape;
  const int64_t parts = has_halves(change_) ? 2 : 1;
  on_side_ = lies_on_side(change_);
  is_bias_ = on_side_ && shape.size() == 2;
  const std::optional<DType> type = safetensors_type_info(tensor_->type).dtype;
  bool fits = type && (is_bias_ || shape.size() == 3) && tensor_->elements() > 0;
  if (fits) {
    experts_ = shape[0];
    inputs_ = is_bias_ ? 1 : shape[on_side_ ? 1 : 2];
    all_outputs_ = shape[is_bias_ || !on_side_ ? 1 : 2];
    fits = experts_ == experts && all_outputs_ % parts == 0;
  }
  if (!fits) {
    return not_supported(
        "is of type {} with {} dimensions; the matrices of {} experts in floats are read{}{}",
        safetensors_type_info(tensor_->type).name, shape.size(), experts,
        parts > 1 ? ", with an even number of rows" : "", on_side_ ? ", and 4-bit blocks" : "");
  }
  // Vectors are floats.
  dtype_ = is_bias_ ? DType::kF32 : *type;
  outputs_ = all_outputs_ / parts;
  return {};
}

Status ExpertStack::read_blocks_shape(const SafetensorsTensor* scales, int64_t experts) {
  const std::vector<int64_t>& shape = tensor_->shape;
  const int64_t parts = has_halves(change_) ? 2 : 1;
  if (tensor_->type != SafetensorsType::kU8 || shape.size() != 4 || shape[0] != experts ||
      shape[1] % parts != 0 || shape[3] != kHalfBlock || tensor_->elements() == 0) {
    return not_supported(
        "is of type {} with the shape [{}]; 4-bit blocks of {} experts are U8 [experts, rows, "
        "blocks, {}]{}",
        safetensors_type_info(tensor_->type).name, fmt::join(shape, ", "), experts, kHalfBlock,
        parts > 1 ? ", with an even number of rows" : "");
  }
  if (scales == nullptr) return not_supported("is of 4-bit blocks and has no scales beside it");
  if (scales->type != SafetensorsType::kU8 ||
      scales->shape != std::vector<int64_t>(shape.begin(), shape.end() - 1)) {
    return not_supported("is of 4-bit blocks, and its scales are of type {} with the shape [{}]",
                         safetensors_type_info(scales->type).name, fmt::join(scales->shape, ", "));
  }
  scales_ = scales;
  dtype_ = DType::kMXFP4;
  experts_ = experts;
  all_outputs_ = shape[1];
  outputs_ = all_outputs_ / parts;
  inputs_ = shape[2] * kBlock;
  return {};
}

Shape ExpertStack::shape() const {
  return is_bias_ ? Shape{outputs_, experts_, 1, 1} : Shape{inputs_, outputs_, experts_, 1};
}

int64_t ExpertStack::source_of(int64_t r) const {
  switch (change_) {
    case TensorChange::kSecondHalves:
      return r + outputs_;
    case TensorChange::kEvenOutputs:
      return 2 * r;
    case TensorChange::kOddOutputs:
      return 2 * r + 1;
    default:
      return r;
  }
}

void ExpertStack::copy_blocks(std::byte* to) const {
  const int64_t blocks = inputs_ / kBlock;
  for (int64_t row = 0; row < experts_ * outputs_; ++row) {
    const int64_t source = row / outputs_ * all_outputs_ + source_of(row % outputs_);
    const std::byte* codes = tensor_->data.data() + source * blocks * kHalfBlock;
    const std::byte* scales = scales_->data.data() + source * blocks;
    for (int64_t i = 0; i < blocks; ++i, to += 1 + kHalfBlock) {
      to[0] = scales[i];
      reorder_block(codes + i * kHalfBlock, to + 1);
    }
  }
}

void ExpertStack::copy_rows(std::byte* to) const {
  const int64_t bytes = inputs_ * dtype_info(dtype_).block_bytes;
  for (int64_t row = 0; row < experts_ * outputs_; ++row) {
    const int64_t source = row / outputs_ * all_outputs_ + source_of(row % outputs_);
    std::memcpy(to + row * bytes, tensor_->data.data() + source * bytes,
                static_cast<size_t>(bytes));
  }
}

template <typename Element>
void ExpertStack::copy_columns(std::byte* to) const {
  // A few outputs at a time, whose values lie side by side in the tensor.
  constexpr int64_t kTogether = 16;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Element));
  for (int64_t expert = 0; expert < experts_; ++expert) {
    const std::byte* from = tensor_->data.data() + expert * inputs_ * all_outputs_ * kBytes;
    std::byte* rows = to + expert * outputs_ * inputs_ * kBytes;
    for (int64_t first = 0; first < outputs_; first += kTogether) {
      const int64_t end = std::min(outputs_, first + kTogether);
      for (int64_t i = 0; i < inputs_; ++i) {
        for (int64_t r = first; r < end; ++r) {
          std::memcpy(rows + (r * inputs_ + i) * kBytes,
                      from + (i * all_outputs_ + source_of(r)) * kBytes, sizeof(Element));
        }
      }
    }
  }
}

Expected<TensorData> ExpertStack::read() const {
  TensorData out;
  // Of a bias as the folder has it, which may be half floats.
  const DType stored = is_bias_ ? *safetensors_type_info(tensor_->type).dtype : dtype_;
  out.view = {stored, Device::kCpu, shape(), tensor_->data.data()};
  if (change_ == TensorChange::kStack) return out;
  AERIE_ASSIGN_OR_RETURN(out.owned, Buffer::allocate(static_cast<size_t>(out.view.bytes())));
  out.view.data = out.owned.data();
  if (dtype_ == DType::kMXFP4) {
    copy_blocks(out.owned.data());
  } else if (!on_side_) {
    copy_rows(out.owned.data());
  } else if (stored == DType::kF32) {
    copy_columns<float>(out.owned.data());
  } else {
    copy_columns<uint16_t>(out.owned.data());
  }
  if (stored == dtype_) return out;
  TensorData floats;
  floats.view = out.view;
  floats.view.dtype = dtype_;
  const int64_t elements = out.view.elements();
  AERIE_ASSIGN_OR_RETURN(floats.owned,
                         Buffer::allocate(static_cast<size_t>(elements) * sizeof(float)));
  dequantize(stored, out.view.data, elements, floats.owned.as<float>().data());
  floats.view.data = floats.owned.data();
  return floats;
}

}  // namespace aerie
