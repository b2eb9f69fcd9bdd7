// `aerie bench worker`: answers requests for measurements over a pipe, so that a script can let two
// engines take turns on one machine (bench/peers/compare.py).
#pragma once

#include <iosfwd>
#include <string>

#include "base/status.h"
#include "kernels/backend.h"

namespace aerie::measure {

struct WorkerOptions {
  std::string model;
  int rows = 64;         // the most of a pass
  int positions = 2048;  // the most of a request, the rows of a pass and decoded tokens included
  int threads = 0;       // 0: default_threads()
  kernels::Isa isa = kernels::best_isa();
};

// Loads the model, writes {"ready": true}, then answers each line of `in` with a line to `out`,
// both JSON objects, until `in` ends. Between two requests its threads sleep.
//   {"do": "fill", "context": C}                 -> {}: C cached positions of random tokens
//   {"do": "pass", "rows": M, "seconds": S}      -> {"ms": ...}: the median of the passes that fit
//                                                   into S seconds, one at least, in that context
//   {"do": "prompt", "tokens": P}                -> {"ms": ...}: P random tokens to the next one
//   {"do": "decode", "context": C, "tokens": N}  -> {"ms": ...}: N tokens, one by one, after that
//   {"do": "limits"}                             -> {"bandwidth": ..., "int8": ..., "f32": ...}:
//                                                   bytes and operations a second
// A request that cannot be answered gets {"error": ...}.
Status run_worker(const WorkerOptions& options, std::istream& in, std::ostream& out);

}  // namespace aerie::measure
