#include "train/data/running_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/memory.h"

namespace aerie::train {
namespace {

Status check_range(const char* what, int value, int first, int last) {
  if (value >= first && value <= last) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("{} {}: give {} to {}", what, value, first, last)};
}

}  // namespace

int RunningTarget::max_rows() const {
  return std::max(options_.sequences, std::min(options_.context, kPrefillChunk));
}

Expected<std::unique_ptr<RunningTarget>> RunningTarget::open(const RunningTargetOptions& options) {
  std::unique_ptr<RunningTarget> target(new RunningTarget);
  RunningTargetOptions& own = target->options_;
  own = options;
  if (own.threads == 0) own.threads = available_cpus();
  AERIE_RETURN_IF_ERROR(check_range("threads", own.threads, 1, 1024));
  AERIE_RETURN_IF_ERROR(check_range("a batch of", own.sequences, 1, 1024));
  target->pool_ = std::make_unique<ThreadPool>(own.threads);
  AERIE_ASSIGN_OR_RETURN(target->source_,
                         open_model_source(own.model, std::nullopt, *target->pool_));
  const ModelFile& file = *target->source_.file;
  AERIE_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(file));
  if (own.context == 0)
    own.context = std::min(config.context, RunningTargetOptions::kDefaultContext);
  AERIE_RETURN_IF_ERROR(check_range("a context of", own.context, 2, config.context));

  ModelOptions& model = target->model_options_;
  model.backend = kernels::backend(kernels::best_isa());
  model.pool = target->pool_.get();
  model.max_rows = target->max_rows();
  model.max_logits = own.sequences;
  model.max_positions = own.context;
  model.max_taps = own.max_taps;
  // A sequence's last page may be all but empty.
  const int64_t positions =
      int64_t{own.sequences} * (int64_t{own.context} + kernels::kPagePositions);
  AERIE_RETURN_IF_ERROR(check_memory(own.model, packed_weight_bytes(file, *model.backend),
                                     KvCache::bytes_needed(config, positions),
                                     working_bytes(config, model), available_memory()));
  AERIE_ASSIGN_OR_RETURN(target->model_, load_model(file, model));
  AERIE_ASSIGN_OR_RETURN(KvCache cache, KvCache::create(config, positions, own.sequences));
  target->cache_ = std::make_unique<KvCache>(std::move(cache));
  return target;
}

}  // namespace aerie::train
