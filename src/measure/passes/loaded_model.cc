#include "measure/passes/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "kv/chain_rows.h"

namespace aerie::measure {

Expected<std::unique_ptr<LoadedModel>> LoadedModel::load(const LoadOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.speculation = {};
  engine_options.more_speculations.clear();
  engine_options.custom_drafter = nullptr;
  engine_options.profile.clear();
  engine_options.draft_room = 0;
  engine_options.context = std::max(2, options.positions);
  engine_options.prefill_chunk = kPrefillChunk;
  Concurrency concurrency;
  concurrency.sequences = options.sequences;
  concurrency.cache_positions = int64_t{options.positions} * options.sequences +
                                int64_t{kernels::kPagePositions} * (options.sequences - 1);
  concurrency.pass_logits = options.most_rows;
  auto engine = Engine::open(engine_options, concurrency);
  if (engine.status().code() == StatusCode::kInvalidArgument) {
    return engine.status().with_context(
        fmt::format("{} positions, the rows of a pass included", options.positions));
  }
  if (!engine.ok()) return engine.status();
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(std::move(*engine)));
  AERIE_ASSIGN_OR_RETURN(loaded->sequence_, loaded->cache().open());
  return loaded;
}

// A chain behind what is committed: of a prompt, or of a verify pass if logits are wanted.
Status LoadedModel::make_batch(int rows, bool all_logits) {
  const bool settled = !all_logits;
  AERIE_RETURN_IF_ERROR(cache().reserve(sequence_, rows, settled ? rows : 0));
  batch_.clear();
  for (BatchRow& row : add_chain(batch_, cache(), sequence_, rows, settled)) {
    row.token = random_token();
    row.wants_logits = all_logits;
  }
  return {};
}

Status LoadedModel::fill(int context) {
  cache().truncate(sequence_, 0);
  for (filled_ = 0; filled_ < context;) {
    const int rows = std::min(kPrefillChunk, context - filled_);
    AERIE_RETURN_IF_ERROR(make_batch(rows, false));
    AERIE_RETURN_IF_ERROR(model().forward(batch_, cache()).status);
    cache().commit_first(sequence_, rows);
    filled_ += rows;
  }
  return {};
}

Expected<double> LoadedModel::read_prompt(int tokens) {
  const auto start = std::chrono::steady_clock::now();
  AERIE_RETURN_IF_ERROR(fill(tokens));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return seconds.count();
}

Expected<double> LoadedModel::pass(int context, int rows) {
  AERIE_RETURN_IF_ERROR(stand_at(context));
  AERIE_RETURN_IF_ERROR(make_batch(rows, true));
  const auto start = std::chrono::steady_clock::now();
  const ForwardOutputs outputs = model().forward(batch_, cache());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  AERIE_RETURN_IF_ERROR(outputs.status);
  experts_ = outputs.experts;
  // The pages are still the sequence's. That the pass wrote over some positions does not matter:
  // these are keys and values as good as the ones before.
  AERIE_RETURN_IF_ERROR(cache().assume(sequence_, filled_));
  return seconds.count();
}

// As after a round that decoded plainly: the last row is one that states have not taken in yet.
Status LoadedModel::stand_at(int context) {
  const int last = context > 0 ? 1 : 0;
  AERIE_RETURN_IF_ERROR(cache().assume(sequence_, context - last));
  AERIE_RETURN_IF_ERROR(cache().reserve(sequence_, last));
  cache().commit_first(sequence_, last);
  return {};
}

}  // namespace aerie::measure
