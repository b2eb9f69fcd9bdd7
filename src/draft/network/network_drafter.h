// The drafter that all networks share: grows trees from what a network gives (draft/
// draft_network.h), for all sequences of a batch together.
#pragma once

#include <memory>
#include <string>

#include "draft/drafter.h"
#include "draft/network/draft_network.h"
#include "draft/tree/static_tree.h"
#include "kernels/backend.h"

namespace aerie {

struct NetworkDrafterOptions {
  std::string method;            // what the drafter calls itself
  int num_tokens = 5;            // >= 1: nodes of a draft
  int num_steps = 0;             // levels of a draft, and so its depth; 0: num_tokens
  int top_k = 1;                 // children of a node, nodes of a pass; 1: a chain
  double top_p = 1.0;            // no children beyond those that cover this probability
  double min_probability = 0.0;  // a path below it is not followed
  // A draft is the best `top_k` paths (beams) of each level, and nothing beside them.
  bool beams = false;
  // Not null: this shape, cut to num_tokens and num_steps, instead of what the last four settings
  // would make. Must outlive the drafter.
  const StaticTree* shape = nullptr;
  int vocab = 0;          // logits of the target; a network's that are wider are padding
  int max_sequences = 1;  // open at one time
  // Of a cache of its own, for all sequences together; 0: room for each at its longest. A sequence
  // for which there is none gets no drafts.
  int64_t cache_positions = 0;
  int max_rows = 512;   // of a pass of the network
  int max_logits = 64;  // rows of it that want logits
  // Null: rows are ranked by the calling thread, which takes many times as long.
  const kernels::Backend* backend = nullptr;
  ThreadPool* pool = nullptr;
  std::string pairing;  // what was paired with what, for a warning should nothing come true
};

// Whether drafts, where nothing is drawn, are chains of first choices that go on to the end.
bool drafts_chains(const NetworkDrafterOptions& options);

// Positions of a cache of its own where a sequence has up to `each`.
int64_t draft_cache_positions(const NetworkDrafterOptions& options, int64_t each);

// kInvalidArgument, naming the setting, if one is out of range.
Status check(const NetworkDrafterOptions& options);

// Of one sequence: the most levels of a draft, the most nodes that are run, and the most of them in
// one pass.
int draft_depth(const NetworkDrafterOptions& options);
int most_nodes_run(const NetworkDrafterOptions& options);
int most_nodes_in_pass(const NetworkDrafterOptions& options);

// Under the exact rule siblings are what the target itself would choose if its logits were the
// network's, with the target's own noise (Sampler::ranking). Under the others, above temperature 0,
// the shape is fixed before drawing (the given one, or one that fits the settings) and siblings are
// drawn without replacement from NoiseStream::kDraft, keyed by root position and node.
//
// Requires check(options).ok(), and that a pass takes all rows of one sequence.
std::unique_ptr<Drafter> make_network_drafter(std::unique_ptr<DraftNetwork> network,
                                              const NetworkDrafterOptions& options);

}  // namespace aerie
