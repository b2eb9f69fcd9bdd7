// Medusa's heads (Cai et al. 2024, 2401.10774): each looks at the target's hidden state alone, the
// i-th drafts the token i + 1 behind the root.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/errors.h"
#include "draft/heads/feature_network.h"
#include "draft/heads/head_machine.h"
#include "draft/heads/heads.h"

namespace aerie {

extern const Method kMedusaMethod;

namespace {

constexpr int kMostMedusaBlocks = 64;

struct MedusaWeights {
  std::vector<std::vector<Linear>> blocks;  // [head][block]
  std::vector<OutputHead> outputs;          // of each head, or one for all
};

class Medusa final : public MachineHead {
 public:
  static Expected<std::unique_ptr<FeatureHead>> create(MedusaWeights weights,
                                                       const HeadTarget& target);

  std::span<const int32_t> tap_layers() const override { return taps_; }
  int feature_width() const override { return static_cast<int>(width_); }
  int hidden() const override { return 0; }
  int vocab() const override { return weights_.outputs[0].vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.outputs[0].target_ids(); }
  const ModelConfig& cache_config() const override { return no_cache_; }
  int outputs_of_root() const override { return static_cast<int>(weights_.blocks.size()); }
  int max_depth() const override { return outputs_of_root(); }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  Medusa(std::unique_ptr<HeadMachine> machine, MedusaWeights weights, const HeadTarget& target)
      : MachineHead(std::move(machine)),
        weights_(std::move(weights)),
        width_(target.config->hidden),
        taps_({target.config->layers}) {}
  void compute();

  MedusaWeights weights_;
  int64_t width_;
  std::array<int32_t, 1> taps_;
  ModelConfig no_cache_;
  HeadRows features_, normed_, x_, scratch_;
  HeadMachine::Inputs in_;  // of the pass under way
};

Expected<std::unique_ptr<FeatureHead>> Medusa::create(MedusaWeights weights,
                                                      const HeadTarget& target) {
  HeadSizes sizes;
  sizes.features = sizes.widest = target.config->hidden;
  sizes.vocab = weights.outputs[0].vocab();
  sizes.outputs = static_cast<int>(weights.blocks.size());
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadMachine> machine, HeadMachine::create(target, sizes));
  std::unique_ptr<Medusa> head(new Medusa(std::move(machine), std::move(weights), target));
  for (HeadRows* rows : {&head->features_, &head->normed_, &head->x_, &head->scratch_}) {
    AERIE_ASSIGN_OR_RETURN(*rows, head->machine().allocate(HeadWhich::kWanted, head->width_));
  }
  return std::unique_ptr<FeatureHead>(std::move(head));
}

void Medusa::compute() {
  machine().gather(in_.features, features_);
  machine().target_norm(features_, HeadWhich::kWanted, normed_);
  for (size_t i = 0; i < weights_.blocks.size(); ++i) {
    machine().copy(normed_, HeadWhich::kWanted, x_);
    machine().residual_blocks(weights_.blocks[i], x_, HeadWhich::kWanted, scratch_);
    const OutputHead& output = weights_.outputs[weights_.outputs.size() > 1 ? i : 0];
    machine().output(output.linear(), {{x_}}, static_cast<int>(i));
  }
}

HeadOutputs Medusa::forward(const HeadPass& pass, KvCache& cache) {
  in_ = machine().begin(pass, cache, 0, width_, nullptr);
  return machine().run([this] { compute(); });
}

// What a file calls its tensors.
class MedusaNames {
 public:
  // Nothing is found: kNotFound.
  static Expected<MedusaNames> find(const HeadFile& file);

  const std::string& prefix() const { return prefix_; }
  bool is_vllm() const { return is_vllm_; }
  std::string block(int head, int block) const {
    return is_vllm_ ? fmt::format("{}blocks.{}.layers.{}", prefix_, head, block)
                    : fmt::format("{}{}.{}.linear", prefix_, head, block);
  }
  std::string output(int head, int blocks) const {
    return is_vllm_ ? fmt::format("{}lm_heads.{}.weight", prefix_, head)
                    : fmt::format("{}{}.{}.weight", prefix_, head, blocks);
  }
  std::string token_map() const { return prefix_ + "token_map"; }

 private:
  std::string prefix_;
  bool is_vllm_ = false;
};

Expected<MedusaNames> MedusaNames::find(const HeadFile& file) {
  constexpr std::string_view kOwn = "0.0.linear.weight", kVllm = "blocks.0.layers.0.weight";
  MedusaNames names;
  for (const TensorInfo& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    for (const std::string_view first : {kOwn, kVllm}) {
      if (!name.ends_with(first)) continue;
      const std::string_view before = name.substr(0, name.size() - first.size());
      if (!before.empty() && !before.ends_with('.')) continue;
      names.prefix_ = before;
      names.is_vllm_ = first == kVllm;
      return names;
    }
  }
  return not_found("{}: has no Medusa heads: neither {} nor {}, with whatever prefix", file.name(),
                   kOwn, kVllm);
}

class MedusaLoader {
 public:
  MedusaLoader(HeadFile& file, const HeadTarget& target, const HeadSettings& options,
               const ModelOptions& model, MedusaNames names)
      : file_(file),
        target_(target),
        options_(options),
        names_(std::move(names)),
        loader_(file, model) {}

  Expected<MedusaWeights> load();

 private:
  Status count();
  Status check_config() const;
  Expected<std::vector<int64_t>> token_map();
  Expected<OutputHead> load_output(int head, std::span<const int64_t> token_map);
  Status check_used();
  template <typename... Args>
  Status bad(fmt::format_string<Args...> what, Args&&... args) const {
    return invalid_data("{}: {}", file_.name(), fmt::format(what, std::forward<Args>(args)...));
  }
  bool has(const std::string& name) const { return loader_.has(name); }
  int used(int heads) const { return options_.depth > 0 ? std::min(options_.depth, heads) : heads; }

  HeadFile& file_;
  const HeadTarget& target_;
  const HeadSettings& options_;
  MedusaNames names_;
  WeightLoader loader_;
  int heads_ = 0, blocks_ = 0, outputs_ = 0;
};

Status MedusaLoader::count() {
  while (blocks_ < kMostMedusaBlocks && has(names_.block(0, blocks_) + ".weight")) ++blocks_;
  while (heads_ <= kMostHeadDepth && has(names_.block(heads_, 0) + ".weight")) ++heads_;
  if (heads_ > kMostHeadDepth) return bad("has more than {} heads", kMostHeadDepth);
  while (outputs_ < heads_ && has(names_.output(outputs_, blocks_))) ++outputs_;
  const bool shared = names_.is_vllm() && outputs_ == 1;
  if (outputs_ != 0 && outputs_ != heads_ && !shared) {
    return bad("has {} heads and {} output matrices; '{}' is missing", heads_, outputs_,
               names_.output(outputs_, blocks_));
  }
  return {};
}

// Published configurations say too few heads.
Status MedusaLoader::check_config() const {
  const JsonObject config = file_.config_object();
  const bool vllm = names_.is_vllm();
  const std::pair<std::string_view, int> counts[] = {
      {vllm ? "num_heads" : "medusa_num_heads", heads_},
      {vllm ? "num_hidden_layers" : "medusa_num_layers", blocks_}};
  for (const auto& [key, found] : counts) {
    AERIE_ASSIGN_OR_RETURN(const int64_t said, config.integer(key, found));
    if (said > found) return bad("{} is {}, and there are {}", key, said, found);
  }
  return {};
}

Expected<std::vector<int64_t>> MedusaLoader::token_map() {
  std::vector<int64_t> tokens;
  const JsonObject config = file_.config_object();
  const int64_t vocab = target_.config->vocab;
  AERIE_ASSIGN_OR_RETURN(const int64_t said, config.integer("truncated_vocab_size", vocab));
  if (has(names_.token_map())) {
    AERIE_ASSIGN_OR_RETURN(tokens, file_.integers(names_.token_map()));
    loader_.ignore(names_.token_map());
  }
  const auto length = tokens.empty() ? vocab : static_cast<int64_t>(tokens.size());
  if (said != length && config.has("truncated_vocab_size")) {
    return bad("truncated_vocab_size is {}, and token_map has {} tokens", said, tokens.size());
  }
  return tokens;
}

Expected<OutputHead> MedusaLoader::load_output(int head, std::span<const int64_t> token_map) {
  const std::string name = names_.output(head, blocks_);
  const int64_t width = target_.config->hidden;
  if (!token_map.empty() && has(name)) {
    return OutputHead::load_mapped(loader_, file_, name, width, token_map, target_, options_);
  }
  return OutputHead::load(loader_, file_, name, width, target_, options_);
}

// Beside heads that have a prefix there is a model.
Status MedusaLoader::check_used() {
  for (int i = used(heads_); i < heads_; ++i) {
    for (int j = 0; j < blocks_; ++j) {
      loader_.ignore(names_.block(i, j) + ".weight");
      loader_.ignore(names_.block(i, j) + ".bias");
    }
    loader_.ignore(names_.output(i, blocks_));
  }
  for (const TensorInfo& tensor : file_.tensors()) {
    if (!tensor.name.starts_with(names_.prefix())) loader_.ignore(std::string(tensor.name));
  }
  return loader_.check_all_used("Medusa");
}

Expected<MedusaWeights> MedusaLoader::load() {
  AERIE_RETURN_IF_ERROR(count());
  AERIE_RETURN_IF_ERROR(check_config());
  const int64_t width = target_.config->hidden;
  const TensorInfo* first = file_.find_tensor(names_.block(0, 0) + ".weight");
  AERIE_RETURN_IF_ERROR(
      require_equal(file_, "its hidden size", first->shape[0], "the target's", width));
  MedusaWeights weights;
  const int heads = used(heads_);
  for (int i = 0; i < heads; ++i) {
    std::vector<Linear>& blocks = weights.blocks.emplace_back();
    for (int j = 0; j < blocks_; ++j) {
      AERIE_ASSIGN_OR_RETURN(Linear block, load_linear(loader_, names_.block(i, j), width, width));
      blocks.push_back(std::move(block));
    }
  }
  AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens, token_map());
  for (int i = 0; i < std::max(1, used(outputs_)); ++i) {
    AERIE_ASSIGN_OR_RETURN(OutputHead output, load_output(i, tokens));
    if (i > 0) AERIE_RETURN_IF_ERROR(output.require_same(weights.outputs[0], file_));
    weights.outputs.push_back(std::move(output));
  }
  AERIE_RETURN_IF_ERROR(check_used());
  return weights;
}

// x = the target's hidden state after its final norm, then blocks x + silu(w x + bias), then the
// head's own output matrix, or one that all share, or the target's.
//
// Reads Medusa's own files ("{head}.{block}.linear.weight", "{head}.{blocks}.weight"), a model that
// holds such heads under a prefix, whose other tensors are passed over, and vLLM's names
// ("blocks.{head}.layers.{block}", "lm_heads.{head}", "token_map"). How many heads there are is
// counted in the tensors. kInvalidArgument, naming what differs, for heads of another model;
// kInvalidData for tensors that do not fit together; kUnsupported for one that has no place.
Expected<std::unique_ptr<FeatureHead>> load_medusa(HeadFile& file, const HeadTarget& target,
                                                   const HeadSettings& options) {
  AERIE_ASSIGN_OR_RETURN(MedusaNames names, MedusaNames::find(file));
  const ModelOptions model = target.model_options();
  AERIE_ASSIGN_OR_RETURN(MedusaWeights weights,
                         MedusaLoader(file, target, options, model, std::move(names)).load());
  return Medusa::create(std::move(weights), target);
}

}  // namespace

constinit const Method kMedusaMethod = head_method("medusa", "Medusa's heads", load_medusa);

}  // namespace aerie
