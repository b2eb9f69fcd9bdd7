// Heads on the device of their target: a pass is one graph and one wait, with the levels behind it.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "draft/heads/head_machine.h"
#include "draft/heads/level_inputs.h"
#include "model/device/device_logits.h"
#include "model/device/device_planes.h"
#include "model/device/device_runner.h"
#include "model/device/device_top.h"
#include "model/device/device_weights.h"
#include "model/device/pass/pass_graphs.h"

namespace aerie {
namespace {

constexpr const char* kWork = "a draft head's passes";

class DeviceMachine final : public HeadMachine {
 public:
  DeviceMachine(const HeadTarget& target, const HeadSizes& sizes);
  Status prepare();

  KvCache::Planes cache_planes() const override { return KvCache::Planes::kElsewhere; }
  Status attach(KvCache& cache) override { return planes_.add(cache); }
  int64_t level_bytes(int levels) const override;
  Status allow_levels(int levels, const EmbedLogit& embed) override;
  int64_t found_bytes() const override;
  Status allow_found(std::span<const int32_t> target_ids) override;

  Expected<HeadRows> allocate(HeadWhich which, int64_t width) override;
  Inputs begin(const HeadPass& pass, KvCache& cache, int program, int64_t features,
               const Embed& embed) override;
  HeadOutputs run(const std::function<void()>& operations) override {
    return run_levels(operations, nullptr);
  }
  HeadOutputs run_levels(const std::function<void()>& operations,
                         const std::function<void(const Inputs&)>& of_level) override;

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
  HeadRows handed() override { return {outputs() + top_.width(), sizes_.handed, out_stride()}; }

 private:
  PassInput& input() { return runner_ ? runner_->input() : *input_; }
  const int32_t* count(HeadWhich which) {
    return input().count(which == HeadWhich::kAll ? device::kRowCount : device::kWantedCount);
  }
  int most(HeadWhich which) const {
    const PassSizes& sizes = now_->sizes;
    return which == HeadWhich::kAll ? sizes.rows : sizes.wanted;
  }
  // Of the pass or level that operations are for.
  float* outputs() const { return out_.as<float>() + first_row_ * out_stride(); }
  float* logits() const {
    return all_logits_.as<float>() + first_row_ * sizes_.outputs * sizes_.vocab;
  }
  // What is found in a row's logits, then what it hands on.
  int64_t out_stride() const { return top_.width() + sizes_.handed; }
  // Rows that want logits; those with several outputs are roots, fewer by that.
  int64_t wanted_room() const { return std::max(1, target_.max_logits / sizes_.outputs); }

  Status make(DeviceMemory& memory, int64_t bytes,
              DeviceMemory::Of of = DeviceMemory::Of::kDevice) const;
  Status prepare_outputs();
  const float* vector(std::span<const float> values);
  device::Matrix matrix(const Linear& w);
  const DeviceLayer* known_layer(const TransformerLayer& layer);
  int narrow(HeadInput x, HeadWhich which);
  void copy_rows(HeadRows x, HeadWhich which, const int32_t* from, const HeadNorm& norm,
                 HeadRows out);
  device::MapRows map(HeadRows x, HeadWhich which, HeadRows out);
  void map_rows(const device::MapRows& args);
  void find_top();
  bool fit_levels(const HeadPass& pass) const;
  void place_levels();
  void run_level(size_t level, const std::function<void(const Inputs&)>& of_level);
  void know(int program, const std::function<void()>& operations);
  bool wait(size_t rows);
  HeadOutputs bring_back();
  HeadOutputs failed() const;

  HeadTarget target_;
  HeadSizes sizes_;
  device::Device& device_;
  std::optional<DeviceRunner> runner_;
  std::optional<PassInput> input_;  // of a head without layers
  DevicePlanes planes_;
  DeviceLogits logits_;
  Status status_;
  // In the device's memory by where they are here.
  std::map<const float*, const float*> vectors_;
  std::map<const TransformerLayer*, DeviceLayer> layers_;
  std::set<int> known_;  // programs whose weights are all there
  bool learns_ = false;  // operations are looked at for their weights alone

  std::vector<DeviceMemory> memory_;
  DeviceMemory narrow_;         // bfloat16 [rows]: inputs of products
  DeviceMemory ordered_;        // device::Product
  DeviceMemory all_logits_;     // float [wanted][outputs][vocab]
  DeviceMemory out_, brought_;  // [wanted][out_stride()]
  DeviceTop top_;
  std::vector<float> handed_;
  PassGraphs graphs_;

  LevelInputs level_inputs_;
  DeviceMemory target_table_;   // FoundTokens::Place::table
  std::vector<int32_t> found_;  // FoundTokens::logits
  std::span<const int32_t> target_ids_;
  int most_levels_ = 0;
  int64_t bytes_of_level_ = 0;  // of its input

  // The pass under way.
  PassSizes sizes_of_pass_;
  std::vector<PassLevel> levels_;
  std::vector<int32_t> level_rows_;  // HeadOutputs'
  PassShape shape_;
  KvCache* cache_ = nullptr;
  const WhileFound* while_found_ = nullptr;  // null: nobody is told
  // What operations are for: shape_, or a level of it; and where its outputs begin.
  const PassShape* now_ = &shape_;
  PassShape level_shape_;
  int64_t first_row_ = 0;
};

DeviceMachine::DeviceMachine(const HeadTarget& target, const HeadSizes& sizes)
    : target_(target),
      sizes_(sizes),
      device_(target.device->device),
      planes_(device_),
      logits_(device_),
      graphs_(device_) {}

Status DeviceMachine::make(DeviceMemory& memory, int64_t bytes, DeviceMemory::Of of) const {
  AERIE_ASSIGN_OR_RETURN(memory,
                         DeviceMemory::allocate(device_, static_cast<size_t>(bytes), kWork, of));
  return {};
}

Status DeviceMachine::prepare() {
  const auto extra = static_cast<int>(sizes_.features + sizes_.embedded);
  const auto has_layer_norms = [](const Blueprint* of) {
    return of != nullptr && of->norm != NormKind::kRms;
  };
  if (has_layer_norms(target_.parts.blueprint) || has_layer_norms(sizes_.blueprint)) {
    return not_supported("there is no device code for heads with layer norms");
  }
  if (sizes_.blueprint != nullptr) {
    AERIE_RETURN_IF_ERROR(check_device_code(*sizes_.blueprint));
    ModelOptions options = target_.model_options();
    options.max_taps = 0;
    options.logit_tokens = {0};  // logits are made here
    AERIE_ASSIGN_OR_RETURN(runner_,
                           DeviceRunner::create(*sizes_.blueprint, options, device_, false, extra));
    bytes_of_level_ = input().level_bytes();
  } else {
    PassLimits limits = {target_.max_rows, target_.max_logits, target_.max_positions, 0, 1};
    limits.extra = extra;
    AERIE_ASSIGN_OR_RETURN(input_, PassInput::create(device_, limits, {}));
  }
  const int64_t rows =
      rounded_up(std::max(target_.max_rows, target_.max_logits), device::kManyRows);
  AERIE_RETURN_IF_ERROR(make(narrow_, rows * rounded_up(sizes_.widest, device::kStep) * 2));
  sizes_.blueprint = nullptr;
  AERIE_RETURN_IF_ERROR(
      make(ordered_, device::ordered_bytes(static_cast<int>(rows), sizes_.widest)));
  return prepare_outputs();
}

Status DeviceMachine::prepare_outputs() {
  const int64_t wanted = wanted_room(), logits = wanted * sizes_.outputs;
  AERIE_RETURN_IF_ERROR(make(all_logits_, logits * sizes_.vocab * 4));
  AERIE_RETURN_IF_ERROR(top_.allocate(device_, wanted, sizes_.outputs, sizes_.vocab,
                                      std::min(target_.ranks, kernels::kMostTop)));
  AERIE_RETURN_IF_ERROR(make(out_, wanted * out_stride() * 4));
  AERIE_RETURN_IF_ERROR(make(brought_, wanted * out_stride() * 4, DeviceMemory::Of::kHost));
  handed_.resize(static_cast<size_t>(wanted * sizes_.handed));
  return logits_.allocate(static_cast<int>(logits), sizes_.vocab);
}

Expected<HeadRows> DeviceMachine::allocate(HeadWhich which, int64_t width) {
  const int64_t rows = which == HeadWhich::kAll ? target_.max_rows : wanted_room();
  AERIE_RETURN_IF_ERROR(make(memory_.emplace_back(), rows * width * 4));
  return HeadRows{memory_.back().as<float>(), width, width};
}

HeadMachine::Inputs DeviceMachine::begin(const HeadPass& pass, KvCache& cache, int program,
                                         int64_t features, const Embed& embed) {
  cache_ = &cache;
  PassInput& in = input();
  const auto extra = static_cast<int>(features + sizes_.embedded);
  levels_.clear();
  if (fit_levels(pass)) {
    for (const HeadLevel& level : pass.levels_behind()) {
      levels_.push_back({&level.batch, level.behind});
    }
  }
  const Expected<PassSizes> built = in.build(pass.batch, extra, levels_);
  if (!built.ok()) {
    if (status_.ok()) status_ = built.status();
    return {};
  }
  sizes_of_pass_ = built.value();
  if (sizes_of_pass_.wanted > wanted_room() && status_.ok()) {
    status_ = internal_error("a head's pass wants {} rows' logits, and has room for {}",
                             sizes_of_pass_.wanted, wanted_room());
  }
  const bool tells = target_table_.size() > 0 && sizes_of_pass_.rows <= device::kFewRows &&
                     levels_.size() == pass.level_count;
  while_found_ = tells && pass.while_found ? &pass.while_found : nullptr;
  shape_.levels.clear();
  shape_.sizes = sizes_of_pass_;
  shape_.first_layer = program;
  for (size_t level = 0; level < levels_.size(); ++level) {
    in.select(static_cast<int>(level) + 1);
    shape_.levels.push_back(in.sizes());
  }
  in.select(0);
  for (size_t r = 0; r < pass.batch.rows.size(); ++r) {
    float* row = in.extra(static_cast<int>(r));
    std::copy_n(pass.features[r], features, row);
    if (sizes_.embedded > 0) embed(pass.batch.rows[r], row + features);
    if (sizes_.takes_levels) round_embedding(row + features, sizes_.embedded);
  }
  const HeadRows all = {in.extra(), extra, in.stride()};
  return {all.columns(0, features), all.columns(features, sizes_.embedded)};
}

int64_t DeviceMachine::level_bytes(int levels) const {
  if (!sizes_.takes_levels || !runner_ || top_.width() == 0) return 0;
  return LevelInputs::bytes(sizes_) + levels * bytes_of_level_;
}

Status DeviceMachine::allow_levels(int levels, const EmbedLogit& embed) {
  if (level_bytes(levels) == 0) return HeadMachine::allow_levels(levels, embed);
  AERIE_RETURN_IF_ERROR(input().allow_levels(levels));
  AERIE_RETURN_IF_ERROR(level_inputs_.allocate(device_, sizes_, embed));
  most_levels_ = levels;
  return {};
}

int64_t DeviceMachine::found_bytes() const {
  if (top_.width() == 0 || sizes_.outputs != 1) return 0;
  return int64_t{sizes_.vocab} * target_.config->hidden * 4;
}

Status DeviceMachine::allow_found(std::span<const int32_t> target_ids) {
  if (found_bytes() == 0) return HeadMachine::allow_found(target_ids);
  target_ids_ = target_ids;
  found_.resize(static_cast<size_t>(wanted_room()));
  const auto fill = [&](size_t logit, void* to) {
    const auto token = target_ids.empty() ? static_cast<int32_t>(logit) : target_ids[logit];
    embed_token(*target_.parts.weights, *target_.parts.blueprint, token, static_cast<float*>(to));
  };
  const size_t width = static_cast<size_t>(target_.config->hidden) * sizeof(float);
  AERIE_ASSIGN_OR_RETURN(target_table_,
                         DeviceMemory::filled(device_, static_cast<size_t>(sizes_.vocab), width,
                                              "the target's embeddings of drafted tokens", fill));
  return {};
}

// Whether all of them have room beside the pass, in a graph.
bool DeviceMachine::fit_levels(const HeadPass& pass) const {
  const std::span<const HeadLevel> levels = pass.levels_behind();
  if (levels.empty() || std::ssize(levels) > most_levels_) return false;
  if (pass.batch.size() > device::kFewRows) return false;
  const auto roots =
      static_cast<int>(std::ranges::count_if(pass.batch.rows, &BatchRow::wants_logits));
  const int64_t each = graph_rows(roots, target_.max_logits);
  return each * (1 + std::ssize(levels)) <= wanted_room();
}

// Copies the weights that the program's operations name to the device, once: not while they are
// written down.
void DeviceMachine::know(int program, const std::function<void()>& operations) {
  if (known_.contains(program)) return;
  learns_ = true;
  operations();
  learns_ = false;
  if (status_.ok()) known_.insert(program);
}

HeadOutputs DeviceMachine::run_levels(const std::function<void()>& operations,
                                      const std::function<void(const Inputs&)>& of_level) {
  constexpr int kLevels = -1;  // a program of its own
  if (status_.ok()) know(shape_.first_layer, operations);
  if (status_.ok() && !levels_.empty()) know(kLevels, [&] { of_level(level_inputs_.inputs()); });
  if (!status_.ok()) return failed();
  int id = 0;
  if (runner_) {
    planes_.make_moves(*cache_);
    id = planes_.of(*cache_).id;
  }
  input().send();
  const auto launch = [&] {
    if (runner_) runner_->start(shape_);
    operations();
    find_top();
    for (size_t level = 0; level < levels_.size(); ++level) run_level(level, of_level);
    input().select(0);
    now_ = &shape_;
    first_row_ = 0;
  };
  if (sizes_of_pass_.rows <= device::kFewRows) {
    shape_.round_up(input().limits());
    place_levels();
    graphs_.run(shape_, id, launch);
  } else {
    launch();
  }
  return bring_back();
}

// Where their outputs begin. What is launched for them is for as many rows and chunks each, so that
// there are fewer graphs.
void DeviceMachine::place_levels() {
  level_rows_.clear();
  PassSizes& roots = shape_.sizes;
  for (const PassSizes& level : shape_.levels) roots.chunks = std::max(roots.chunks, level.chunks);
  for (size_t i = 0; i < shape_.levels.size(); ++i) {
    PassSizes& level = shape_.levels[i];
    level.rows = level.tiles = level.wanted = roots.wanted;
    level.chunks = roots.chunks;
    level_rows_.push_back(static_cast<int32_t>(i + 1) * roots.wanted);
  }
}

void DeviceMachine::run_level(size_t level, const std::function<void(const Inputs&)>& of_level) {
  const float* above = outputs();
  input().select(static_cast<int>(level) + 1);
  level_shape_.sizes = shape_.levels[level];
  now_ = &level_shape_;
  first_row_ = level_rows_[level];
  runner_->start(level_shape_);
  level_inputs_.make(count(HeadWhich::kAll), most(HeadWhich::kAll), input().behind(), above,
                     top_.width());
  of_level(level_inputs_.inputs());
  find_top();
}

HeadOutputs DeviceMachine::failed() const {
  HeadOutputs out;
  out.status = status_;
  return out;
}

// For the pass, of so many rows, and nothing that comes behind it.
bool DeviceMachine::wait(size_t rows) {
  if (while_found_ == nullptr) return device_.wait();
  FoundTokens found;
  found.device = {out_.as<float>(), out_stride(), target_table_.as<float>(), sizes_.vocab};
  found.logits = found_.data();
  found.target_ids = target_ids_;
  device_.mark();
  (*while_found_)(found, std::span(level_rows_).first(levels_.size()));
  if (!device_.wait_for_mark()) return false;
  for (size_t row = 0; row < rows; ++row) {
    const float* first = brought_.as<float>() + static_cast<int64_t>(row) * out_stride();
    found_[row] = *reinterpret_cast<const int32_t*>(first);
  }
  return true;
}

HeadOutputs DeviceMachine::bring_back() {
  auto wanted = static_cast<size_t>(sizes_of_pass_.wanted);
  if (!levels_.empty()) {
    wanted = static_cast<size_t>(level_rows_.back() + levels_.back().batch->size());
  }
  device_.copy_out(brought_.as<void>(), out_.as<void>(),
                   wanted * static_cast<size_t>(out_stride()) * sizeof(float));
  logits_.start(all_logits_.as<float>(), wanted * static_cast<size_t>(sizes_.outputs));
  if (!wait(wanted)) {
    status_ = internal_error("{}", device_.error());
    return failed();
  }
  HeadOutputs out;
  if (wanted == 0) return out;
  const auto handed = static_cast<size_t>(sizes_.handed);
  for (size_t row = 0; row < wanted; ++row) {
    const float* from = brought_.as<float>() + static_cast<int64_t>(row) * out_stride();
    std::copy_n(from + top_.width(), handed, handed_.data() + row * handed);
  }
  out.hidden = std::span<const float>(handed_).first(wanted * handed);
  out.source = &logits_;
  out.top = top_.read(brought_.as<float>(), out_stride(), wanted);
  out.level_rows = std::span(level_rows_).first(levels_.size());
  return out;
}

const float* DeviceMachine::vector(std::span<const float> values) {
  if (values.empty()) return nullptr;
  const auto found = vectors_.find(values.data());
  if (found != vectors_.end()) return found->second;
  const auto copied = target_.device->pool.upload(values, "a draft head's weights");
  if (!copied.ok()) {
    status_ = copied.status();
    return nullptr;
  }
  return vectors_.emplace(values.data(), *copied).first->second;
}

device::Matrix DeviceMachine::matrix(const Linear& w) {
  device::Matrix out = device_matrix(w.weight);
  out.bias = vector(w.bias);
  return out;
}

const DeviceLayer* DeviceMachine::known_layer(const TransformerLayer& layer) {
  const auto found = layers_.find(&layer);
  if (found != layers_.end()) return &found->second;
  auto made = device_layer(layer, target_.device->pool);
  if (made.ok()) return &layers_.emplace(&layer, std::move(made).value()).first->second;
  status_ = made.status();
  return nullptr;
}

// Parts of rows side by side as products take them; how far apart rows are.
int DeviceMachine::narrow(HeadInput x, HeadWhich which) {
  int64_t width = 0;
  for (const HeadPart& part : x) width += part.rows.width;
  const int64_t stride = rounded_up(width, device::kStep);
  device::NarrowRows args;
  args.rows = count(which);
  args.most_rows = most(which);
  args.out = narrow_.as<uint16_t>();
  args.out_stride = static_cast<int>(stride);
  int64_t at = 0;
  for (const HeadPart& part : x) {
    at += part.rows.width;
    args.x = part.rows.data;
    args.x_stride = part.rows.stride;
    args.width = static_cast<int>(part.rows.width);
    args.weight = vector(part.norm.weight);
    args.eps = static_cast<float>(part.norm.eps);
    args.zeros = at == width ? static_cast<int>(stride - width) : 0;
    if (!learns_ && args.most_rows > 0) device_.narrow_rows(args);
    args.out += part.rows.width;
  }
  return static_cast<int>(stride);
}

void DeviceMachine::linear(const Linear& w, HeadInput x, HeadWhich which, HeadRows y, bool adds) {
  device::Product p;
  p.w[0] = matrix(w);
  p.x_stride = narrow(x, which);
  p.x = narrow_.as<uint16_t>();
  p.rows = count(which);
  p.most_rows = most(which);
  p.ordered = ordered_.as<void>();
  p.output = adds ? device::Output::kResidual : device::Output::kStore;
  p.y = y.data;
  p.y_stride = static_cast<int>(y.stride);
  if (!learns_) device_.product(p);
}

void DeviceMachine::copy_rows(HeadRows x, HeadWhich which, const int32_t* from,
                              const HeadNorm& norm, HeadRows out) {
  device::CopyRows args;
  args.rows = count(which);
  args.most_rows = most(which);
  args.from = from;
  args.x = x.data;
  args.x_stride = static_cast<int>(x.stride);
  args.width = static_cast<int>(x.width);
  args.weight = vector(norm.weight);
  args.eps = static_cast<float>(norm.eps);
  args.out = out.data;
  args.out_stride = out.stride;
  if (!learns_ && args.most_rows > 0) device_.copy_rows(args);
}

void DeviceMachine::norm(const HeadNorm& norm, HeadRows x, HeadWhich which, HeadRows out) {
  copy_rows(x, which, nullptr, norm, out);
}

void DeviceMachine::copy(HeadRows x, HeadWhich which, HeadRows out) {
  copy_rows(x, which, nullptr, {}, out);
}

void DeviceMachine::gather(HeadRows x, HeadRows out) {
  copy_rows(x, HeadWhich::kWanted, input().pass().wanted, {}, out);
}

device::MapRows DeviceMachine::map(HeadRows x, HeadWhich which, HeadRows out) {
  device::MapRows args;
  args.rows = count(which);
  args.most_rows = most(which);
  args.x = x.data;
  args.x_stride = x.stride;
  args.width = static_cast<int>(x.width);
  args.out = out.data;
  args.out_stride = out.stride;
  return args;
}

void DeviceMachine::map_rows(const device::MapRows& args) {
  if (!learns_ && args.most_rows > 0) device_.map_rows(args);
}

void DeviceMachine::activate(kernels::Activation activation, HeadRows x, HeadWhich which,
                             HeadRows out, bool adds) {
  device::MapRows args = map(x, which, out);
  args.activates = true;
  args.glu = glu_of(activation);
  args.adds = adds;
  map_rows(args);
}

void DeviceMachine::add(HeadRows x, float factor, HeadWhich which, HeadRows out) {
  device::MapRows args = map(x, which, out);
  args.factor = factor;
  args.adds = true;
  map_rows(args);
}

void DeviceMachine::shift(std::span<const float> by, HeadWhich which, HeadRows x) {
  device::MapRows args = map(x, which, x);
  args.bias = vector(by);
  map_rows(args);
}

// A head on a device is of a target with such a norm.
void DeviceMachine::target_norm(HeadRows x, HeadWhich which, HeadRows out) {
  norm({target_.parts.weights->output_norm.weight, target_.parts.blueprint->norm_eps}, x, which,
       out);
}

HeadRows DeviceMachine::stream() {
  const PassInput& in = runner_->input();
  return {in.stream(), in.limits().hidden, in.stream_stride()};
}

void DeviceMachine::layer(const TransformerLayer& layer, const LayerPlan& plan, int plane) {
  const DeviceLayer* known = known_layer(layer);
  if (learns_) return;
  runner_->run_layer(*known, plan, planes_.of(*cache_).planes[static_cast<size_t>(plane)]);
}

void DeviceMachine::layer(const TransformerLayer& layer, const LayerPlan& plan, int plane,
                          HeadInput input) {
  const DeviceLayer* known = known_layer(layer);
  const int stride = narrow(input, HeadWhich::kAll);
  if (learns_) return;
  runner_->run_layer(*known, plan, planes_.of(*cache_).planes[static_cast<size_t>(plane)],
                     {narrow_.as<uint16_t>(), stride});
}

void DeviceMachine::remember(const TransformerLayer& layer, const LayerPlan& plan, int plane,
                             HeadInput input) {
  const DeviceLayer* known = known_layer(layer);
  const int stride = narrow(input, HeadWhich::kAll);
  if (learns_) return;
  runner_->remember(*known, plan, planes_.of(*cache_).planes[static_cast<size_t>(plane)],
                    {narrow_.as<uint16_t>(), stride});
}

void DeviceMachine::output(const Linear& w, HeadInput x, int place) {
  const int64_t vocab = sizes_.vocab, each = vocab * sizes_.outputs;
  if (!learns_ && now_->sizes.wanted == 0) return;
  linear(w, x, HeadWhich::kWanted, {logits() + place * vocab, vocab, each}, false);
}

void DeviceMachine::find_top() {
  top_.find(count(HeadWhich::kWanted), most(HeadWhich::kWanted), logits(), outputs(), out_stride());
}

}  // namespace

Expected<std::unique_ptr<HeadMachine>> make_device_machine(const HeadTarget& target,
                                                           const HeadSizes& sizes) {
  auto machine = std::make_unique<DeviceMachine>(target, sizes);
  AERIE_RETURN_IF_ERROR(machine->prepare());
  return std::unique_ptr<HeadMachine>(std::move(machine));
}

}  // namespace aerie
