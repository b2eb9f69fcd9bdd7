// A tensor as PyTorch keeps it: a view of a storage, which others may share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/safetensors/safetensors.h"

namespace aerie {

int64_t element_bytes(SafetensorsType type);  // of PyTorch's types, which are whole bytes

struct TorchTensor {
  std::string name;  // valid UTF-8, not empty
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;          // outermost first; empty for a single value; sizes may be 0
  std::vector<int64_t> strides;        // in elements; as many as sizes
  std::span<const std::byte> storage;  // from the first element on; it has all of them

  int64_t elements() const;
  int64_t bytes() const;
  // Whether the values lie one after the other, outermost size first.
  bool is_contiguous() const;
  // Hands the values to `sink` in that order, some at a time.
  Status read(const std::function<Status(std::span<const std::byte>)>& sink) const;
};

}  // namespace aerie
