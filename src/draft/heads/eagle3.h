// EAGLE-3 (Li et al. 2025, 2503.01840) in the formats of its own repository and of the package
// speculators, and P-EAGLE (2602.01469), which drafts all depths in one pass.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "model/import/head_file.h"

namespace aerie {

struct Eagle3Options : HeadOptions {
  // Depths that are drafted in one pass, for a head with a mask; 0: one pass for each depth.
  int parallel_depths = 0;
  // Instead of what the configuration says.
  std::optional<bool> norm_before_residual;
};

// Whether the checkpoint has what drafting all depths in one pass takes (a mask), and was trained
// for nothing else.
bool drafts_in_parallel(const HeadFile& file);

// g = fc([taps]) of the target's rows, the row's feature of drafted ones;
// a = [input_layernorm(embedding of the next token); hidden_norm(g)];
// h = (g, or hidden_norm(g) if norm_before_residual) + attention(a), then a feed-forward, then
// ordinary layers, if there are more; logits = lm_head(norm(h)). Handed on: h, or norm(h) if
// norm_output.
//
// Taps: what enters the layers that the configuration names, by default 2, half of the layers and
// the third from the end. kInvalidArgument, naming what differs, for a head of another model;
// kUnsupported for a tensor that has no place.
Expected<std::unique_ptr<FeatureHead>> load_eagle3_head(HeadFile& file, const HeadTarget& target,
                                                        const Eagle3Options& options);

}  // namespace aerie
