// `aerie bench make-model`: a model file of a published shape with random weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/models/shapes.h"
#include "tensor/dtype.h"

namespace aerie::measure {

struct MakeModelOptions {
  std::string shape;  // of find_shape()
  DType type = DType::kQ4_0;
  std::string output;
  int layers = 0;  // fewer than the shape has, for a machine that has not room for all; 0: all
  uint64_t seed = 1;
  int threads = 0;  // 0: default_threads()
};

struct MakeModelReport {
  int64_t bytes = 0;               // written
  std::vector<std::string> notes;  // tensors of another type than asked for, and why
};

// The type of a matrix with rows of `k` in a model of `type`: that, or what llama.cpp's quantiser
// takes where k is no multiple of the block.
DType matrix_type(DType type, int64_t k);

// Writes a GGUF file that Aerie and llama.cpp load: all matrices random and of one type, norms F32,
// and a byte-level tokenizer without merges whose other tokens stand for no text. The same file for
// the same shape, type and seed on every machine. Holds one tensor in memory at a time.
// kInvalidArgument for a shape that is not known and for more layers than it has; else errors of
// write_gguf().
Expected<MakeModelReport> make_model(const MakeModelOptions& options);

}  // namespace aerie::measure
