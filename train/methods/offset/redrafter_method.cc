#include "train/methods/offset/redrafter_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "format/json.h"
#include "train/methods/offset/affine.h"
#include "train/methods/offset/recurrent_method.h"
#include "train/methods/training_methods.h"
#include "train/nn/llama_layer.h"
#include "train/run/checkpoint_files.h"

namespace aerie::train {

extern const TrainingMethod kRedrafterTraining;

namespace {

constexpr int64_t kMostExit = 1 << 20;

class Redrafter final : public RecurrentMethod {
 public:
  Redrafter(const Target& target, const RedrafterOptions& options, OffsetHeads offsets,
            at::Tensor embedding, at::Generator& generator);

  Status write(const std::string& folder) const override;
  DraftSettings settings() const override {
    return DraftSettings::of(kRedrafterTraining.drafter, options_.depth);
  }

 private:
  at::Tensor forward(const at::Tensor& states, const at::Tensor& tokens) const override;
  Affine add(const std::string& name, const at::Tensor& weight) {
    return Affine::add(parameters(), name, weight);
  }

  RedrafterOptions options_;
  int vocab_;  // the target's
  int64_t hidden_;
  at::Tensor embedding_;
  at::Tensor token_;  // of the RNN, with the next
  Affine state_;
  std::optional<Affine> input_;
  std::vector<Affine> blocks_;
  at::Tensor output_;
};

Redrafter::Redrafter(const Target& target, const RedrafterOptions& options, OffsetHeads offsets,
                     at::Tensor embedding, at::Generator& generator)
    : RecurrentMethod(std::move(offsets)),
      options_(options),
      vocab_(target.config().vocab),
      hidden_(target.config().hidden),
      embedding_(std::move(embedding)) {
  const at::Tensor& rows = this->offsets().target_rows();
  const int64_t exit = options_.exit == 0 ? 2 * hidden_ : options_.exit;
  if (options_.rnn) {
    const auto random = [&] {
      return random_matrix(hidden_, hidden_, generator).to(rows.device());
    };
    token_ = parameters().add("rnn_w.weight",
                              random() / embedding_.square().mean().sqrt().clamp_min(1e-6));
    state_ = add("rnn_u", random() * 0.5);
  }
  if (exit != 2 * hidden_) input_ = add("input_proj", at::eye(exit, 2 * hidden_, rows.options()));
  for (int i = 0; i < options_.blocks; ++i) {
    blocks_.push_back(
        add(fmt::format("lm_head.{}.linear", i), at::zeros({exit, exit}, rows.options())));
  }
  at::Tensor output = at::zeros({rows.size(0), exit}, rows.options());
  const int64_t shared = std::min(exit, hidden_);
  output.narrow(1, 0, shared).copy_(rows.narrow(1, 0, shared));
  output_ = parameters().add(fmt::format("lm_head.{}.weight", options_.blocks), output);
}

at::Tensor Redrafter::forward(const at::Tensor& states, const at::Tensor& tokens) const {
  at::Tensor s;
  for (int64_t i = 0; i < tokens.size(0); ++i) {
    const at::Tensor embedded = embedding_.index_select(0, tokens[i]);
    if (options_.rnn) {
      const at::Tensor before = s.defined() ? s : at::zeros_like(states);
      s = at::silu(at::linear(embedded, token_) + state_(before));
    } else {
      s = s.defined() ? s + embedded : embedded;
    }
  }
  at::Tensor x = at::cat({states, s}, 1);
  if (input_) x = (*input_)(x);
  for (const Affine& block : blocks_) x = x + at::silu(block(x));
  return at::linear(x, output_);
}

Status Redrafter::write(const std::string& folder) const {
  Json config = Json::object();
  config["model_type"] = "recurrent_drafting_drafter";
  config["vocab_size"] = vocab_;
  config["hidden_size"] = hidden_;
  config["exit_dim"] = options_.exit == 0 ? 2 * hidden_ : options_.exit;
  config["num_draft_layers"] = options_.blocks;
  config["rnn"] = options_.rnn;
  return write_checkpoint(folder, stored_parameters(stored(), options_.bf16), config);
}

MakeMethod declare_redrafter(SettingList& settings) {
  const auto o = std::make_shared<RedrafterOptions>();
  settings.add_depth(o->depth);
  settings.add("blocks", o->blocks, {1, 64}, "Blocks before the output matrix");
  settings.add("exit", o->exit, {0, static_cast<double>(kMostExit)},
               "Width of what the output matrix is given; 0: twice the hidden size");
  settings.add("!no-rnn", o->rnn, "Add up the embeddings of the drafted tokens, without an RNN");
  settings.add("store-bf16", o->bf16, "Store matrices as BF16");
  settings.add_draft_vocab(o->vocabulary);
  add_offset_loss(settings, o->loss);
  return made_of(o, make_redrafter);
}

}  // namespace

Expected<std::unique_ptr<Method>> make_redrafter(Target& target, const RedrafterOptions& options,
                                                 at::Generator& generator) {
  if (options.exit < 0 || options.exit > kMostExit) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("an exit of {}: it must be 0 to {}", options.exit, kMostExit));
  }
  AERIE_ASSIGN_OR_RETURN(OffsetHeads heads,
                         recurrent_offsets(target, {.heads = options.depth,
                                                    .blocks = options.blocks,
                                                    .vocabulary = options.vocabulary,
                                                    .loss = options.loss}));
  AERIE_ASSIGN_OR_RETURN(at::Tensor embedding, target.embedding());
  return std::unique_ptr<Method>(std::make_unique<Redrafter>(target, options, std::move(heads),
                                                             std::move(embedding), generator));
}

constinit const TrainingMethod kRedrafterTraining = {
    .name = "redrafter",
    .what = "ReDrafter: a head with a recurrent state for all depths",
    .drafter = "redrafter",
    .schedule = {.rate = 1e-3, .warmup = 0.02, .floor = 0.0},
    .declare = declare_redrafter,
};

}  // namespace aerie::train
