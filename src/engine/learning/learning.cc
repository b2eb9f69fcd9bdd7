#include "engine/learning/learning.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "format/text.h"

namespace aerie {
namespace {

DataInfo info_of(const OpenedModel& opened) {
  DataInfo info;
  const ModelConfig& config = opened.config();
  info.model = printable(config.name.empty() ? opened.name() : config.name);
  info.fingerprint = model_fingerprint(opened.file());
  info.vocab = config.vocab;
  info.context = opened.options.context;
  info.settings.max_tokens = opened.options.context;
  info.held_out = Learning::kHeldOut;
  return info;
}

std::vector<int32_t> layers_of(const Drafter& inner, int layers) {
  std::vector<int32_t> all = inner.needs().tap_layers;
  if (all.empty()) all = eagle3_layers(layers);
  all.push_back(layers);
  std::ranges::sort(all);
  const auto rest = std::ranges::unique(all);
  all.erase(rest.begin(), rest.end());
  return all;
}

}  // namespace

Expected<std::unique_ptr<Learning>> Learning::start(const OpenedModel& opened, Drafter& inner,
                                                    const LearnOptions& options) {
  const ModelConfig& config = opened.config();
  DataInfo info = info_of(opened);
  FeatureKind kind = {info.fingerprint, layers_of(inner, config.layers), config.hidden};
  AERIE_ASSIGN_OR_RETURN(auto keeper,
                         TapKeeper::make(inner, kind.tap_layers, LearnStore::kMostTokens));
  AERIE_RETURN_IF_ERROR(options.store->begin(std::move(info), std::move(kind)));
  return std::unique_ptr<Learning>(new Learning(std::move(keeper), options));
}

void Learning::on_end(const Sequence& sequence, bool failed) noexcept {
  try {
    std::optional<TapKeeper::Taps> taps = keeper_->take(sequence.id);
    if (!taps || failed || sequence.generated() < kLeastTokens) return;
    LearnedReply reply;
    const size_t tokens = std::min(sequence.tokens.size(), LearnStore::kMostTokens);
    reply.tokens.assign(sequence.tokens.begin(),
                        sequence.tokens.begin() + static_cast<ptrdiff_t>(tokens));
    reply.prompt_length = sequence.prompt_length;
    reply.finish = sequence.finish;
    reply.temperature = sequence.options.sampling.temperature;
    reply.seed = sequence.options.sampling.seed;
    reply.first_row = taps->first_row;
    reply.taps = std::move(taps->values);
    writer_.add(std::move(reply));
  } catch (const std::exception&) {
    writer_.drop();  // no memory for it
  }
}

}  // namespace aerie
