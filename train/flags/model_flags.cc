// Whole models: small ones that draft, and targets that are trained themselves.
#include <memory>

#include "train/flags/method_flags.h"
#include "train/methods/distill.h"
#include "train/methods/layerskip.h"
#include "train/vocabulary.h"

namespace aerie::train {
namespace {

struct DistillFlags {
  DistillOptions options;
  LlamaShape shape;
  int64_t draft_vocab = 0;
  std::string loss;
};

struct LayerSkipFlags {
  LayerSkipOptions options;
  std::string curriculum = "rotational";
};

void add_fresh_flags(CLI::App& app, LlamaShape& shape, CLI::Option* cut) {
  CLI::Option* fresh =
      app.add_option("--fresh-layers", shape.layers,
                     "Begin at random instead, with so many layers of the shape that follows")
          ->excludes(cut)
          ->check(CLI::Range(1, 1024));
  const auto size = [&](const char* name, int64_t& value, const char* help) {
    fresh->needs(app.add_option(name, value, help)->needs(fresh)->check(CLI::Range(1, 1 << 24)));
  };
  size("--hidden", shape.layer.hidden, "Width of the stream");
  size("--heads", shape.layer.heads, "Heads of queries");
  size("--kv-heads", shape.layer.kv_heads, "Heads of keys and values");
  size("--head-dim", shape.layer.head_dim, "Width of a head");
  size("--intermediate", shape.layer.intermediate, "Width of the feed-forward");
}

}  // namespace

void set_distill_defaults(TrainOptions& options) {
  options.schedule = {.rate = 3e-4, .warmup = 0.02, .floor = 0.1};
  options.clip_norm = 1.0;
}

MakeMethod add_distill_flags(CLI::App& app) {
  auto flags = std::make_shared<DistillFlags>();
  DistillOptions& o = flags->options;
  flags->loss = divergence_name(o.loss);
  CLI::Option* cut =
      app.add_option(
             "--layers", o.layers,
             "The target's layers to begin with: the first so many, or a list such as 0,1,29")
          ->capture_default_str();
  add_fresh_flags(app, flags->shape, cut);
  app.add_flag("--tied", o.tied,
               "One matrix for embedding and LM head, even if the target has two");
  add_draft_vocab_flag(app, flags->draft_vocab);
  app.add_option("--loss", flags->loss, std::string("Distance from the target: ") + kDivergences)
      ->capture_default_str();
  add_depth_flag(app, o.depth);
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    DistillOptions options = flags->options;
    AERIE_ASSIGN_OR_RETURN(options.loss, parse_divergence(flags->loss));
    if (flags->shape.layers > 0) options.shape = flags->shape;
    if (flags->draft_vocab > 0) {
      options.vocabulary = most_frequent(inputs.token_counts, flags->draft_vocab);
    }
    return make_distill(inputs.target, options, inputs.generator);
  };
}

void set_layerskip_defaults(TrainOptions& options) {
  options.schedule = {.rate = 3e-5, .warmup = 0.02, .floor = 0.1};
  options.clip_norm = 1.0;
}

MakeMethod add_layerskip_flags(CLI::App& app) {
  auto flags = std::make_shared<LayerSkipFlags>();
  LayerSkipOptions& o = flags->options;
  app.add_option("--layer-dropout", o.dropout, "How often the last layer is left out, the most")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--from-scratch", o.from_scratch, "Dropout grows from nothing with the training");
  app.add_option("--exit-scale", o.exit_scale, "Of the losses behind early layers")
      ->capture_default_str();
  app.add_option("--curriculum", flags->curriculum,
                 "Which layers have a loss: rotational or gradual")
      ->capture_default_str();
  app.add_option("--rotation", o.rotation,
                 "Every n-th layer has a loss, one further with each step")
      ->capture_default_str();
  app.add_option("--rotation-steps", o.steps, "Steps that the rotation makes in all")
      ->capture_default_str();
  app.add_option("--exit-layer", o.exit_layer,
                 "Layers that a draft runs, where the model is judged; 0: a quarter")
      ->capture_default_str();
  add_depth_flag(app, o.depth);
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    LayerSkipOptions options = flags->options;
    AERIE_ASSIGN_OR_RETURN(options.curriculum, parse_exit_curriculum(flags->curriculum));
    return make_layerskip(inputs.target, options, inputs.generator);
  };
}

}  // namespace aerie::train
