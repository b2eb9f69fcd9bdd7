// What config.json says of a head that drafts blocks, in the ways in which it is published: flat
// with "dflash_config" (z-lab/dflash), flat (deepseek-ai/DeepSpec), and the package speculators'.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/model_config.h"
#include "model/blueprint.h"
#include "model/import/head_file.h"

namespace aerie {

inline const std::string kEmbeddingName = "embed_tokens.weight";

struct BlockPlan {
  std::vector<int32_t> taps;  // layers of the target whose input is tapped
  int depths = 0;             // that it was trained to draft
  bool root_drafts = false;   // FeatureHead::root_drafts()
  int32_t mask_token = 0;     // not held against a vocabulary yet
};

// What z-lab/dflash taps where nothing is said: as many of the target's `layers` as the head has,
// evenly spread. The layers that the taps enter.
std::vector<int32_t> usual_block_taps(int layers, int drafting);

// `taps`: instead of the configuration's; empty: those. kInvalidData or kInvalidArgument, naming
// the key, for what is missing or out of range.
Expected<BlockPlan> read_block_plan(const HeadFile& file, const ModelConfig& target,
                                    const std::vector<int32_t>& taps);

// Which layers know an order within a block (LayerPlan::sees_chain).
Status read_block_order(const HeadFile& file, Blueprint& blueprint);

}  // namespace aerie
