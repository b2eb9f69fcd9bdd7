#include "draft/network/layer_skip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "draft/draft_host.h"
#include "draft/option_keys.h"

namespace aerie {

extern const Method kLayerSkipMethod;

namespace {

// The target without some of its layers.
class ThinModel final : public Model {
 public:
  ThinModel(Model& target, std::vector<int32_t> skipped)
      : target_(target), config_(target.config().without(skipped)), skipped_(std::move(skipped)) {}

  ModelConfig cache_config() const override { return target_.cache_config().without(skipped_); }
  KvCache::Planes cache_planes() const override { return target_.cache_planes(); }
  int layers_here() const override {
    const int here = target_.layers_here();
    return here - static_cast<int>(std::ranges::lower_bound(skipped_, here) - skipped_.begin());
  }
  Status attach(KvCache& cache, std::span<const int32_t> /*skipped*/) override {
    return target_.attach(cache, skipped_);
  }
  void detach(KvCache& cache) override { target_.detach(cache); }

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override { return 0; }  // they are the target's
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    batch_ = batch;
    batch_.skipped_layers = skipped_;
    return target_.forward(batch_, cache);
  }

 private:
  Model& target_;
  ModelConfig config_;
  std::vector<int32_t> skipped_;
  ForwardBatch batch_;
};

}  // namespace

Expected<std::vector<int32_t>> parse_layers(std::string_view text, int layers, bool may_be_all) {
  const auto fail = [&](const std::string& what) {
    return invalid_argument("layers '{}': {}; give numbers and ranges such as 8-12+14", text, what);
  };
  std::vector<int32_t> listed;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int& value) {
    const auto [stop, error] = std::from_chars(at, end, value);
    const bool good = error == std::errc() && stop != at && *at != '-';
    at = stop;
    return good;
  };
  for (;;) {
    int first = 0;
    if (!number(first)) return fail("a number is missing");
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      if (at == end || !number(last)) return fail("a number is missing");
    }
    if (last < first) return fail(fmt::format("{} comes after {}", first, last));
    if (last >= layers) return fail(fmt::format("the model has layers 0 to {}", layers - 1));
    for (int layer = first; layer <= last; ++layer) {
      if (std::ranges::find(listed, layer) == listed.end()) listed.push_back(layer);
    }
    if (at == end) break;
    if (*at++ != '+' || at == end) return fail("a number is missing");
  }
  if (!may_be_all && static_cast<int>(listed.size()) >= layers) return fail("none would be left");
  std::ranges::sort(listed);
  return listed;
}

std::vector<int32_t> evenly_skipped_layers(int layers, double fraction) {
  const int candidates = std::max(0, layers - 2);
  const int count = std::min(candidates, static_cast<int>(std::lround(fraction * layers)));
  std::vector<int32_t> skipped;
  skipped.reserve(static_cast<size_t>(count));
  // The middle of each of `count` equal parts.
  for (int i = 0; i < count; ++i) skipped.push_back(1 + (2 * i + 1) * candidates / (2 * count));
  return skipped;
}

Expected<std::unique_ptr<Drafter>> make_layer_skip_drafter(Model& target,
                                                           std::vector<int32_t> skipped,
                                                           const DraftModelOptions& options) {
  const int layers = target.config().layers;
  int before = -1;
  for (const int32_t layer : skipped) {
    if (layer <= before || layer >= layers || static_cast<int>(skipped.size()) >= layers) {
      return invalid_argument("layer_skip drafter: layer {} cannot be left out of {}", layer,
                              layers);
    }
    if (target.config().is_read(layer)) {
      return invalid_argument(
          "layer_skip drafter: layer {} cannot be left out: others read its keys and values",
          layer);
    }
    before = layer;
  }
  // The least that draft models share a pass with.
  if (constexpr int kLeast = 8; options.max_rows < kLeast) {
    return invalid_argument(
        "layer_skip drafter: the target takes passes of {} rows, and it needs {}: read prompts in "
        "larger parts",
        options.max_rows, kLeast);
  }
  DraftModelOptions named = options;
  named.method = kLayerSkipMethod.name;
  return make_draft_model_drafter(std::make_unique<ThinModel>(target, std::move(skipped)), named);
}

namespace {

constexpr MethodKey kSkipLayers = {
    "skip_layers",
    MethodKey::Kind::kText,
    0,
    0,
    0,
    false,
    "layers to leave out when drafting, counted from 0, such as 8-12+14"};
constexpr MethodKey kSkipFraction = {"skip_fraction",
                                     MethodKey::Kind::kFraction,
                                     0,
                                     0.95,
                                     0.2,
                                     false,
                                     "how many of them, evenly, unless skip_layers says which"};
constexpr std::array kLayerSkipOptions = {tokens_key(&NetworkDrafterOptions::num_tokens)};
constexpr auto kLayerSkipKeys =
    joined(std::array{kSkipLayers, kSkipFraction}, keys_of(kLayerSkipOptions));

Expected<std::unique_ptr<Drafter>> make_layer_skip(const MethodConfig& config, DraftHost& host) {
  const DraftTarget& target = host.target();
  const int layers = target.model->config().layers;
  std::vector<int32_t> skipped = evenly_skipped_layers(layers, config.number(kSkipFraction.name));
  std::erase_if(skipped, [&](int32_t layer) { return target.model->config().is_read(layer); });
  if (const std::string& list = config.text(kSkipLayers.name); !list.empty()) {
    AERIE_ASSIGN_OR_RETURN(skipped, parse_layers(list, layers));
  }
  DraftModelOptions draft;
  read_options<NetworkDrafterOptions>(config, kLayerSkipOptions, draft);
  draft.vocab = target.vocab;
  draft.max_positions = target.max_positions;
  draft.max_rows = target.model_rows;
  draft.max_sequences = target.max_sequences;
  draft.cache_positions = target.cache_positions;
  draft.backend = target.backend;
  draft.pool = target.pool;
  draft.cache_type = target.cache_type;
  const ThinModel thin(*target.model, skipped);
  AERIE_RETURN_IF_ERROR(host.check_cache(fmt::format("method {}", kLayerSkipMethod.name), thin,
                                         thin.config(), draft_cache(thin.config(), draft)));
  return make_layer_skip_drafter(*target.model, std::move(skipped), draft);
}

}  // namespace

constinit const Method kLayerSkipMethod = {
    .name = "layer_skip",
    .what = "the model without some of its layers",
    .keys = kLayerSkipKeys,
    .make = make_layer_skip,
    .has_cache = true,
};

}  // namespace aerie
