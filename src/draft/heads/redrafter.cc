// The recurrent drafter (ReDrafter, Cheng et al. 2024, 2403.09919): one head for all depths, with a
// state that the drafted tokens go into.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <string>
#include <utility>

#include "draft/heads/head_machine.h"
#include "draft/heads/heads.h"

namespace aerie {

extern const Method kRedrafterMethod;

namespace {

constexpr int64_t kMostRedrafterBlocks = 64;
constexpr int64_t kMostExit = 1 << 20;

struct RedrafterWeights {
  std::optional<Linear> token, state;  // of the RNN
  std::optional<Linear> input;
  std::vector<Linear> blocks;
  OutputHead output;
};

class Redrafter final : public MachineHead {
 public:
  static Expected<std::unique_ptr<FeatureHead>> create(int64_t exit, RedrafterWeights weights,
                                                       const HeadTarget& target);

  std::span<const int32_t> tap_layers() const override { return taps_; }
  int feature_width() const override { return static_cast<int>(width_); }
  int hidden() const override { return static_cast<int>(2 * width_); }
  int vocab() const override { return weights_.output.vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.output.target_ids(); }
  const ModelConfig& cache_config() const override { return no_cache_; }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  Redrafter(std::unique_ptr<HeadMachine> machine, RedrafterWeights weights,
            const HeadTarget& target)
      : MachineHead(std::move(machine)),
        weights_(std::move(weights)),
        target_(*target.parts.weights),
        width_(target.config->hidden),
        taps_({target.config->layers}) {}
  void step(HeadRows state);
  void compute();

  RedrafterWeights weights_;
  const TransformerWeights& target_;
  int64_t width_;
  std::array<int32_t, 1> taps_;
  ModelConfig no_cache_;
  // h and s of the rows; the state before all tokens.
  HeadRows normed_, states_, zeros_;
  HeadRows mixed_, x_, scratch_;
  // The pass under way.
  HeadMachine::Inputs in_;
  bool of_nodes_ = false;
};

Expected<std::unique_ptr<FeatureHead>> Redrafter::create(int64_t exit, RedrafterWeights weights,
                                                         const HeadTarget& target) {
  const int64_t width = target.config->hidden;
  HeadSizes sizes;
  sizes.features = sizes.handed = 2 * width;
  sizes.embedded = width;
  sizes.widest = std::max(2 * width, exit);
  sizes.vocab = weights.output.vocab();
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadMachine> machine, HeadMachine::create(target, sizes));
  std::unique_ptr<Redrafter> head(new Redrafter(std::move(machine), std::move(weights), target));
  const std::pair<HeadRows*, int64_t> all[] = {{&head->normed_, width}, {&head->states_, width},
                                               {&head->zeros_, width},  {&head->mixed_, width},
                                               {&head->x_, exit},       {&head->scratch_, exit}};
  for (const auto& [rows, of] : all) {
    AERIE_ASSIGN_OR_RETURN(*rows, head->machine().allocate(HeadWhich::kWanted, of));
  }
  return std::unique_ptr<FeatureHead>(std::move(head));
}

// The states with the rows' tokens in them, in states_.
void Redrafter::step(HeadRows state) {
  constexpr HeadWhich kWanted = HeadWhich::kWanted;
  if (!weights_.state) {
    machine().copy(state, kWanted, states_);
    machine().add(in_.embedded, 1.0f, kWanted, states_);
    return;
  }
  machine().linear(*weights_.token, {{in_.embedded}}, kWanted, mixed_);
  machine().linear(*weights_.state, {{state}}, kWanted, mixed_, true);
  machine().activate(kernels::Activation::kSilu, mixed_, kWanted, states_);
}

void Redrafter::compute() {
  constexpr HeadWhich kWanted = HeadWhich::kWanted;
  HeadRows feature = normed_;
  if (of_nodes_) {
    feature = in_.features.columns(width_, width_);
  } else {
    machine().target_norm(in_.features, kWanted, normed_);
  }
  step(of_nodes_ ? in_.features.columns(0, width_) : zeros_);
  const HeadRows handed = machine().handed();
  machine().copy(states_, kWanted, handed.columns(0, width_));
  machine().copy(feature, kWanted, handed.columns(width_, width_));
  if (weights_.input) {
    machine().linear(*weights_.input, {{feature}, {states_}}, kWanted, x_);
  } else {
    machine().copy(feature, kWanted, x_.columns(0, width_));
    machine().copy(states_, kWanted, x_.columns(width_, width_));
  }
  machine().residual_blocks(weights_.blocks, x_, kWanted, scratch_);
  machine().output(weights_.output.linear(), {{x_}});
}

HeadOutputs Redrafter::forward(const HeadPass& pass, KvCache& cache) {
  // Without a cache of its own a head is given no rows but those that draft.
  assert(std::ranges::all_of(pass.batch.rows, &BatchRow::wants_logits));
  of_nodes_ = pass.depth > 0;
  in_ = machine().begin(
      pass, cache, of_nodes_ ? 1 : 0, of_nodes_ ? 2 * width_ : width_,
      [this](const BatchRow& row, float* out) { embed_token(target_, row.token, out); });
  return machine().run([this] { compute(); });
}

struct RedrafterPlan {
  int64_t exit = 0;
  int blocks = 0;
  bool rnn = false;
};

Expected<RedrafterPlan> read_redrafter_plan(const HeadFile& file, const HeadTarget& target) {
  const JsonObject config = file.config_object();
  RedrafterPlan plan;
  AERIE_ASSIGN_OR_RETURN(const int64_t width, config.integer("hidden_size"));
  AERIE_RETURN_IF_ERROR(
      require_equal(file, "hidden_size", width, "the target's", target.config->hidden));
  AERIE_ASSIGN_OR_RETURN(const int64_t vocab, config.integer("vocab_size"));
  AERIE_RETURN_IF_ERROR(
      require_equal(file, "vocab_size", vocab, "the target's vocabulary", target.config->vocab));
  AERIE_ASSIGN_OR_RETURN(plan.exit, config.integer_in("exit_dim", 1, kMostExit));
  AERIE_ASSIGN_OR_RETURN(const int64_t blocks,
                         config.integer_in("num_draft_layers", 0, kMostRedrafterBlocks));
  plan.blocks = static_cast<int>(blocks);
  AERIE_ASSIGN_OR_RETURN(plan.rnn, config.boolean("rnn"));
  return plan;
}

Expected<RedrafterWeights> load_weights(HeadFile& file, const HeadTarget& target,
                                        const HeadOptions& options, const RedrafterPlan& plan,
                                        const ModelOptions& model) {
  WeightLoader loader(file, model);
  RedrafterWeights w;
  const int64_t width = target.config->hidden;
  if (plan.rnn) {
    AERIE_ASSIGN_OR_RETURN(w.token, load_linear(loader, "rnn_w", width, width));
    AERIE_ASSIGN_OR_RETURN(w.state, load_linear(loader, "rnn_u", width, width));
  }
  if (plan.exit != 2 * width) {
    AERIE_ASSIGN_OR_RETURN(w.input, load_linear(loader, "input_proj", 2 * width, plan.exit));
  }
  for (int i = 0; i < plan.blocks; ++i) {
    AERIE_ASSIGN_OR_RETURN(Linear block, load_linear(loader, fmt::format("lm_head.{}.linear", i),
                                                     plan.exit, plan.exit));
    w.blocks.push_back(std::move(block));
  }
  const std::string name = fmt::format("lm_head.{}.weight", plan.blocks);
  AERIE_RETURN_IF_ERROR(file.tensor_info(name).status());
  AERIE_ASSIGN_OR_RETURN(w.output,
                         OutputHead::load(loader, file, name, plan.exit, target, options));
  AERIE_RETURN_IF_ERROR(loader.check_all_used("ReDrafter"));
  return w;
}

// s = silu(rnn_w e(token) + rnn_u s), or s + e(token) without an RNN, from s = 0 on, the root's
// token being the first; x = [h; s], through input_proj if there is one, then blocks
// x + silu(w x + bias), then the output matrix. h is the target's hidden state before the root,
// after its final norm, e the target's embedding. Rows hand on [s; h].
//
// As published it drafts by beam search (NetworkDrafterOptions::beams). kInvalidArgument, naming
// what differs, for a head of another model; kInvalidData for a configuration out of range or
// tensors that do not fit it; kUnsupported for a tensor that has no place.
Expected<std::unique_ptr<FeatureHead>> load_redrafter(HeadFile& file, const HeadTarget& target,
                                                      const HeadSettings& options) {
  AERIE_ASSIGN_OR_RETURN(const RedrafterPlan plan, read_redrafter_plan(file, target));
  const ModelOptions model = target.model_options();
  AERIE_ASSIGN_OR_RETURN(RedrafterWeights weights,
                         load_weights(file, target, options, plan, model));
  return Redrafter::create(plan.exit, std::move(weights), target);
}

}  // namespace

constinit const Method kRedrafterMethod = [] {
  Method method = head_method("redrafter", "a recurrent drafter; with topk, beams", load_redrafter);
  method.make = [](const MethodConfig& config, DraftHost& host) {
    return make_head_drafter(config, host, {.path = config.text(kModelKey), .beams = true});
  };
  return method;
}();

}  // namespace aerie
