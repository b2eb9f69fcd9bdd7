#include "train/run/run_state.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "format/checksum.h"
#include "format/json.h"
#include "format/safetensors/safetensors.h"
#include "format/safetensors/safetensors_write.h"

namespace aerie::train {
namespace {

constexpr int kKept = 2;
constexpr std::string_view kPrefix = "checkpoint-", kSuffix = ".safetensors";
constexpr std::string_view kStateKey = "state", kLayoutKey = "parameters", kSumKey = "checksum";
constexpr std::array<const char*, 3> kTensors = {"values", "first_moments", "second_moments"};

std::array<at::Tensor*, 3> tensors_of(AdamW& optimizer) {
  return {&optimizer.values(), &optimizer.first_moments(), &optimizer.second_moments()};
}

std::span<const std::byte> bytes_of(const at::Tensor& values) {
  return {reinterpret_cast<const std::byte*>(values.data_ptr<float>()), values.nbytes()};
}

std::string layout_of(const Parameters& parameters) {
  std::string text;
  for (const Parameter& parameter : parameters.list()) {
    text += fmt::format("{} [{}]\n", parameter.name, fmt::join(parameter.value.sizes(), ", "));
  }
  return text;
}

std::string to_text(const RunState& state) {
  Json json = {{"step", state.step},
               {"epoch", state.position.epoch},
               {"next", state.position.next},
               {"rows", state.rows},
               {"seconds", state.seconds},
               {"best_step", state.best_step},
               {"stale", state.stale},
               {"evaluated", state.evaluated},
               {"evaluated_at", state.evaluated_at},
               {"finished", state.finished}};
  if (state.best) json["best"] = *state.best;
  return json.dump();
}

Expected<RunState> parse_state(std::string_view text, const std::string& name) {
  AERIE_ASSIGN_OR_RETURN(const Json json, parse_json(text, name));
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(json, name));
  RunState state;
  for (const auto& [key, slot] : {std::pair{"step", &state.step},
                                  {"epoch", &state.position.epoch},
                                  {"next", &state.position.next},
                                  {"rows", &state.rows},
                                  {"best_step", &state.best_step},
                                  {"stale", &state.stale},
                                  {"evaluated", &state.evaluated}}) {
    AERIE_ASSIGN_OR_RETURN(*slot, object.integer_in(key, 0, std::numeric_limits<int64_t>::max()));
  }
  AERIE_ASSIGN_OR_RETURN(state.seconds, object.number("seconds"));
  AERIE_ASSIGN_OR_RETURN(state.evaluated_at, object.number("evaluated_at"));
  AERIE_ASSIGN_OR_RETURN(state.finished, object.boolean("finished"));
  if (object.has("best")) {
    AERIE_ASSIGN_OR_RETURN(state.best, object.number("best"));
  }
  return state;
}

// Steps of the checkpoints there, the newest first.
std::vector<int64_t> steps_in(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const char* const first = name.data() + kPrefix.size();
    const char* const last = name.data() + name.size() - kSuffix.size();
    int64_t step = -1;
    const auto [stopped, code] = std::from_chars(first, last, step);
    if (code == std::errc() && stopped == last && step >= 0) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::string path_of(const std::string& folder, int64_t step) {
  return fmt::format("{}/{}{:08}{}", folder, kPrefix, step, kSuffix);
}

std::string_view metadata_of(const SafetensorsFile& file, std::string_view key) {
  for (const auto& [name, value] : file.metadata()) {
    if (name == key) return value;
  }
  return {};
}

// kInvalidArgument naming the first line that is not the same.
Status compare_layout(const std::string& path, std::string_view there, std::string_view here) {
  while (!there.empty() || !here.empty()) {
    const std::string_view a = there.substr(0, there.find('\n'));
    const std::string_view b = here.substr(0, here.find('\n'));
    if (a != b) {
      return {
          StatusCode::kInvalidArgument,
          fmt::format("{}: holds parameter '{}' where this run has '{}': it is of another model "
                      "or other options",
                      path, a, b)};
    }
    there.remove_prefix(std::min(a.size() + 1, there.size()));
    here.remove_prefix(std::min(b.size() + 1, here.size()));
  }
  return {};
}

// `count` of kTensors from the front.
Expected<RunState> read_file(const std::string& path, const Parameters& parameters,
                             AdamW& optimizer, size_t count) {
  AERIE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  AERIE_RETURN_IF_ERROR(compare_layout(path, metadata_of(file, kLayoutKey), layout_of(parameters)));
  AERIE_ASSIGN_OR_RETURN(const RunState state, parse_state(metadata_of(file, kStateKey), path));
  std::array<std::span<const std::byte>, kTensors.size()> data;
  uint64_t sum = 0;
  for (size_t i = 0; i < kTensors.size(); ++i) {
    const SafetensorsTensor* tensor = file.find(kTensors[i]);
    if (tensor == nullptr || tensor->type != SafetensorsType::kF32 ||
        tensor->elements() != optimizer.size()) {
      return Status(
          StatusCode::kInvalidData,
          fmt::format("{}: tensor '{}' is missing or of another size", path, kTensors[i]));
    }
    data[i] = tensor->data;
    sum += checksum(data[i]);
  }
  if (fmt::format("{:016x}", sum) != metadata_of(file, kSumKey)) {
    return Status(StatusCode::kInvalidData, path + ": its bytes are not those that were written");
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < count; ++i) {
    at::Tensor values = at::empty({optimizer.size()}, at::kFloat);
    std::memcpy(values.data_ptr<float>(), data[i].data(), data[i].size());
    tensors_of(optimizer)[i]->copy_(values);
  }
  AERIE_RETURN_IF_ERROR(file.check());
  return state;
}

Expected<std::optional<RunState>> read_newest(const std::string& folder,
                                              const Parameters& parameters, AdamW& optimizer,
                                              size_t count) {
  Status damage;
  for (const int64_t step : steps_in(folder)) {
    auto state = read_file(path_of(folder, step), parameters, optimizer, count);
    if (state.ok()) return std::optional(*state);
    if (state.status().code() != StatusCode::kInvalidData) return state.status();
    if (damage.ok()) damage = state.status();
    log(LogLevel::kWarning, state.status().message() + "; an older one is looked for");
  }
  if (!damage.ok()) return damage;
  return std::optional<RunState>();
}

}  // namespace

Status save_state(const std::string& folder, const RunState& state, const Parameters& parameters,
                  AdamW& optimizer) {
  std::vector<SafetensorsEntry> entries;
  std::vector<at::Tensor> tensors;
  uint64_t sum = 0;
  for (size_t i = 0; i < kTensors.size(); ++i) {
    tensors.push_back(tensors_of(optimizer)[i]->to(at::kCPU));
    entries.push_back({kTensors[i], SafetensorsType::kF32, {optimizer.size()}});
    sum += checksum(bytes_of(tensors.back()));
  }
  const std::array<std::pair<std::string, std::string>, 3> metadata = {{
      {std::string(kStateKey), to_text(state)},
      {std::string(kLayoutKey), layout_of(parameters)},
      {std::string(kSumKey), fmt::format("{:016x}", sum)},
  }};
  const auto written = write_safetensors(
      path_of(folder, state.step), entries, metadata,
      [&tensors](size_t i, const ByteSink& sink) { return sink(bytes_of(tensors[i])); });
  if (!written.ok()) return written.status();
  const std::vector<int64_t> steps = steps_in(folder);
  for (size_t i = kKept; i < steps.size(); ++i) {
    std::error_code ignored;  // one more than wanted does no harm
    std::filesystem::remove(path_of(folder, steps[i]), ignored);
  }
  return {};
}

Expected<std::optional<RunState>> load_state(const std::string& folder,
                                             const Parameters& parameters, AdamW& optimizer) {
  return read_newest(folder, parameters, optimizer, kTensors.size());
}

Status load_values(const std::string& folder, const Parameters& parameters, AdamW& optimizer) {
  AERIE_ASSIGN_OR_RETURN(const auto state, read_newest(folder, parameters, optimizer, 1));
  if (!state) {
    return {StatusCode::kNotFound, folder + ": there is no checkpoint of a training run"};
  }
  return {};
}

uint64_t values_checksum(AdamW& optimizer) {
  return checksum(bytes_of(optimizer.values().to(at::kCPU)));
}

}  // namespace aerie::train
