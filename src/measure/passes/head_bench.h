// `aerie bench heads`: what drafting with each family of trained heads costs, against what the
// machine allows.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"
#include "measure/passes/machine.h"

namespace aerie::measure {

struct HeadBenchOptions {
  std::string model;
  std::vector<std::string> kinds;  // of head_kinds(); empty: all
  std::string type;                // of their matrices, "q8_0"; empty: bf16, as they are made
  int draft_vocab = 32000;         // of EAGLE-3 and P-EAGLE, as most are published
  int depth = 4;                   // of chains
  int context = 512;               // positions that are cached
  int threads = 0;                 // 0: default_threads()
  int repeats = 25;
  int64_t memory_mib = 0;  // that the bandwidth is measured with; 0: several times the last cache
  kernels::Isa isa = kernels::best_isa();
};

// A pass of a head. Figures of a repetition are measured within a second of the bandwidth that they
// are compared with; what is reported are medians.
struct HeadPoint {
  std::string kind;
  std::string pass;    // "root", "node"; of P-EAGLE "root, 8 depths"
  double bytes = 0;    // of weights that it reads
  int operations = 0;  // calls of the backend
  double microseconds = 0;
  double allowed = 0;  // microseconds: the bytes by the bandwidth, and 10 for each operation
  double ratio = 0;    // to P-EAGLE's pass of one depth just before; 0: not of it
};

// Trees of 60 nodes: 10 children of a node, 10 nodes of a pass, 7 levels.
struct TreePoint {
  std::string kind;
  double total_us = 0;    // of propose()
  double passes_us = 0;   // of that, in the network
  double ranking_us = 0;  // in finding the best tokens of its rows
  double growth_us = 0;   // the rest: growing the tree and choosing its nodes
};

struct HeadReport {
  std::string model;
  int threads = 0;
  kernels::Isa isa = kernels::Isa::kReference;
  Limits limits;
  std::string type;
  int context = 0;
  std::vector<HeadPoint> points;
  std::vector<TreePoint> trees;
};

// Makes random heads for the model in a temporary folder (measure/models/make_head.h) and times
// passes of theirs behind features of the right size. Errors of loading.
Expected<HeadReport> bench_heads(const HeadBenchOptions& options);

std::string to_text(const HeadReport& report);
std::string to_json(const HeadReport& report);

}  // namespace aerie::measure
