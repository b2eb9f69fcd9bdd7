// `aerie bench make-model --from MODEL --experts N`: a mixture of experts made of a dense model
// (Komatsuzaki et al. 2022, 2212.05055, section 2), to try routing on text that means something.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "format/model_file.h"

namespace aerie::measure {

struct UpcycleOptions {
  std::string output = {};
  int experts = 8;
  int used = 2;
  // Each weight of an expert is multiplied by 1 + spread n, n normal; then experts are Q8_0. 0: all
  // experts are the model's feed-forward as it is. With one used, whose share is 1, the model says
  // what it said; with more their shares add up to 1 only nearly, and a close choice may change.
  double spread = 0.0;
  uint64_t seed = 1;
};

// Writes a GGUF file with the model's own metadata, and routers of random weights: rows choose by
// what they are, not by what is best. Returns its bytes. Holds a layer's matrix in memory at a
// time. kUnsupported for a model that is no dense Llama; kInvalidArgument for numbers out of range;
// else errors of reading and of write_gguf().
Expected<int64_t> upcycle(const ModelFile& dense, const UpcycleOptions& options);

}  // namespace aerie::measure
