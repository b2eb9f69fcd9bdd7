#include "model/pooling.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/errors.h"
#include "format/json.h"

namespace aerie {
namespace {

// GGUF's numbers.
constexpr uint32_t kNothing = 0;
constexpr uint32_t kMeanOfAll = 1;
constexpr uint32_t kFirstToken = 2;
constexpr uint32_t kLastToken = 3;
// None of GGUF's: what cannot be said there, and a module whose work is not done here.
constexpr uint32_t kOther = 1000;
constexpr uint32_t kMoreModules = 1001;

std::string_view name_of(int64_t type) {
  if (type == kFirstToken) return "the first token's state";
  if (type == kMoreModules) return "a layer of its own behind the pooling";
  return "a way that is not known here";
}

Expected<uint32_t> type_of(const JsonObject& config) {
  uint32_t type = kNothing;
  int ways = 0;
  for (const auto& [key, value] : {std::pair("pooling_mode_mean_tokens", kMeanOfAll),
                                   {"pooling_mode_cls_token", kFirstToken},
                                   {"pooling_mode_lasttoken", kLastToken},
                                   {"pooling_mode_max_tokens", kOther},
                                   {"pooling_mode_mean_sqrt_len_tokens", kOther},
                                   {"pooling_mode_weightedmean_tokens", kOther}}) {
    AERIE_ASSIGN_OR_RETURN(const bool on, config.boolean(key, false));
    if (!on) continue;
    type = value;
    ++ways;
  }
  return ways > 1 ? kOther : type;
}

// Whether something other than a norm comes behind the pooling.
Expected<bool> has_more_modules(const std::string& folder) {
  const std::string path = folder + "/modules.json";
  const Expected<Json> json = read_json(path);
  if (json.status().code() == StatusCode::kNotFound) return false;
  if (!json.ok()) return json.status();
  if (!json->is_array()) return invalid_data("{}: a list of modules is wanted", path);
  for (const Json& one : *json) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject module, JsonObject::view(one, path));
    AERIE_ASSIGN_OR_RETURN(const std::string_view type, module.string("type"));
    const std::string_view name = type.substr(type.rfind('.') + 1);
    if (name != "Transformer" && name != "Pooling" && name != "Normalize") return true;
  }
  return false;
}

}  // namespace

Expected<Pooling> read_pooling(const ModelFile& file) {
  const auto name = file.string("general.architecture");
  if (!name.ok()) return Pooling::kLast;
  const std::string causal = std::string(*name) + ".attention.causal";
  if (file.find(causal) != nullptr) {
    AERIE_ASSIGN_OR_RETURN(const bool is_causal, file.boolean(causal));
    if (!is_causal) {
      return not_supported("{}: {} is false: what tokens see of those behind them is not computed",
                           file.name(), file.origin_of_key(causal));
    }
  }
  const std::string key = std::string(*name) + ".pooling_type";
  if (file.find(key) == nullptr) return Pooling::kLast;
  AERIE_ASSIGN_OR_RETURN(const int64_t type, file.integer(key));
  if (type == kMeanOfAll) return Pooling::kMean;
  if (type == kLastToken || type == kNothing) return Pooling::kLast;
  return not_supported(
      "{}: the model wants {} for embeddings: only the mean of all tokens' and the "
      "last one's can be had, with --pooling mean or last",
      file.name(), name_of(type));
}

Status add_pooling(const std::string& folder, const std::string& architecture,
                   MetadataBuilder& metadata) {
  const std::string path = folder + "/1_Pooling/config.json";
  const Expected<Json> json = read_json(path);
  if (json.status().code() == StatusCode::kNotFound) return {};
  if (!json.ok()) return json.status();
  AERIE_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::view(*json, path));
  AERIE_ASSIGN_OR_RETURN(const uint32_t type, type_of(config));
  AERIE_ASSIGN_OR_RETURN(const bool more, has_more_modules(folder));
  metadata.add_u32(architecture + ".pooling_type", more ? kMoreModules : type);
  return {};
}

}  // namespace aerie
