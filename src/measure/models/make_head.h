// `aerie bench make-head`: a draft head with random weights for a model, as its family publishes
// them. Its drafts are worthless; what it costs is what a trained one costs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "core/model_config.h"

namespace aerie::measure {

struct MakeHeadOptions {
  std::string kind;     // of head_kinds()
  std::string output;   // a folder; made if it is not there
  int draft_vocab = 0;  // of EAGLE-3 and P-EAGLE: tokens that can be drafted; 0: all
  int depth = 4;        // heads of Medusa, Hydra and an MLP speculator
  uint64_t seed = 1;
};

// "eagle", "eagle3", "peagle", "dflash", "medusa", "hydra", "mlp_speculator", "redrafter", "mtp".
std::span<const std::string_view> head_kinds();
// The method that runs a kind: "eagle3" for "peagle".
std::string_view method_of_kind(std::string_view kind);
// Whether a kind drafts all depths in the pass of the root, at a price that depends on how many.
bool is_parallel_kind(std::string_view kind);
// Whether a kind is a layer that a tree's nodes are run through, pass by pass.
bool grows_trees(std::string_view kind);

// Writes config.json and model.safetensors (BF16 matrices of about the deviation that models begin
// with, norms of 1). kInvalidArgument for a kind that is not known; else errors of writing. Returns
// the bytes of the tensors.
Expected<int64_t> make_head(const MakeHeadOptions& options, const ModelConfig& target);

}  // namespace aerie::measure
