#include "draft/heads/head_machine.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "model/layer_runner.h"

namespace aerie {
namespace {

using kernels::Activations;

class HostMachine final : public HeadMachine {
 public:
  static Expected<std::unique_ptr<HeadMachine>> create(const HeadTarget& target,
                                                       const HeadSizes& sizes);

  Expected<HeadRows> allocate(HeadWhich which, int64_t width) override;
  Inputs begin(const HeadPass& pass, KvCache& cache, int program, int64_t features,
               const Embed& embed) override;
  HeadOutputs run(const std::function<void()>& operations) override;

  void linear(const Linear& w, HeadInput x, HeadWhich which, HeadRows y, bool adds) override;
  void norm(const HeadNorm& norm, HeadRows x, HeadWhich which, HeadRows out) override;
  void copy(HeadRows x, HeadWhich which, HeadRows out) override;
  void gather(HeadRows x, HeadRows out) override;
  void activate(kernels::Activation activation, HeadRows x, HeadWhich which, HeadRows out,
                bool adds) override;
  void add(HeadRows x, float factor, HeadWhich which, HeadRows out) override;
  void shift(std::span<const float> by, HeadWhich which, HeadRows x) override;
  void target_norm(HeadRows x, HeadWhich which, HeadRows out) override;
  HeadRows stream() override;
  void layer(const TransformerLayer& layer, const LayerPlan& plan, int plane) override;
  void layer(const TransformerLayer& layer, const LayerPlan& plan, int plane,
             HeadInput input) override;
  void remember(const TransformerLayer& layer, const LayerPlan& plan, int plane,
                HeadInput input) override;
  void output(const Linear& w, HeadInput x, int place) override;
  HeadRows handed() override { return {handed_.data(), sizes_.handed, sizes_.handed}; }

 private:
  HostMachine(const HeadTarget& target, const HeadSizes& sizes);
  Status prepare();
  int64_t count(HeadWhich which) const { return which == HeadWhich::kAll ? rows_ : wanted_; }
  Activations& plain(int64_t rows, int64_t width);
  void write(HeadInput x, int64_t rows, float* out, int64_t stride);
  void give(const TransformerLayer& layer, HeadInput input);

  HeadTarget target_;
  HeadSizes sizes_;
  int64_t hidden_ = 0;  // of the layers
  const kernels::Backend& backend_;
  ThreadPool& pool_;
  std::optional<LayerRunner> runner_;
  Activations input_, plain_;  // of products; of operations that give floats
  std::vector<std::vector<float>> memory_;
  std::vector<float> features_, embedded_, logits_, handed_;
  // The pass under way.
  const HeadPass* pass_ = nullptr;
  KvCache* cache_ = nullptr;
  int64_t rows_ = 0, wanted_ = 0;
};

HostMachine::HostMachine(const HeadTarget& target, const HeadSizes& sizes)
    : target_(target), sizes_(sizes), backend_(*target.backend), pool_(*target.pool) {
  const auto rows = static_cast<size_t>(target.max_rows);
  const auto wanted = static_cast<size_t>(target.max_logits);
  features_.resize(rows * static_cast<size_t>(sizes.features));
  embedded_.resize(rows * static_cast<size_t>(sizes.embedded));
  handed_.resize(wanted * static_cast<size_t>(sizes.handed));
  // Rows with several outputs are those of roots: as many as there are outputs is room enough.
  const size_t outputs = std::max(wanted, static_cast<size_t>(sizes.outputs));
  logits_.resize(outputs * static_cast<size_t>(sizes.vocab));
}

Status HostMachine::prepare() {
  const int64_t rows = std::max(target_.max_rows, target_.max_logits);
  const int64_t widest = std::max({sizes_.widest, sizes_.features, sizes_.handed});
  AERIE_ASSIGN_OR_RETURN(input_, Activations::allocate(rows, widest));
  AERIE_ASSIGN_OR_RETURN(plain_, Activations::allocate(rows, widest));
  if (sizes_.blueprint == nullptr) return {};
  hidden_ = sizes_.blueprint->config.hidden;
  AERIE_ASSIGN_OR_RETURN(
      runner_, LayerRunner::create(*sizes_.blueprint, target_.model_options(), sizes_.widest));
  return {};
}

Expected<std::unique_ptr<HeadMachine>> HostMachine::create(const HeadTarget& target,
                                                           const HeadSizes& sizes) {
  std::unique_ptr<HostMachine> machine(new HostMachine(target, sizes));
  AERIE_RETURN_IF_ERROR(machine->prepare());
  return std::unique_ptr<HeadMachine>(std::move(machine));
}

Expected<HeadRows> HostMachine::allocate(HeadWhich which, int64_t width) {
  const int64_t rows = which == HeadWhich::kAll ? target_.max_rows : target_.max_logits;
  memory_.emplace_back(static_cast<size_t>(rows * width));
  return HeadRows{memory_.back().data(), width, width};
}

HeadMachine::Inputs HostMachine::begin(const HeadPass& pass, KvCache& cache, int /*program*/,
                                       int64_t features, const Embed& embed) {
  pass_ = &pass;
  cache_ = &cache;
  rows_ = pass.batch.size();
  wanted_ = std::ranges::count_if(pass.batch.rows, &BatchRow::wants_logits);
  const auto width = static_cast<size_t>(features);
  float* out = features_.data();
  for (const float* row : pass.features) out = std::copy_n(row, width, out);
  const auto embedded = static_cast<size_t>(sizes_.embedded);
  for (size_t r = 0; r < pass.batch.rows.size() && embedded > 0; ++r) {
    embed(pass.batch.rows[r], embedded_.data() + r * embedded);
  }
  if (runner_) runner_->start(pass.batch);
  return {{features_.data(), features, features},
          {embedded_.data(), sizes_.embedded, sizes_.embedded}};
}

HeadOutputs HostMachine::run(const std::function<void()>& operations) {
  const ThreadPool::Round round(pool_);
  operations();
  HeadOutputs out;
  const auto each = static_cast<size_t>(sizes_.outputs) * static_cast<size_t>(sizes_.vocab);
  out.logits = std::span<const float>(logits_).first(static_cast<size_t>(wanted_) * each);
  out.hidden = std::span<const float>(handed_).first(static_cast<size_t>(wanted_) *
                                                     static_cast<size_t>(sizes_.handed));
  return out;
}

Activations& HostMachine::plain(int64_t rows, int64_t width) {
  plain_.k = width;
  plain_.rows = rows;
  plain_.has_int8 = plain_.has_ordered = false;
  return plain_;
}

// The parts of each row side by side, rows so far apart.
void HostMachine::write(HeadInput x, int64_t rows, float* out, int64_t stride) {
  for (const HeadPart& part : x) {
    const HeadRows to = {out, part.rows.width, stride};
    if (part.norm.weight.empty()) {
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(part.rows.data + r * part.rows.stride, to.width, out + r * stride);
      }
    } else {
      backend_.rms_norm(pool_, part.rows.data, part.rows.stride, part.norm.weight.data(),
                        part.norm.eps, plain(rows, to.width));
      for (int64_t r = 0; r < rows; ++r) std::copy_n(plain_.row(r), to.width, out + r * stride);
    }
    out += to.width;
  }
}

void HostMachine::linear(const Linear& w, HeadInput x, HeadWhich which, HeadRows y, bool adds) {
  const int64_t rows = count(which);
  if (rows == 0) return;
  input_.k = w.weight.k;
  input_.rows = rows;
  input_.has_int8 = backend_.wants_int8(w.weight.dtype);
  input_.has_ordered = !input_.has_int8;
  write(x, rows, input_.row(0), w.weight.k);
  backend_.quantize(pool_, input_);
  kernels::MatmulTarget target = w.to(y.data, adds);
  target.stride = y.stride;
  backend_.matmul(pool_, input_, {&target, 1});
}

void HostMachine::norm(const HeadNorm& norm, HeadRows x, HeadWhich which, HeadRows out) {
  if (count(which) > 0) write({{x, norm}}, count(which), out.data, out.stride);
}

void HostMachine::copy(HeadRows x, HeadWhich which, HeadRows out) {
  write({{x}}, count(which), out.data, out.stride);
}

void HostMachine::gather(HeadRows x, HeadRows out) {
  float* to = out.data;
  for (size_t r = 0; r < pass_->batch.rows.size(); ++r) {
    if (!pass_->batch.rows[r].wants_logits) continue;
    std::copy_n(x.data + static_cast<int64_t>(r) * x.stride, x.width, to);
    to += out.stride;
  }
}

void HostMachine::activate(kernels::Activation activation, HeadRows x, HeadWhich which,
                           HeadRows out, bool adds) {
  assert(x.stride == x.width && out.stride == out.width);
  const int64_t rows = count(which);
  if (rows == 0) return;
  const Activations& result = plain(rows, x.width);
  backend_.activate(pool_, activation, x.data, plain_);
  const float* from = result.row(0);
  for (int64_t i = 0; i < rows * x.width; ++i) {
    out.data[i] = (adds ? out.data[i] : 0.0f) + from[i];
  }
}

void HostMachine::add(HeadRows x, float factor, HeadWhich which, HeadRows out) {
  for (int64_t r = 0; r < count(which); ++r) {
    const float* from = x.data + r * x.stride;
    float* to = out.data + r * out.stride;
    for (int64_t i = 0; i < x.width; ++i) to[i] += factor * from[i];
  }
}

void HostMachine::shift(std::span<const float> by, HeadWhich which, HeadRows x) {
  for (int64_t r = 0; r < count(which); ++r) {
    float* to = x.data + r * x.stride;
    for (size_t i = 0; i < by.size(); ++i) to[i] += by[i];
  }
}

void HostMachine::target_norm(HeadRows x, HeadWhich which, HeadRows out) {
  const int64_t rows = count(which);
  if (rows == 0) return;
  const Blueprint& blueprint = *target_.parts.blueprint;
  const Norm& norm = target_.parts.weights->output_norm;
  if (blueprint.norm == NormKind::kRms) {
    return this->norm({norm.weight, blueprint.norm_eps}, x, which, out);
  }
  backend_.layer_norm(pool_, x.data, x.stride, norm.weight.data(), norm.bias.data(),
                      blueprint.norm_eps, plain(rows, x.width));
  for (int64_t r = 0; r < rows; ++r) std::copy_n(plain_.row(r), x.width, out.data + r * out.stride);
}

HeadRows HostMachine::stream() {
  return {runner_->stream(), hidden_, hidden_};
}

// What the layer's queries, keys and values are made of.
void HostMachine::give(const TransformerLayer& layer, HeadInput input) {
  Activations& to = runner_->prepare_input(layer);
  write(input, rows_, to.row(0), to.k);
  backend_.quantize(pool_, to);
}

void HostMachine::layer(const TransformerLayer& layer, const LayerPlan& plan, int plane) {
  runner_->run(layer, plan, *cache_, plane);
}

void HostMachine::layer(const TransformerLayer& layer, const LayerPlan& plan, int plane,
                        HeadInput input) {
  give(layer, input);
  runner_->attend(layer, plan, *cache_, plane);
  runner_->feed_forward(layer);
}

void HostMachine::remember(const TransformerLayer& layer, const LayerPlan& plan, int plane,
                           HeadInput input) {
  give(layer, input);
  runner_->remember(layer, plan, *cache_, plane);
}

void HostMachine::output(const Linear& w, HeadInput x, int place) {
  const int64_t vocab = sizes_.vocab, each = vocab * sizes_.outputs;
  linear(w, x, HeadWhich::kWanted, {logits_.data() + place * vocab, vocab, each}, false);
}

}  // namespace

void HeadMachine::residual_blocks(std::span<const Linear> blocks, HeadRows x, HeadWhich which,
                                  HeadRows scratch) {
  for (const Linear& block : blocks) {
    linear(block, {{x}}, which, scratch);
    activate(kernels::Activation::kSilu, scratch, which, x, true);
  }
}

Expected<std::unique_ptr<HeadMachine>> HeadMachine::create(const HeadTarget& target,
                                                           const HeadSizes& sizes) {
  if (target.device != nullptr) return make_device_machine(target, sizes);
  return HostMachine::create(target, sizes);
}

}  // namespace aerie
