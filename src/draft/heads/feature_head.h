// A trained head that drafts from the target's hidden states: what it computes for rows. Which rows
// those are, and what is kept of them, is draft/heads/feature_network.h's, the same for all heads.
//
// Row t of a head is (features at position t, token at t + 1): features of the target behind what
// is committed, the head's own behind nodes of a draft. Its outputs are for the token at t + 2.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/best_token.h"
#include "core/forward_batch.h"
#include "core/found_tokens.h"
#include "core/model_config.h"
#include "kv/kv_cache.h"

namespace aerie {

// Rows of nodes whose tokens and features nobody knows yet: each goes on with the best token that
// is found behind a row of the pass, or level, before it, and with what that row hands on.
struct HeadLevel {
  ForwardBatch batch;           // of sequences of the pass
  std::vector<int32_t> behind;  // [row]: which of the rows that want logits it is behind
};

// What is found behind the rows of a pass that want logits, and where the rows of each of its
// levels begin among them (HeadOutputs::level_rows).
using WhileFound =
    std::function<void(const FoundTokens& found, std::span<const int32_t> level_rows)>;

struct HeadPass {
  // `token` of a row is the one behind its position. Rows of committed positions come as chains,
  // each sequence's followed by its mask rows; of them the last committed one and the mask rows
  // want logits. Rows of nodes all do.
  ForwardBatch batch;
  // For each row: of committed positions FeatureHead::feature_width() floats of the target; of mask
  // rows FeatureHead::mask_features(); of nodes the hidden() floats that came of the row above it.
  std::vector<const float*> features;
  int depth = 0;  // of the nodes that the rows are of; 0: committed positions
  // The rows are of blocks (FeatureHead::block_depths()), a chain for each sequence, and have no
  // features.
  bool block = false;
  // What is computed at once behind the pass's rows: the first `level_count`. Only of a pass of
  // committed positions, and once FeatureHead::allow_levels() made room.
  std::vector<HeadLevel> levels;
  size_t level_count = 0;
  // Called while a device computes the pass, levels and all, once FeatureHead::allow_found() made
  // room: what it puts on the device's stream comes behind the pass, which does not wait for it.
  // Left out where the levels are. None: {}.
  WhileFound while_found;

  std::span<const HeadLevel> levels_behind() const { return std::span(levels).first(level_count); }
  HeadLevel& add_level() {
    if (levels.size() == level_count) levels.emplace_back();
    HeadLevel& level = levels[level_count++];
    level.batch.clear();
    level.behind.clear();
    return level;
  }
  // Of passes of so many rows, of so many sequences.
  void reserve(int rows, int sequences) {
    batch.rows.reserve(static_cast<size_t>(rows));
    batch.sequences.reserve(static_cast<size_t>(sequences));
    features.reserve(static_cast<size_t>(rows));
  }
  void clear() {
    level_count = 0;
    batch.clear();
    features.clear();
    depth = 0;
    block = false;
    while_found = nullptr;
  }
};

// Spans belong to the head and hold until its next pass.
struct HeadOutputs {
  // Of the rows that want logits, in their order; [vocab] for each, and of a committed position
  // outputs_of_root() times that.
  std::span<const float> logits;
  std::span<const float> hidden;  // [rows that want logits][hidden()]
  // Not ok: the pass failed, and there are no outputs.
  Status status = {};
  // Where rows of logits come when they are asked for; and what was found among them already.
  LogitSource* source = nullptr;
  TopTokens top = {};
  // Of a pass with levels: where the rows of each begin in what is above, behind the pass's own;
  // rows between are of no use. Empty: the levels were not computed.
  std::span<const int32_t> level_rows = {};
};

// Not thread-safe. Allocates nothing in forward().
class FeatureHead {
 public:
  virtual ~FeatureHead() = default;

  // Layers of the target whose taps, side by side, are a row's features.
  virtual std::span<const int32_t> tap_layers() const = 0;
  virtual int feature_width() const = 0;  // tap_layers().size() * the target's hidden
  virtual int hidden() const = 0;         // floats that a row hands to the rows of its children

  virtual int vocab() const = 0;
  // The target's ids of the logits, ascending; empty: logit i is token i.
  virtual std::span<const int32_t> target_ids() const { return {}; }

  // The shape of its own cache of keys and values; without layers it needs none.
  virtual const ModelConfig& cache_config() const = 0;

  // Where it has to have its planes; and what is to be called with it while it is empty, before the
  // first pass. It stays where it is from now on.
  virtual KvCache::Planes cache_planes() const { return KvCache::Planes::kHere; }
  virtual Status attach(KvCache& /*cache*/) { return {}; }

  // Whether its rows depend on anything besides the cache and what a pass hands it, so that another
  // sequence cannot go on with them.
  virtual bool remembers() const { return false; }

  // How many nodes a path can have.
  virtual int max_depth() const { return std::numeric_limits<int>::max(); }

  // A head that drafts several depths at once. Either a committed position's row has outputs for
  // all of them, or each depth but the first has a mask row behind the last committed position,
  // with this token and these features.
  virtual int outputs_of_root() const { return 1; }
  virtual int mask_rows() const { return 0; }
  virtual int32_t mask_token() const { return 0; }
  virtual const float* mask_features() const { return nullptr; }

  // Or a block of rows behind the committed positions, which may see one another: the root's, with
  // its token, then mask rows with mask_token(). So many of them draft, one a depth, and want
  // logits: all mask rows, and the root's where root_drafts(). Committed positions are then read in
  // passes of their own, of which no row wants logits. 0: it drafts no blocks.
  virtual int block_depths() const { return 0; }
  virtual bool root_drafts() const { return false; }
  // Whether a block's logits hang on the tokens before them in a draft, too, once they are known.
  virtual bool follows() const { return false; }
  // Makes `logits` [vocab] hang on `before`, the root's token and those of a draft behind it.
  // `hidden` [before.size()][hidden()]: what came of the block's rows that draft, up to the logits'
  // own. Returns how likely the target is to accept what is drafted of them; < 0: it is not known.
  virtual float follow(std::span<const int32_t> /*before*/, std::span<const float> /*hidden*/,
                       std::span<float> /*logits*/) {
    return -1.0f;
  }

  // A head on a device may compute levels with a pass (HeadPass::levels): what `levels` of them
  // take of the device's memory, 0 if it cannot; and room for them, after attach() and before the
  // first pass. If that fails, or is never called, its passes have no levels and are the same
  // otherwise.
  virtual int64_t level_bytes(int /*levels*/) const { return 0; }
  virtual Status allow_levels(int /*levels*/) { return {StatusCode::kUnsupported, "no levels"}; }
  // The same for HeadPass::while_found, after allow_levels() if that is called.
  virtual int64_t found_bytes() const { return 0; }
  virtual Status allow_found() { return {StatusCode::kUnsupported, "no tokens"}; }

  // Computes the rows, writing their keys and values to their slots.
  virtual HeadOutputs forward(const HeadPass& pass, KvCache& cache) = 0;
};

}  // namespace aerie
