// The rows that P-EAGLE (2602.01469) trains on. Of every row of the batch there is one that is fed
// what the target says (depth 0: the context); some of them are anchors of chains of masked rows,
// one for each further depth, as drafting has them behind its last real row.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "train/nn/documents.h"

namespace aerie::train {

// Which share of the supervised rows is asked at depth d >= 1: kept^d, but not less than `least`.
struct DepthSampling {
  int64_t depths = 8;  // of a draft, the real row's counted
  double kept = 0.7;
  double least = 0.2;
};

// Chain i has the masked rows (anchors[i], 1) to (anchors[i], depths[i]); row (a, d) stands at a +
// d of the batch and is asked what the real row a + d is.
struct Chains {
  std::vector<int64_t> anchors;  // rows of the batch, ascending
  std::vector<int64_t> depths;   // from 1

  int64_t count() const { return static_cast<int64_t>(anchors.size()); }
  int64_t rows() const;
};

// Draws chains (conditional on depth: what is asked at d was at d - 1, one place before). At depth
// d int((n - d) max(kept^d, least)) places are drawn of n supervised ones, or all that there are; a
// chain stays within its document. `supervised`: bool [rows]. `generator` is of the CPU.
Chains sample_chains(const Documents& documents, const at::Tensor& supervised,
                     const DepthSampling& sampling, at::Generator& generator);

// The chains [first, second) of each of so many segments. Segments are cut at i rows / segments of
// the batch, and a chain is of the segment in which its first masked row stands.
std::vector<std::pair<int64_t, int64_t>> cut_chains(const Chains& chains, int64_t rows,
                                                    int64_t segments);

// Rows as attention takes them. They see the context of their document up to their anchor, and
// their own chain up to themselves, or to its end.
struct ElementRows {
  at::Tensor anchors;    // int64 [rows], ascending: rows of the context
  at::Tensor depths;     // int64 [rows]
  at::Tensor begins;     // int64 [rows]: where among these rows its chain begins
  at::Tensor ends;       // int64 [rows]: behind the last of its chain that it sees
  bool chained = false;  // false: they are the context themselves
  // Runs of rows within a document: int64 [runs, 7] on the CPU, columns as in RowRun.
  at::Tensor runs;

  int64_t rows() const { return anchors.size(0); }
};
struct RowRun {
  int64_t begin, rows;  // of the rows
  int64_t context;      // the document's first row
  int64_t clear, seen;  // rows from there on that all of these see, and that any of them sees
  int64_t own;          // where the chain of the first of them begins
  int64_t own_end;      // behind the last row of chains that any of them sees
};

// All rows of the documents; and the rows of the chains [begin, end), each chain's together.
// `whole`: rows see all of their chain, those behind them too.
ElementRows context_rows(const Documents& documents, const at::Device& device);
ElementRows chain_rows(const Documents& documents, const Chains& chains, int64_t begin, int64_t end,
                       const at::Device& device, bool whole = false);

}  // namespace aerie::train
