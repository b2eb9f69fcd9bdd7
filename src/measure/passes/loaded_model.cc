#include "measure/passes/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "engine/memory.h"

namespace aerie::measure {

Expected<std::unique_ptr<LoadedModel>> LoadedModel::load(const LoadOptions& options,
                                                         ThreadPool& pool) {
  std::unique_ptr<LoadedModel> loaded(new LoadedModel);
  AERIE_ASSIGN_OR_RETURN(loaded->source_, open_model_source(options.model, std::nullopt, pool));
  const ModelFile& file = *loaded->source_.file;
  AERIE_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(file));
  if (options.positions > config.context) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} positions, the rows of a pass included: {} has {}",
                              options.positions, options.model, config.context));
  }
  ModelOptions model_options;
  model_options.backend = kernels::backend(options.isa);
  if (model_options.backend == nullptr) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("this processor does not have {}", kernels::isa_name(options.isa)));
  }
  model_options.pool = &pool;
  model_options.max_rows = std::max(options.most_rows, std::min(options.positions, kPrefillChunk));
  model_options.max_logits = options.most_rows;
  model_options.max_positions = options.positions;
  const int64_t positions = int64_t{options.positions} * options.sequences +
                            int64_t{kernels::kPagePositions} * (options.sequences - 1);
  AERIE_RETURN_IF_ERROR(check_memory(options.model,
                                     packed_weight_bytes(file, *model_options.backend),
                                     KvCache::bytes_needed(config, positions, options.cache_type),
                                     working_bytes(config, model_options), available_memory()));
  AERIE_ASSIGN_OR_RETURN(loaded->model_, load_model(file, model_options));
  AERIE_ASSIGN_OR_RETURN(KvCache cache,
                         KvCache::create(config, positions, options.sequences, options.cache_type));
  loaded->cache_ = std::make_unique<KvCache>(std::move(cache));
  AERIE_ASSIGN_OR_RETURN(loaded->sequence_, loaded->cache_->open());
  return loaded;
}

int32_t LoadedModel::random_token() {
  state_ = state_ * 1664525 + 1013904223;
  const auto vocab = static_cast<uint64_t>(model_->config().vocab);
  return static_cast<int32_t>(uint64_t{state_} * vocab >> 32);
}

// A chain behind what is committed.
Status LoadedModel::make_batch(int rows, bool all_logits) {
  AERIE_RETURN_IF_ERROR(cache_->reserve(sequence_, rows));
  const int first = cache_->committed(sequence_);
  batch_.clear();
  batch_.sequences.push_back({cache_->pages(sequence_), first});
  for (int i = 0; i < rows; ++i) {
    BatchRow& row = batch_.rows.emplace_back();
    row.token = random_token();
    row.position = first + i;
    row.slot = cache_->slot(sequence_, i);
    row.parent = i - 1;
    row.wants_logits = all_logits;
  }
  return {};
}

Status LoadedModel::fill(int context) {
  cache_->truncate(sequence_, 0);
  for (filled_ = 0; filled_ < context;) {
    const int rows = std::min(kPrefillChunk, context - filled_);
    AERIE_RETURN_IF_ERROR(make_batch(rows, false));
    model_->forward(batch_, *cache_);
    cache_->commit_first(sequence_, rows);
    filled_ += rows;
  }
  return {};
}

Expected<double> LoadedModel::pass(int context, int rows) {
  cache_->truncate(sequence_, context);
  AERIE_RETURN_IF_ERROR(make_batch(rows, true));
  const auto start = std::chrono::steady_clock::now();
  model_->forward(batch_, *cache_);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  // The pages are still the sequence's. That the pass wrote over some positions does not matter:
  // these are keys and values as good as the ones before.
  cache_->commit_first(sequence_, filled_ - context);
  return seconds.count();
}

}  // namespace aerie::measure
