#include "model/device/device_transformer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "model/device/device_buffers.h"
#include "model/device/device_logits.h"
#include "model/device/device_planes.h"
#include "model/device/device_runner.h"
#include "model/device/device_weights.h"
#include "model/device/pass/begun_pass.h"
#include "model/device/pass/pass_graphs.h"

namespace aerie {
namespace {

class DeviceTransformer final : public Model {
 public:
  DeviceTransformer(const ModelFile& file, Blueprint blueprint, DeviceWeights weights,
                    DeviceRunner runner, const ModelOptions& options, device::Device& device)
      : file_(file),
        blueprint_(std::move(blueprint)),
        weights_(std::move(weights)),
        runner_(std::move(runner)),
        options_(options),
        device_(device),
        planes_(device),
        graphs_(device),
        logits_(device) {}

  Status allocate();

  const ModelConfig& config() const override { return blueprint_.config; }
  // On the processor, for draft heads that it computes: loaded when the first one asks.
  ModelParts parts() const override;
  DeviceParts device_parts() const override { return {&device_, {&blueprint_, &weights_.host}}; }
  int64_t weight_bytes() const override { return weights_.pool.bytes(); }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override;
  bool begin(const ForwardBatch& batch, KvCache& cache, const FoundTokens& found,
             std::span<const int32_t> rows) override;
  // The host looks up a token's inputs of layers, and what is added for its position.
  bool can_begin() const override {
    return blueprint_.per_layer_width == 0 && !blueprint_.learned_positions;
  }
  KvCache::Planes cache_planes() const override { return KvCache::Planes::kElsewhere; }
  Status attach(KvCache& cache, std::span<const int32_t>) override { return planes_.add(cache); }
  void detach(KvCache& cache) override {
    if (begun_.take()) device_.wait();
    planes_.remove(cache);
    graphs_.clear();  // they name its planes
  }

 private:
  void embed(const ForwardBatch& batch);
  void embed_found();
  void embed_per_layer(const ForwardBatch& batch);
  PassShape shape_of(const ForwardBatch& batch, const PassSizes& sizes) const;
  Expected<PassSizes> build(const ForwardBatch& batch, const KvCache& cache);
  bool reads_experts(const ForwardBatch& batch) const;
  void bring_best();
  void read_best(ForwardOutputs& out);
  void launch(const ForwardBatch& batch, KvCache& cache, const FoundTokens::Place& found);
  size_t state_floats() const;
  size_t tap_floats(const ForwardBatch& batch) const;
  void bring_back(const ForwardBatch& batch);
  void read(const ForwardBatch& batch, ForwardOutputs& out);

  const ModelFile& file_;
  Blueprint blueprint_;
  DeviceWeights weights_;
  mutable std::optional<TransformerWeights> ends_;
  DeviceRunner runner_;
  ModelOptions options_;
  device::Device& device_;
  DevicePlanes planes_;
  PassGraphs graphs_;
  DeviceLogits logits_;
  // Of the pass under way: how much there is of it, what is launched for it, and the planes of
  // states of the layers that it runs.
  PassSizes sizes_;
  PassShape shape_;
  std::vector<int> state_planes_;
  BegunPass begun_;
  DeviceMemory states_, taps_, best_parts_;  // of the host
  DeviceMemory expert_reads_;                // the same; of models with experts alone
  std::vector<BestToken> best_;
  std::vector<float> position_;  // of a row; of models with learned positions alone
};

Status DeviceTransformer::allocate() {
  const DeviceSizes& sizes = runner_.sizes();
  const auto hidden = static_cast<size_t>(config().hidden) * sizeof(float);
  const auto host = [&](DeviceMemory& memory, size_t bytes) -> Status {
    AERIE_ASSIGN_OR_RETURN(memory, DeviceMemory::allocate(device_, bytes, "what passes give",
                                                          DeviceMemory::Of::kHost));
    return {};
  };
  const auto wanted = static_cast<size_t>(options_.max_logits);
  AERIE_RETURN_IF_ERROR(logits_.allocate(options_.max_logits, sizes.logit_width));
  const auto found = static_cast<size_t>(std::max<int64_t>(2, runner_.top().width()));
  AERIE_RETURN_IF_ERROR(host(best_parts_, found * wanted * sizeof(float)));
  best_.reserve(wanted);
  begun_.reserve(std::min(device::kFewRows, options_.max_rows));
  if (blueprint_.learned_positions) position_.resize(static_cast<size_t>(config().hidden));
  state_planes_.reserve(static_cast<size_t>(config().layers));
  AERIE_RETURN_IF_ERROR(host(states_, wanted * hidden));
  if (has_experts(blueprint_)) AERIE_RETURN_IF_ERROR(host(expert_reads_, sizeof(int32_t)));
  return host(taps_, static_cast<size_t>(options_.max_rows) *
                         static_cast<size_t>(options_.max_taps) * hidden);
}

ModelParts DeviceTransformer::parts() const {
  if (!ends_) {
    auto loaded = TransformerWeights::load_ends(file_, blueprint_, options_);
    if (!loaded.ok()) {
      log(LogLevel::kError, loaded.status().with_context(file_.name()).message());
      return {};
    }
    ends_ = std::move(loaded).value();
  }
  return {&blueprint_, &*ends_};
}

void DeviceTransformer::embed(const ForwardBatch& batch) {
  const int hidden = config().hidden;
  PassInput& input = runner_.input();
  if (batch.first_layer > 0) {
    for (int r = 0; r < batch.size(); ++r) {
      std::copy_n(batch.hidden.data() + static_cast<int64_t>(r) * hidden, hidden, input.row(r));
    }
    return;
  }
  for (int r = 0; r < batch.size(); ++r) {
    const BatchRow& row = batch.rows[static_cast<size_t>(r)];
    if (row.token >= 0) embed_row(weights_.host, blueprint_, row, position_, input.row(r));
  }
}

// What per_layer_floats() counts.
void DeviceTransformer::embed_per_layer(const ForwardBatch& batch) {
  const int all = per_layer_floats(blueprint_, false);
  if (all == 0) return;
  const TensorView& table = weights_.host.per_layer_embedding.view;
  // As many values as many embeddings.
  options_.pool->parallel_for(batch.size(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const BatchRow& row = batch.rows[static_cast<size_t>(r)];
      float* x = runner_.input().extra(static_cast<int>(r));
      dequantize(table.dtype, table.row(row.token), all, x);
      if (batch.first_layer > 0) embed_token(weights_.host, blueprint_, row.token, x + all);
    }
  });
}

// The stream of rows whose tokens the device has found.
void DeviceTransformer::embed_found() {
  const PassInput& input = runner_.input();
  device::NextRows args;
  args.rows = input.count(device::kRowCount);
  args.most_rows = shape_.sizes.rows;
  args.behind = input.found();
  args.found = args.handed = shape_.found.found;
  args.found_stride = shape_.found.stride;
  args.wide_table = shape_.found.table;
  args.tokens = shape_.found.tokens;
  args.width = config().hidden;
  args.out = input.stream();
  args.out_stride = input.stream_stride();
  device_.next_rows(args);
}

PassShape DeviceTransformer::shape_of(const ForwardBatch& batch, const PassSizes& sizes) const {
  PassShape shape;
  shape.sizes = sizes;
  shape.first_layer = batch.first_layer;
  shape.end_layer = batch.end_of(config().layers);
  shape.taps = batch.tap_layers;
  shape.skipped = batch.skipped_layers;
  return shape;
}

// What was found in the logits of the rows that want them.
void DeviceTransformer::bring_best() {
  const DeviceBuffers& buffers = runner_.buffers();
  auto* found = best_parts_.as<float>();
  const auto wanted = static_cast<size_t>(sizes_.wanted);
  const auto launched = static_cast<size_t>(shape_.sizes.wanted);
  const auto width = static_cast<size_t>(runner_.top().width());
  if (width > 0) {
    return device_.copy_out(found, buffers.top.as<float>(), wanted * width * sizeof(float));
  }
  if (wanted > 0) device_.copy_out(found, buffers.best.as<float>(), 2 * launched * sizeof(float));
}

void DeviceTransformer::read_best(ForwardOutputs& out) {
  const auto wanted = static_cast<size_t>(sizes_.wanted);
  const auto launched = static_cast<size_t>(shape_.sizes.wanted);
  const auto* found = best_parts_.as<float>();
  best_.clear();
  if (const int64_t width = runner_.top().width(); width > 0) {
    out.top = runner_.top().read(found, width, wanted);
    for (size_t i = 0; i < wanted; ++i) {
      const size_t first = i * static_cast<size_t>(out.top.k);
      const float logit = out.top.logits[first];
      best_.push_back({std::isinf(logit) ? -1 : out.top.ids[first], logit});
    }
  } else {
    const auto* ids = best_parts_.as<int32_t>() + launched;  // behind as many values
    for (size_t i = 0; i < wanted; ++i) best_.push_back({ids[i], found[i]});
  }
}

// Whether a layer that the batch runs has experts.
bool DeviceTransformer::reads_experts(const ForwardBatch& batch) const {
  for (int i = batch.first_layer; i < batch.end_of(config().layers); ++i) {
    if (!blueprint_.layers[static_cast<size_t>(i)].experts) continue;
    if (!std::ranges::binary_search(batch.skipped_layers, i)) return true;
  }
  return false;
}

// Floats of what a pass gives of this batch besides.
size_t DeviceTransformer::state_floats() const {
  return static_cast<size_t>(sizes_.stated) * static_cast<size_t>(config().hidden);
}
size_t DeviceTransformer::tap_floats(const ForwardBatch& batch) const {
  return static_cast<size_t>(sizes_.tapped) * batch.tap_layers.size() *
         static_cast<size_t>(config().hidden);
}

void DeviceTransformer::bring_back(const ForwardBatch& batch) {
  const DeviceBuffers& buffers = runner_.buffers();
  bring_best();
  device_.copy_out(states_.as<void>(), buffers.states.as<void>(), state_floats() * sizeof(float));
  device_.copy_out(taps_.as<void>(), buffers.taps.as<void>(), tap_floats(batch) * sizeof(float));
  if (reads_experts(batch)) {
    device_.copy_out(expert_reads_.as<void>(), runner_.experts().reads(), expert_reads_.size());
  }
  logits_.start(buffers.logits.as<float>(), static_cast<size_t>(sizes_.wanted));
}

// Waits for the pass.
void DeviceTransformer::read(const ForwardBatch& batch, ForwardOutputs& out) {
  if (!device_.wait()) {
    out.status = internal_error("{}", device_.error());
    return;
  }
  const auto hidden = static_cast<size_t>(config().hidden);
  read_best(out);
  out.vocab = runner_.sizes().logit_width;
  out.state_width = static_cast<int>(hidden);
  out.tap_width = static_cast<int>(batch.tap_layers.size() * hidden);
  if (reads_experts(batch)) out.experts = *expert_reads_.as<int32_t>();
  out.source = &logits_;
  out.best = best_;
  out.states = {states_.as<float>(), state_floats()};
  out.taps = {taps_.as<float>(), tap_floats(batch)};
}

// What the device is told of the pass.
Expected<PassSizes> DeviceTransformer::build(const ForwardBatch& batch, const KvCache& cache) {
  Expected<PassSizes> built =
      runner_.input().build(batch, per_layer_floats(blueprint_, batch.first_layer > 0));
  state_planes_.clear();
  if (!built.ok() || cache.states() == nullptr) return built;
  int of_cache = cache.creation().here + batch.first_layer - weights_.first_layer;
  for (int i = batch.first_layer; i < batch.end_of(config().layers); ++i) {
    if (std::ranges::binary_search(batch.skipped_layers, i)) continue;
    if (config().is_linear(i)) state_planes_.push_back(cache.state_plane(of_cache));
    ++of_cache;
  }
  if (state_planes_.empty()) return built;
  return runner_.input().build_states(batch, cache, state_planes_);
}

// Of the pass that was built.
void DeviceTransformer::launch(const ForwardBatch& batch, KvCache& cache,
                               const FoundTokens::Place& found) {
  embed(batch);
  embed_per_layer(batch);
  planes_.make_moves(cache);
  runner_.input().send();
  const DevicePlanes::Of& planes = planes_.of(cache);
  shape_ = shape_of(batch, sizes_);
  shape_.found = found;
  const auto run = [&] {
    if (found.table != nullptr) embed_found();
    runner_.run(weights_, shape_, planes);
  };
  if (sizes_.rows <= device::kFewRows) {
    shape_.round_up(runner_.input().limits());
    graphs_.run(shape_, planes.id, run);
  } else {
    run();
  }
  if (!state_planes_.empty()) runner_.input().advance_states(cache, state_planes_);
  bring_back(batch);
}

ForwardOutputs DeviceTransformer::forward(const ForwardBatch& batch, KvCache& cache) {
  ForwardOutputs out;
  const bool is_begun = begun_.is(batch, cache);
  if (begun_.take()) {
    if (is_begun) {
      read(batch, out);
      return out;
    }
    // What it reads of the host is about to be another pass's.
    if (!device_.wait()) {
      out.status = internal_error("{}", device_.error());
      return out;
    }
  }
  const Expected<PassSizes> built = build(batch, cache);
  if (!built.ok()) {
    out.status = built.status();
    return out;
  }
  sizes_ = built.value();
  launch(batch, cache, {});
  read(batch, out);
  return out;
}

// States that it brings forward come to what was committed, which another pass goes on from.
bool DeviceTransformer::begin(const ForwardBatch& batch, KvCache& cache, const FoundTokens& found,
                              std::span<const int32_t> rows) {
  if (batch.size() > device::kFewRows || !can_begin()) return false;
  if (begun_.take() && !device_.wait()) return false;
  const Expected<PassSizes> built = build(batch, cache);
  if (!built.ok()) return false;
  sizes_ = built.value();
  runner_.input().set_found(rows);
  begun_.set(batch, cache, found, rows);
  launch(batch, cache, found.device);
  return true;
}

}  // namespace

Expected<std::unique_ptr<Model>> load_device_transformer(const ModelFile& file, Blueprint blueprint,
                                                         const ModelOptions& options,
                                                         device::Device& device) {
  AERIE_RETURN_IF_ERROR(check_device_code(blueprint));
  AERIE_ASSIGN_OR_RETURN(DeviceWeights weights,
                         DeviceWeights::load(file, blueprint, options, device));
  AERIE_ASSIGN_OR_RETURN(DeviceRunner runner, DeviceRunner::create(blueprint, options, device));
  auto model = std::make_unique<DeviceTransformer>(file, std::move(blueprint), std::move(weights),
                                                   std::move(runner), options, device);
  AERIE_RETURN_IF_ERROR(model->allocate());
  return std::unique_ptr<Model>(std::move(model));
}

int64_t device_working_bytes(const Blueprint& blueprint, const ModelOptions& options) {
  return DeviceSizes(blueprint, options).bytes(blueprint, options);
}

}  // namespace aerie
