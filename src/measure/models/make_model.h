// `aerie bench make-model`: a model of a published shape with random weights, as a file or as
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "format/model_file.h"
#include "measure/models/shapes.h"
#include "tensor/dtype.h"

namespace aerie::measure {

struct MakeModelOptions {
  std::string shape;  // of find_shape()
  DType type = DType::kQ4_0;
  std::string output;  // a GGUF file
  int layers = 0;      // fewer than the shape has, for a machine that has not room for all; 0: all
  uint64_t seed = 1;
  int threads = 0;  // of make_model(); 0: default_threads()
};

struct MakeModelReport {
  int64_t bytes = 0;               // written
  std::vector<std::string> notes;  // tensors of another type than asked for, and why
};

// The type of a matrix with rows of `k` in a model of `type`: that, or what llama.cpp's quantiser
// takes where k is no multiple of the block.
DType matrix_type(DType type, int64_t k);

// The same model without a file: tensors are made by the pool each time they are read, and only the
// reader keeps them; make_model()'s notes are logged. The pool must outlive it. kInvalidArgument
// for a shape that is not known and for more layers than it has.
Expected<std::unique_ptr<ModelFile>> random_model(const MakeModelOptions& options,
                                                  ThreadPool& pool);

// Writes a GGUF file that Aerie and llama.cpp load: all matrices random and of one type, norms F32,
// and a byte-level tokenizer without merges whose other tokens stand for no text. The same file for
// the same shape, type and seed on every machine. Holds one tensor in memory at a time.
// Errors of random_model() and of write_gguf().
Expected<MakeModelReport> make_model(const MakeModelOptions& options);

}  // namespace aerie::measure
