// LayerSkip (Elhoushi et al. 2024, 2404.16710): the target itself is trained to say its tokens
// after its first layers already, so that early exit drafts well.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"

namespace aerie::train {

// Which layers besides the last have a loss in a step.
enum class ExitCurriculum : uint8_t {
  kRotational,  // every `rotation`-th, one further with each step
  kGradual,  // from the last to the first: layer l from the share (L - l) / (2 L) of the training
};
// "rotational", "gradual".
Expected<ExitCurriculum> parse_exit_curriculum(std::string_view name);

struct LayerSkipOptions {
  // The most that a layer, the last, is left out for a sample; the paper has 0.1 for models that
  // are trained already, and 0.2 for small ones from scratch.
  double dropout = 0.1;
  bool from_scratch = false;  // dropout grows from nothing with the training
  double exit_scale = 0.2;    // of the losses behind early layers
  ExitCurriculum curriculum = ExitCurriculum::kRotational;
  int rotation = 8;
  int steps = 1000;    // of the training, which kRotational counts by
  int exit_layer = 0;  // where drafts will leave the model, which is judged there; 0: L / 4
  int depth = 4;       // of these drafts
};

// The checkpoint is "model.gguf", a whole model in the target's place (adapted_file.h). Speculation
// with it is exact with respect to the trained model, which is another one than the target was: it
// says other things.
//
// Loss: cross entropy of the tokens that came, after the final norm and the LM head on the stream
// behind each layer that the curriculum enables, and behind the last, weighted by what the paper
// calls e(l), normalised. Rows are supervised whose next token the target generated. Figures:
// "loss"; of passes that do not train also "hits" and "loss_last" behind the last layer,
// "hits_exit" behind the exit layer, and "agreement", the rows where both have the same likeliest
// token.
//
// `target` must outlive the method. kInvalidArgument for figures out of range, kUnsupported as
// LlamaModel::cut().
Expected<std::unique_ptr<Method>> make_layerskip(Target& target, const LayerSkipOptions& options,
                                                 at::Generator& generator);

}  // namespace aerie::train
