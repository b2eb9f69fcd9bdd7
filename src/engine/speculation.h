// From the settings of speculation to a drafter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/auto/pass_cost.h"
#include "draft/drafter.h"
#include "draft/speculative_config.h"
#include "engine/model_source.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

struct DraftTarget {
  const Tokenizer* tokenizer = nullptr;
  int vocab = 0;           // logits of the target
  Model* model = nullptr;  // the target itself, for drafters that are or share a part of it
  const ModelFile* file = nullptr;  // what it was loaded from
  int model_rows = 0;               // of its largest pass
  int max_positions = 0;
  int max_sequences = 1;        // open at a time
  int64_t cache_positions = 0;  // of all of them together, as the target's cache has it
  const kernels::Backend* backend = nullptr;
  ThreadPool* pool = nullptr;
  std::string weight_cache;  // as EngineOptions has it
  kernels::KvType cache_type = kernels::KvType::kF16;
  const PassCost* cost = nullptr;  // for Combination::kAuto; must outlive the drafter
  int max_rows = 0;                // of a pass
};

// How many sequences share a pass of a draft network.
int shared_draft_sequences(const DraftTarget& target);

// Null for plain decoding. Combination::kAuto requires target.cost. A draft model is opened,
// compared with the target's tokenizer and checked against the memory that is left. Appends to
// `sources` where models come from; they must outlive the drafter.
Expected<std::unique_ptr<Drafter>> make_drafter(const SpeculativeConfig& config,
                                                const DraftTarget& target,
                                                std::vector<ModelSource>& sources);

}  // namespace aerie
