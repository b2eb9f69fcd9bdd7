#include "model/import/suggested_sampling.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "format/json.h"

namespace aerie {
namespace {

constexpr const char* kTemperature = "general.sampling.temp";
constexpr const char* kTopK = "general.sampling.top_k";
constexpr const char* kTopP = "general.sampling.top_p";
constexpr const char* kMinP = "general.sampling.min_p";
constexpr const char* kRepetitionPenalty = "general.sampling.penalty_repeat";
constexpr const char* kPenaltyWindow = "general.sampling.penalty_last_n";
constexpr int kMostTopK = std::numeric_limits<int>::max();

double shortest(double stored) {
  const auto narrow = static_cast<float>(stored);
  if (static_cast<double>(narrow) != stored) return stored;
  const std::string digits = fmt::format("{}", narrow);
  double value = stored;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

Status read_number(const ModelFile& file, const char* key, double least, double most,
                   std::optional<double>& out) {
  if (file.find(key) == nullptr) return {};
  AERIE_ASSIGN_OR_RETURN(const double value, file.number(key));
  if (!(value >= least && value <= most)) {
    return invalid_data("{}: {} is {}; {} to {} make sense (--generation-config none ignores it)",
                        file.name(), file.origin_of_key(key), value, least, most);
  }
  out = shortest(value);
  return {};
}

// Below 0 stands for `all`.
Status read_count(const ModelFile& file, const char* key, int all, std::optional<int>& out) {
  std::optional<double> value;
  AERIE_RETURN_IF_ERROR(read_number(file, key, -1, kMostTopK, value));
  if (value) out = *value < 0 ? all : static_cast<int>(*value);
  return {};
}

Status add_number(const JsonObject& config, const char* key, const char* name,
                  MetadataBuilder& metadata) {
  if (!config.has(key)) return {};
  AERIE_ASSIGN_OR_RETURN(const double value, config.number(key));
  metadata.add_f32(name, static_cast<float>(value));
  return {};
}

}  // namespace

void SuggestedSampling::apply_to(SamplingParams& params) const {
  if (temperature) params.temperature = *temperature;
  if (top_k) params.top_k = *top_k;
  if (top_p) params.top_p = *top_p;
  if (min_p) params.min_p = *min_p;
  if (repetition_penalty) params.repetition_penalty = *repetition_penalty;
  if (penalty_window) params.penalty_window = *penalty_window;
}

std::string to_string(const SuggestedSampling& sampling) {
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  };
  add("temperature", sampling.temperature);
  add("top-k", sampling.top_k);
  add("top-p", sampling.top_p);
  add("min-p", sampling.min_p);
  add("repetition penalty", sampling.repetition_penalty);
  add("over the last tokens:", sampling.penalty_window);
  return text;
}

Expected<SuggestedSampling> read_suggested_sampling(const ModelFile& file) {
  SuggestedSampling out;
  AERIE_RETURN_IF_ERROR(read_number(file, kTemperature, 0, 100, out.temperature));
  AERIE_RETURN_IF_ERROR(read_count(file, kTopK, 0, out.top_k));
  AERIE_RETURN_IF_ERROR(read_number(file, kTopP, std::numeric_limits<double>::min(), 1, out.top_p));
  AERIE_RETURN_IF_ERROR(read_number(file, kMinP, 0, 1, out.min_p));
  AERIE_RETURN_IF_ERROR(read_number(file, kRepetitionPenalty, 0.01, 100, out.repetition_penalty));
  AERIE_RETURN_IF_ERROR(read_count(file, kPenaltyWindow, -1, out.penalty_window));
  return out;
}

Status add_generation_config(const std::string& folder, MetadataBuilder& metadata) {
  const std::string path = folder + "/generation_config.json";
  const Expected<Json> json = read_json(path);
  if (json.status().code() == StatusCode::kNotFound) return {};
  if (!json.ok()) return json.status();
  AERIE_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::view(*json, path));
  AERIE_ASSIGN_OR_RETURN(const bool draws, config.boolean("do_sample", true));
  if (!draws) return {};
  if (config.has("do_sample") && !config.has("temperature")) metadata.add_f32(kTemperature, 1);
  AERIE_RETURN_IF_ERROR(add_number(config, "temperature", kTemperature, metadata));
  if (config.has("top_k")) {
    // -1 is all of them for some.
    AERIE_ASSIGN_OR_RETURN(const int64_t top_k, config.integer_in("top_k", -1, kMostTopK));
    metadata.add_i64(kTopK, top_k);
  }
  AERIE_RETURN_IF_ERROR(add_number(config, "top_p", kTopP, metadata));
  AERIE_RETURN_IF_ERROR(add_number(config, "min_p", kMinP, metadata));
  return add_number(config, "repetition_penalty", kRepetitionPenalty, metadata);
}

}  // namespace aerie
