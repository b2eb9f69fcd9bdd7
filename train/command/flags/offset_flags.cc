#include <map>
#include <memory>

#include "train/batches/training_vocabulary.h"
#include "train/command/flags/method_flags.h"
#include "train/methods/offset/hydra_method.h"
#include "train/methods/offset/medusa_method.h"

namespace aerie::train {
namespace {

struct MedusaFlags {
  MedusaOptions options;
  int64_t draft_vocab = 0;
  std::string soft;
};

struct HydraFlags {
  HydraOptions options;
  int64_t draft_vocab = 0;
  bool plus_plus = false;
  std::string loss;
};

void add_shape_flags(CLI::App& app, int& heads, int& blocks, bool& bf16, int64_t& draft_vocab) {
  app.add_option("--heads", heads, "Heads; each drafts one token more")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--blocks", blocks, "Blocks of a head")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_flag("--store-bf16", bf16, "Store matrices as BF16");
  add_draft_vocab_flag(app, draft_vocab);
}

}  // namespace

void set_medusa_defaults(TrainOptions& options) {
  options.schedule = {.rate = 1e-3, .warmup = 0.1, .floor = 0.0};
}

namespace {

void add_heads_flags(CLI::App& app, MedusaFlags& flags) {
  MedusaOptions& o = flags.options;
  add_shape_flags(app, o.heads, o.blocks, o.bf16, flags.draft_vocab);
  const std::map<std::string, MedusaOutput> outputs = {{"own", MedusaOutput::kOwn},
                                                       {"shared", MedusaOutput::kShared},
                                                       {"target", MedusaOutput::kTarget}};
  app.add_option("--output", o.output,
                 "Output matrices: own of each head, one shared by all, or the target's")
      ->transform(CLI::CheckedTransformer(outputs))
      ->default_str("own");
  app.add_option("--head-decay", o.decay, "The loss of head k weighs so much to the power of k")
      ->capture_default_str();
  app.add_option("--loss", flags.soft,
                 std::string("Distance from the target: ") + kDivergences +
                     " (default: cross entropy with the text)");
}

Expected<MedusaOptions> heads_options(const MedusaFlags& flags, const MethodInputs& inputs) {
  MedusaOptions options = flags.options;
  if (!flags.soft.empty()) {
    AERIE_ASSIGN_OR_RETURN(options.soft, parse_divergence(flags.soft));
  }
  if (flags.draft_vocab > 0) {
    options.vocabulary = most_frequent(inputs.token_counts, flags.draft_vocab);
  }
  return options;
}

}  // namespace

MakeMethod add_medusa_flags(CLI::App& app) {
  auto flags = std::make_shared<MedusaFlags>();
  add_heads_flags(app, *flags);
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    AERIE_ASSIGN_OR_RETURN(const MedusaOptions options, heads_options(*flags, inputs));
    return make_medusa(inputs.target, options, inputs.generator);
  };
}

// The paper's second stage; rates are given for the target.
void set_medusa2_defaults(TrainOptions& options) {
  options.schedule = {.rate = 1.25e-4, .warmup = 0.05, .decay = Decay::kConstant, .floor = 0.0};
}

MakeMethod add_medusa2_flags(CLI::App& app) {
  struct Flags {
    MedusaFlags heads;
    Medusa2Options options;
    bool labels = false;
  };
  auto flags = std::make_shared<Flags>();
  Medusa2Options& o = flags->options;
  add_heads_flags(app, flags->heads);
  app.add_option("--heads-weight", o.heads_weight, "Weighs the heads' losses")
      ->capture_default_str();
  app.add_option("--heads-rate", o.heads_rate, "Their learning rate, in those of the target")
      ->capture_default_str();
  app.add_option("--heads-alone", o.heads_alone, "The first share of the training is Medusa-1's")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--lora-rank", o.rank, "Of the target's adapters (LoRA)")->capture_default_str();
  app.add_option("--lora-alpha", o.alpha, "Their scale")->capture_default_str();
  app.add_flag("--labels", flags->labels, "Hold the target to the text, not to what it was");
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    Medusa2Options options = flags->options;
    AERIE_ASSIGN_OR_RETURN(options.heads, heads_options(flags->heads, inputs));
    options.distill = !flags->labels;
    return make_medusa2(inputs.target, options, inputs.generator);
  };
}

void set_hydra_defaults(TrainOptions& options) {
  options.schedule = {.rate = 5e-4, .warmup = 0.02, .floor = 0.33};
  options.adamw.weight_decay = 0.1;
}

MakeMethod add_hydra_flags(CLI::App& app) {
  auto flags = std::make_shared<HydraFlags>();
  HydraOptions& o = flags->options;
  add_shape_flags(app, o.heads, o.blocks, o.bf16, flags->draft_vocab);
  CLI::Option* plus_plus =
      app.add_flag("--plus-plus", flags->plus_plus,
                   "Hydra++: a prefix layer, four blocks, the target's distribution as teacher");
  for (const char* name : {"--heads", "--blocks"}) plus_plus->excludes(app.get_option(name));
  const auto other = [&](CLI::Option* option) {
    option->capture_default_str()->excludes(plus_plus);
  };
  other(app.add_flag("--prefix", o.prefix, "A layer of a Llama over the target's states first"));
  other(app.add_option("--dropout", o.dropout, "In the heads"));
  other(app.add_option("--label-weight", o.loss.labels, "Weighs the text's tokens"));
  other(app.add_option("--teacher-weight", o.loss.teacher, "Weighs the target's distribution"));
  other(app.add_option("--feature-weight", o.loss.features, "Weighs the distance of features"));
  other(app.add_option("--head-decay", o.loss.decay, "Head k weighs so much to the power of k"));
  flags->loss = divergence_name(o.loss.divergence);
  app.add_option("--loss", flags->loss, std::string("Distance from the target: ") + kDivergences)
      ->capture_default_str();
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    HydraOptions options = flags->options;
    if (flags->plus_plus) {
      options = HydraOptions::plus_plus();
      options.bf16 = flags->options.bf16;
    }
    AERIE_ASSIGN_OR_RETURN(options.loss.divergence, parse_divergence(flags->loss));
    if (flags->draft_vocab > 0) {
      options.vocabulary = most_frequent(inputs.token_counts, flags->draft_vocab);
    }
    return make_hydra(inputs.target, options, inputs.generator);
  };
}

}  // namespace aerie::train
