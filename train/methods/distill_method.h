// A small Llama that drafts for the target, taught the target's distribution on its own replies
// (Leviathan et al. 2211.17192; DistillSpec, Zhou et al. 2310.08461).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"
#include "train/nn/llama_model.h"
#include "train/nn/losses.h"

namespace aerie::train {

struct DistillOptions {
  // Of the target, to begin with, as parse_cut_layers() reads them; embedding, LM head and final
  // norm are the target's, too. That needs a target that is a plain Llama.
  std::string layers = "2";
  // Instead: begin at random, in this shape. Its vocabulary is passed over.
  std::optional<LlamaShape> shape;
  // The target's ids that are drafted and read, ascending; empty: all. The others are all read as
  // one token that has an embedding of its own, and are never drafted.
  std::vector<int32_t> vocabulary;
  // A cut has one matrix for embedding and LM head even if the target has two.
  bool tied = false;
  Divergence loss = Divergence::kForwardKl;
  int depth = 5;  // of the drafts by which the model is judged
};

// The checkpoint is a Hugging Face folder of a Llama with the tensor "d2t" of a pruned vocabulary
// (docs/formats.md) and no tokenizer, since its tokens are the target's: `draft_model` opens it,
// and `aerie convert` makes a GGUF file of it.
//
// Each row whose next token the target generated is supervised. Figures: "loss"; "hits", the rows
// whose likeliest token is the one that came; and, of passes that do not train, "acceptance":
// sum min(p, q) over the target's whole vocabulary.
//
// `target` must outlive the method. kInvalidArgument for layers and tokens that it does not have
// and for a shape that is none, kUnsupported as LlamaModel::cut().
Expected<std::unique_ptr<Method>> make_distill(Target& target, const DistillOptions& options,
                                               at::Generator& generator);

}  // namespace aerie::train
