#include "measure/doctor/model_facts.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "base/errors.h"
#include "engine/engine_options.h"
#include "engine/model_source.h"
#include "kv/kv_cache.h"
#include "model/device/load_device_model.h"
#include "model/import/head_file.h"
#include "model/model.h"

namespace aerie::measure {
namespace {

// The error of a model that cannot be opened, unless it is a draft head.
Status explained(const std::string& path, const Status& status) {
  if (status.code() == StatusCode::kNotFound) return status;
  const Expected<std::unique_ptr<HeadFile>> head = HeadFile::open(path, {});
  if (!head.ok()) return status;
  return invalid_argument(
      "{}: is a draft head, not a model: give the model that it drafts for, and the head with "
      "--speculate METHOD:model=...",
      path);
}

std::string most_of(const ModelFile& file) {
  std::map<std::string_view, int64_t> bytes;
  for (const TensorInfo& tensor : file.tensors()) bytes[tensor.type_name] += tensor.bytes;
  if (bytes.empty()) return "";
  const auto most = std::ranges::max_element(
      bytes, [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::string(most->first);
}

bool has_float_matrices(const PassWork& work) {
  return work.row_operations[static_cast<size_t>(kernels::Dot::kBfloat)] > 0 ||
         work.row_operations[static_cast<size_t>(kernels::Dot::kFloat)] > 0;
}

Status add_conversions(const std::string& path, ThreadPool& pool, ModelFacts& facts) {
  if (!has_float_matrices(facts.work)) return {};
  for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
    const Expected<ModelSource> source = open_model_source(path, type, pool);
    if (!source.ok()) continue;  // its rows are no whole blocks
    AERIE_ASSIGN_OR_RETURN(PassWork work, work_of(*source->file));
    facts.conversions.push_back({std::string(dtype_info(type).name), std::move(work)});
  }
  return {};
}

}  // namespace

int64_t ModelFacts::bytes() const {
  int64_t all = weight_bytes + cache_bytes + work_bytes;
  for (const DrafterFacts& drafter : drafters) all += drafter.bytes();
  return all;
}

Expected<ModelFacts> read_model_facts(const std::string& path, int context, kernels::Isa isa,
                                      ThreadPool& pool, const SpeculativeConfig& speculation) {
  const Expected<ModelSource> source = open_model_source(path, std::nullopt, pool);
  if (!source.ok()) return explained(path, source.status());
  const ModelFile& file = *source->file;
  AERIE_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(file));
  const EngineOptions defaults;
  ModelFacts facts;
  facts.path = path;
  facts.family = config.family;
  facts.type = most_of(file);
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.bytes > 0) facts.parameters += tensor.elements();
  }
  facts.file_bytes = file.file_bytes();
  facts.trained_context = config.context;
  facts.context = context > 0 ? context : std::min(config.context, defaults.default_context);
  if (facts.context < 2 || facts.context > config.context) {
    return invalid_argument("--ctx {}: {} was trained for 2 to {}", facts.context, path,
                            config.context);
  }
  const kernels::Backend& backend = *kernels::backend(isa);
  ModelOptions options;
  options.backend = &backend;
  options.pool = &pool;
  options.max_rows = std::min(defaults.prefill_chunk, facts.context);
  options.max_logits = 1;
  options.max_positions = facts.context;
  facts.weight_bytes = loaded_weight_bytes(file, backend);
  const int64_t state_bytes =
      KvCache::state_bytes_needed(config, 1, {.loose_rows = 64, .snapshots = 4});
  facts.cache_bytes =
      KvCache::bytes_needed(config, int64_t{facts.context} + kernels::kPagePositions,
                            kernels::KvType::kF16, {.rows = options.max_rows, .sequences = 2}) +
      state_bytes;
  facts.work_bytes = working_bytes(config, options);
  facts.device_status = supported_by_device(file);
  if (facts.device_status.ok()) {
    facts.device_weight_bytes = device_weight_bytes(file);
    facts.device_cache_bytes =
        KvCache::bytes_needed(config, int64_t{facts.context} + kernels::kPagePositions) +
        state_bytes;
    facts.device_work_bytes = device_working_bytes(file, options);
  }
  AERIE_ASSIGN_OR_RETURN(facts.work, work_of(file));
  AERIE_RETURN_IF_ERROR(add_conversions(path, pool, facts));
  DraftTarget target;
  target.tokenizer = source->tokenizer.get();
  target.vocab = config.vocab;
  target.file = &file;
  target.max_positions = facts.context;
  target.cache_positions = int64_t{facts.context} + kernels::kPagePositions;
  target.backend = &backend;
  target.pool = &pool;
  AERIE_ASSIGN_OR_RETURN(facts.drafters, read_drafter_facts(speculation, target));
  return facts;
}

}  // namespace aerie::measure
