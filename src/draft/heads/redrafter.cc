// The recurrent drafter (ReDrafter, Cheng et al. 2024, 2403.09919): one head for all depths, with a
// state that the drafted tokens go into.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

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

class Redrafter final : public FeatureHead {
 public:
  Redrafter(int64_t exit, RedrafterWeights weights, HeadOps ops, const HeadTarget& target)
      : weights_(std::move(weights)),
        ops_(std::move(ops)),
        pool_(*target.pool),
        target_(*target.parts.weights),
        width_(target.config->hidden),
        taps_({target.config->layers}) {
    const auto rows = static_cast<size_t>(target.max_logits);
    const size_t each = rows * static_cast<size_t>(width_);
    features_.resize(each);
    states_.resize(each);
    tokens_.resize(each);
    mixed_.resize(each);
    handed_.resize(2 * each);
    input_.resize(2 * each);
    x_.resize(rows * static_cast<size_t>(exit));
    scratch_.resize(x_.size());
    logits_.resize(rows * static_cast<size_t>(vocab()));
  }

  std::span<const int32_t> tap_layers() const override { return taps_; }
  int feature_width() const override { return static_cast<int>(width_); }
  int hidden() const override { return static_cast<int>(2 * width_); }
  int vocab() const override { return weights_.output.vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.output.target_ids(); }
  const ModelConfig& cache_config() const override { return no_cache_; }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  void begin(const HeadPass& pass);
  void step(const HeadPass& pass);

  RedrafterWeights weights_;
  HeadOps ops_;
  ThreadPool& pool_;
  const TransformerWeights& target_;
  int64_t width_;
  std::array<int32_t, 1> taps_;
  ModelConfig no_cache_;
  // h and s of the rows, the embedding of their tokens.
  std::vector<float> features_, states_, tokens_;
  std::vector<float> mixed_, handed_, input_, x_, scratch_, logits_;
};

void Redrafter::begin(const HeadPass& pass) {
  const auto width = static_cast<size_t>(width_);
  const size_t rows = pass.batch.rows.size();
  if (pass.depth == 0) {
    gather_wanted_features(pass, width_, mixed_.data());
    ops_.target_norm(mixed_.data(), static_cast<int64_t>(rows), features_.data());
    std::fill_n(states_.begin(), rows * width, 0.0f);
  }
  for (size_t r = 0; r < rows; ++r) {
    embed_token(target_, pass.batch.rows[r].token, tokens_.data() + r * width);
    if (pass.depth == 0) continue;
    std::copy_n(pass.features[r], width, states_.data() + r * width);
    std::copy_n(pass.features[r] + width, width, features_.data() + r * width);
  }
}

// The states with the rows' tokens in them.
void Redrafter::step(const HeadPass& pass) {
  const int64_t rows = pass.batch.size();
  const int64_t count = rows * width_;
  if (!weights_.state) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) states_[i] += tokens_[i];
    return;
  }
  ops_.linear(*weights_.token, tokens_.data(), rows, mixed_.data());
  ops_.linear(*weights_.state, states_.data(), rows, mixed_.data(), 0, true);
  ops_.activate(kernels::Activation::kSilu, mixed_.data(), rows, width_, states_.data());
}

HeadOutputs Redrafter::forward(const HeadPass& pass, KvCache& /*cache*/) {
  // Without a cache of its own a head is given no rows but those that draft.
  assert(std::ranges::all_of(pass.batch.rows, &BatchRow::wants_logits));
  const ThreadPool::Round round(pool_);
  const auto width = static_cast<size_t>(width_);
  const size_t rows = pass.batch.rows.size();
  begin(pass);
  step(pass);
  // What a block changes in place is x_; input_ may be that itself.
  float* input = weights_.input ? input_.data() : x_.data();
  for (size_t r = 0; r < rows; ++r) {
    const float* state = states_.data() + r * width;
    const float* feature = features_.data() + r * width;
    std::copy_n(feature, width, std::copy_n(state, width, handed_.data() + 2 * r * width));
    std::copy_n(state, width, std::copy_n(feature, width, input + 2 * r * width));
  }
  const auto all = static_cast<int64_t>(rows);
  if (weights_.input) ops_.linear(*weights_.input, input, all, x_.data());
  ops_.residual_blocks(weights_.blocks, x_.data(), all, scratch_.data());
  ops_.linear(weights_.output.linear(), x_.data(), all, logits_.data());
  HeadOutputs out;
  out.logits = std::span<const float>(logits_).first(rows * static_cast<size_t>(vocab()));
  out.hidden = std::span<const float>(handed_).first(2 * rows * width);
  return out;
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
  const int64_t widest = std::max<int64_t>(2 * int64_t{target.config->hidden}, plan.exit);
  AERIE_ASSIGN_OR_RETURN(HeadOps ops, HeadOps::create(target, target.max_logits, widest));
  return std::unique_ptr<FeatureHead>(
      std::make_unique<Redrafter>(plan.exit, std::move(weights), std::move(ops), target));
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
