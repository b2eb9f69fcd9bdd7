// How a model is opened.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "draft/speculative_config.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "tensor/dtype.h"
#include "verify/verifier.h"

namespace aerie {

struct EngineOptions {
  std::string model;                 // a GGUF file or a Hugging Face folder
  std::optional<DType> weight_type;  // float matrices become this; none: they stay as they are
  int context = 0;                   // positions; 0: the model's own, at most kDefaultContext
  int threads = 0;                   // 0: available_cpus()
  int prefill_chunk = 512;           // prompt tokens in a pass
  kernels::Isa isa = kernels::best_isa();
  std::string weight_cache;  // a folder for packed weights (model/weight_cache.h); empty: none
  kernels::KvType cache_type = kernels::KvType::kF16;  // a draft model's too
  SpeculativeConfig speculation;
  // A file of `aerie tune` (engine/profile.h): Combination::kAuto takes the costs of passes from it
  // rather than measuring them. One of another model or machine is a warning. Empty: none.
  std::string profile;
  std::vector<SpeculativeConfig> more_speculations;  // open too, for requests that pick one
  VerifyRule rule = VerifyRule::kExact;

  static constexpr int kDefaultContext = 4096;
};

}  // namespace aerie
