#include "train/speedup/speedup_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "format/output_file.h"

namespace aerie::train {
namespace {

constexpr int kMostAtATime = 1 << 20;
constexpr int kMostReplies = 1 << 30;

Expected<SpeedupSpeeds> read_speeds(const JsonObject& object) {
  constexpr double kMost = 1e15;
  SpeedupSpeeds speeds;
  AERIE_ASSIGN_OR_RETURN(speeds.plain, object.number_in("plain", 0.0, kMost));
  AERIE_ASSIGN_OR_RETURN(speeds.answering, object.number_in("answering", 0.0, kMost));
  AERIE_ASSIGN_OR_RETURN(const double count,
                         object.number_in("replies_at_a_time", 0.0, kMostAtATime));
  speeds.replies_at_a_time = static_cast<int>(count);
  AERIE_ASSIGN_OR_RETURN(speeds.training, object.number_in("training", 0.0, kMost));
  // A folder that was begun before these were there goes on as it was.
  AERIE_ASSIGN_OR_RETURN(speeds.bf16, object.boolean("bf16", false));
  if (object.has("layers")) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> layers, object.integers("layers"));
    speeds.layers.assign(layers.begin(), layers.end());
  }
  AERIE_ASSIGN_OR_RETURN(const double bytes, object.number("feature_bytes", 0.0));
  speeds.feature_bytes = static_cast<int64_t>(std::clamp(bytes, 0.0, kMost));
  AERIE_ASSIGN_OR_RETURN(const double parameters, object.number_in("parameters", 0.0, kMost));
  speeds.parameters = static_cast<int64_t>(parameters);
  AERIE_ASSIGN_OR_RETURN(speeds.seconds, object.number_in("seconds", 0.0, kMost));
  if (speeds.plain > 0.0 && speeds.answering > 0.0 && speeds.training > 0.0 && count >= 1.0) {
    return speeds;
  }
  return object.error(StatusCode::kInvalidData, "plain", "or another speed is 0");
}

Expected<SpeedupState> parse(const JsonObject& object) {
  constexpr double kMostSeconds = 1e9;
  SpeedupState state;
  AERIE_ASSIGN_OR_RETURN(const JsonObject options, object.object("options"));
  for (const auto& [key, value] : options.json().items()) {
    AERIE_ASSIGN_OR_RETURN(const std::string_view text, options.string(key));
    state.options.emplace_back(key, std::string(text));
  }
  AERIE_ASSIGN_OR_RETURN(const JsonObject speeds, object.object("measured"));
  AERIE_ASSIGN_OR_RETURN(state.speeds, read_speeds(speeds));
  AERIE_ASSIGN_OR_RETURN(state.stores_features, object.boolean("stores_features", false));
  AERIE_ASSIGN_OR_RETURN(state.data_seconds, object.number_in("data_seconds", 0.0, kMostSeconds));
  AERIE_ASSIGN_OR_RETURN(const double replies, object.number_in("replies", 0.0, kMostReplies));
  state.replies = static_cast<int>(replies);
  AERIE_ASSIGN_OR_RETURN(state.answered, object.boolean("answered"));
  AERIE_ASSIGN_OR_RETURN(state.training_seconds,
                         object.number_in("training_seconds", 0.0, kMostSeconds));
  AERIE_ASSIGN_OR_RETURN(state.trained, object.boolean("trained"));
  AERIE_ASSIGN_OR_RETURN(state.done, object.boolean("done"));
  return state;
}

}  // namespace

Json json_of(const SpeedupSpeeds& speeds, const std::string& unit) {
  return {{"plain" + unit, speeds.plain},
          {"answering" + unit, speeds.answering},
          {"replies_at_a_time", speeds.replies_at_a_time},
          {"training" + unit, speeds.training},
          {"bf16", speeds.bf16},
          {"layers", speeds.layers},
          {"feature_bytes", speeds.feature_bytes},
          {"parameters", speeds.parameters},
          {"seconds", speeds.seconds}};
}

Expected<std::optional<SpeedupState>> read_speedup_state(const std::string& path) {
  const auto json = read_json(path);
  if (json.status().code() == StatusCode::kNotFound) return std::optional<SpeedupState>();
  AERIE_RETURN_IF_ERROR(json.status());
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(*json, path));
  AERIE_ASSIGN_OR_RETURN(SpeedupState state, parse(object));
  return std::optional(std::move(state));
}

Status write_speedup_state(const std::string& path, const SpeedupState& state) {
  Json options = Json::object();
  for (const auto& [key, value] : state.options) options[key] = value;
  const Json json = {{"options", options},
                     {"measured", json_of(state.speeds)},
                     {"stores_features", state.stores_features},
                     {"data_seconds", state.data_seconds},
                     {"replies", state.replies},
                     {"answered", state.answered},
                     {"training_seconds", state.training_seconds},
                     {"trained", state.trained},
                     {"done", state.done}};
  return write_file(path, json.dump(2) + "\n");
}

std::string difference(const OptionTexts& there, const OptionTexts& now) {
  for (size_t i = 0; i < now.size(); ++i) {
    if (i < there.size() && there[i] == now[i]) continue;
    const std::string before =
        i < there.size() && there[i].first == now[i].first ? there[i].second : "another";
    return fmt::format("{} {} there, {} now", now[i].first, before, now[i].second);
  }
  return "";
}

}  // namespace aerie::train
