// Methods that train whole models.
#include <memory>

#include "train/batches/training_vocabulary.h"
#include "train/command/flags/method_flags.h"
#include "train/methods/distill_method.h"
#include "train/methods/layerskip_method.h"

namespace aerie::train {
namespace {

struct DistillFlags {
  DistillOptions options;
  int64_t draft_vocab = 0;
  std::string loss;
  // Of a model that begins at random; 0 hidden: it is cut from the target.
  int64_t hidden = 0, random_layers = 2, heads = 0, kv_heads = 0, ffn = 0;
};

struct LayerSkipFlags {
  LayerSkipOptions options;
  std::string curriculum = "rotational";
};

int64_t or_else(int64_t value, int64_t otherwise) {
  return value == 0 ? otherwise : value;
}

LlamaShape random_shape(const DistillFlags& flags, const Target& target) {
  const ModelConfig& config = target.config();
  LlamaShape shape;
  shape.layers = flags.random_layers;
  shape.vocab = config.vocab;
  shape.rope_base = target.rope_base();
  shape.layer.hidden = flags.hidden;
  shape.layer.head_dim = config.head_dim;
  shape.layer.heads = or_else(flags.heads, std::max<int64_t>(1, flags.hidden / config.head_dim));
  shape.layer.kv_heads = or_else(flags.kv_heads, shape.layer.heads);
  shape.layer.intermediate = or_else(flags.ffn, flags.hidden * 8 / 3 / 32 * 32);
  shape.layer.norm_eps = target.norm_eps();
  return shape;
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
      app.add_option("--layers", o.layers,
                     "Layers of the target to begin with: \"0,1,29\", or \"4\" for the first four")
          ->capture_default_str();
  app.add_option("--hidden", flags->hidden, "Begin at random instead, so wide")
      ->check(CLI::Range(1, 1 << 20))
      ->excludes(cut);
  const auto shape = [&](const char* name, int64_t& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(1, 1 << 20))->needs("--hidden");
  };
  shape("--random-layers", flags->random_layers, "Layers of a model that begins at random");
  shape("--heads", flags->heads, "Its heads (default: by its width)");
  shape("--kv-heads", flags->kv_heads, "Its heads of keys and values (default: as many)");
  shape("--ffn", flags->ffn, "Width of its feed-forward (default: 8/3 of its own)");
  app.add_flag("--tied", o.tied, "One matrix for embedding and output");
  add_draft_vocab_flag(app, flags->draft_vocab);
  app.add_option("--loss", flags->loss, std::string("Distance from the target: ") + kDivergences)
      ->capture_default_str();
  add_depth_flag(app, o.depth);
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    DistillOptions options = flags->options;
    AERIE_ASSIGN_OR_RETURN(options.loss, parse_divergence(flags->loss));
    if (flags->hidden > 0) options.shape = random_shape(*flags, inputs.target);
    if (flags->draft_vocab > 0) {
      options.vocabulary = most_frequent(inputs.token_counts, flags->draft_vocab);
    }
    return make_distill(inputs.target, options, inputs.generator);
  };
}

void set_layerskip_defaults(TrainOptions& options) {
  options.schedule = {.rate = 3e-5, .warmup = 0.02, .floor = 0.0};
  options.clip_norm = 1.0;
}

MakeMethod add_layerskip_flags(CLI::App& app) {
  auto flags = std::make_shared<LayerSkipFlags>();
  LayerSkipOptions& o = flags->options;
  app.add_option("--dropout", o.dropout, "How often the last layer is left out; earlier ones less")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--from-scratch", o.from_scratch, "Dropout grows from nothing with the training");
  app.add_option("--exit-scale", o.exit_scale, "Weighs the losses behind early layers")
      ->capture_default_str();
  app.add_option("--curriculum", flags->curriculum, "Which layers have a loss: rotational, gradual")
      ->capture_default_str();
  app.add_option("--rotation", o.rotation, "rotational: every so many layers, one further a step")
      ->capture_default_str();
  app.add_option("--rotation-steps", o.steps, "Steps of the training, which rotational counts by")
      ->capture_default_str();
  app.add_option("--exit-layer", o.exit_layer,
                 "Where drafts will leave the model; 0: behind a quarter of its layers")
      ->capture_default_str();
  add_depth_flag(app, o.depth);
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    LayerSkipOptions options = flags->options;
    AERIE_ASSIGN_OR_RETURN(options.curriculum, parse_exit_curriculum(flags->curriculum));
    return make_layerskip(inputs.target, options, inputs.generator);
  };
}

}  // namespace aerie::train
