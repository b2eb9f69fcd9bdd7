// Heads on the target's hidden states as a DraftNetwork: keeps a head's cache in step with what is
// committed, feeds it the target's features of committed positions and its own of drafted nodes.
#pragma once

#include <memory>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/network/draft_network.h"
#include "draft/network/network_drafter.h"
#include "kernels/kv_layout.h"
#include "kv/kv_cache.h"

namespace aerie {

struct FeatureNetworkOptions {
  NetworkDrafterOptions drafter;  // max_rows and max_logits are what the head was loaded for
  int max_positions = 0;          // the longest sequence
  kernels::KvType cache_type = kernels::KvType::kF16;
  // Where the head can, chains are drafted as levels that follow the roots' pass without the host
  // (FeatureHead::allow_levels()), if there is memory for that.
  bool ahead = true;
  // Whether the target's pass may be put behind chains while they are computed, where the head's
  // machine can and there is memory (FeatureHead::allow_found()).
  bool tells = true;
};

// Levels behind the roots' pass that drafts have which are chains; 0: they are trees.
int levels_behind(const NetworkDrafterOptions& drafter);

// Rows of a sequence that a head takes in a pass that it shares with others, without mask rows.
inline constexpr int kHeadSharedRows = 16;

// The most nodes of a path, and the most depths that a head drafts at once. Heads are loaded for so
// many positions more than the longest sequence has.
inline constexpr int kMostHeadDepth = 64;

// The cache of such a network, of head.cache_config()'s shape.
KvCache::Creation feature_cache(const FeatureHead& head, const FeatureNetworkOptions& options);

// After n tokens are known the cache holds the rows 0 .. n - 2, all made of the target's features;
// rows of nodes lie behind them until the next draft and are never kept. (So does the published
// code of EAGLE: rows made of the head's own features are made anew of the target's.)
// A sequence for which there is no room, or of which a commit was missed, gives up its rows and
// begins anew with a later commit, as if the text began there.
Expected<std::unique_ptr<DraftNetwork>> make_feature_network(std::unique_ptr<FeatureHead> head,
                                                             const FeatureNetworkOptions& options);

}  // namespace aerie
