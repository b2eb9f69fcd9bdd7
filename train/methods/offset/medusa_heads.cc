#include "train/methods/offset/medusa_heads.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "train/run/checkpoint_files.h"

namespace aerie::train {

Expected<MedusaOutput> parse_medusa_output(std::string_view name) {
  if (name == "own") return MedusaOutput::kOwn;
  if (name == "shared") return MedusaOutput::kShared;
  if (name == "target") return MedusaOutput::kTarget;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("\"{}\" is no output matrix: there are own, shared and target", name));
}

void MedusaOptions::add_to(SettingList& settings) {
  add_head_shape(settings, heads, blocks, bf16, vocabulary);
  settings.add_word("output", output, parse_medusa_output, "own",
                    "Output matrices: own of each head, one shared by all, or the target's");
  settings.add("head-decay", decay, "The loss of head k weighs so much to the power of k");
  settings.add_loss(soft);
}

Expected<MedusaHeads> MedusaHeads::create(Target& target, const MedusaOptions& options) {
  if (options.output == MedusaOutput::kTarget && !options.vocabulary.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "heads with the target's own output matrix cannot say in their file which tokens "
                  "they draft: leave out the vocabulary here and give it where they are used "
                  "(draft_vocab), or train a shared matrix");
  }
  OffsetHeadsOptions offsets;
  offsets.heads = options.heads;
  offsets.blocks = options.blocks;
  offsets.vocabulary = options.vocabulary;
  offsets.loss.decay = options.decay;
  if (options.soft) {
    offsets.loss.labels = 0.0;
    offsets.loss.teacher = 1.0;
    offsets.loss.divergence = *options.soft;
  }
  AERIE_ASSIGN_OR_RETURN(OffsetHeads heads, OffsetHeads::create(target, offsets));
  return MedusaHeads(options, std::move(heads), target.config().vocab);
}

std::string MedusaHeads::block_name(int head, int block) const {
  return is_vllm() ? fmt::format("blocks.{}.layers.{}", head, block)
                   : fmt::format("{}.{}.linear", head, block);
}

std::string MedusaHeads::output_name(int head) const {
  return is_vllm() ? fmt::format("lm_heads.{}.weight", head)
                   : fmt::format("{}.{}.weight", head, options_.blocks);
}

MedusaHeads::MedusaHeads(const MedusaOptions& options, OffsetHeads offsets, int vocab)
    : options_(options), offsets_(std::move(offsets)), vocab_(vocab) {
  const at::Tensor& start = offsets_.target_rows();
  const int64_t hidden = start.size(1);
  if (offsets_.draft_ids().defined()) parameters_.add_fixed("token_map", offsets_.draft_ids());
  for (int i = 0; i < options_.heads; ++i) {
    std::vector<Block>& blocks = blocks_.emplace_back();
    for (int j = 0; j < options_.blocks; ++j) {
      const std::string name = block_name(i, j);
      blocks.push_back(
          {parameters_.add(name + ".weight", at::zeros({hidden, hidden}, start.options())),
           parameters_.add(name + ".bias", at::zeros({hidden}, start.options()))});
    }
    const bool first = i == 0;
    if (options_.output == MedusaOutput::kTarget) {
      if (first) outputs_.push_back(start);
    } else if (first || options_.output == MedusaOutput::kOwn) {
      outputs_.push_back(parameters_.add(output_name(i), start.clone()));
    }
  }
}

OffsetHeads::Output MedusaHeads::forward(int head, const at::Tensor& states) const {
  at::Tensor x = states;
  for (const Block& block : blocks_[static_cast<size_t>(head)]) {
    x = x + at::silu(at::linear(x, block.weight, block.bias));
  }
  return {at::linear(x, outputs_[outputs_.size() > 1 ? static_cast<size_t>(head) : 0]), x};
}

Expected<Figures> MedusaHeads::accumulate(const Batch& batch, const at::Tensor& states,
                                          double scale, bool train) const {
  return offsets_.accumulate(
      batch, states, scale, train,
      [&](int head, const at::Tensor& rows) -> Expected<OffsetHeads::Output> {
        return forward(head, states.index_select(0, rows));
      });
}

Json MedusaHeads::config() const {
  Json config = Json::object();
  config["model_type"] = "medusa";
  config["hidden_size"] = offsets_.target_rows().size(1);
  config["vocab_size"] = vocab_;
  if (!is_vllm()) {
    config["medusa_num_heads"] = options_.heads;
    config["medusa_num_layers"] = options_.blocks;
    return config;
  }
  config["architectures"] = Json::array({"MedusaModel"});
  config["num_heads"] = options_.heads;
  config["num_hidden_layers"] = options_.blocks;
  config["medusa_fc_bias"] = true;
  config["original_lm_head"] = options_.output == MedusaOutput::kShared;
  config["truncated_vocab_size"] = offsets_.target_rows().size(0);
  return config;
}

Status MedusaHeads::write(const std::string& folder) const {
  return write_checkpoint(folder, stored_parameters(parameters_, options_.bf16), config());
}

}  // namespace aerie::train
