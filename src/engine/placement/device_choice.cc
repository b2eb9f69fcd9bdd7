#include "engine/placement/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "kernels/device/open_device.h"
#include "model/device/load_device_model.h"

namespace aerie {
namespace {

constexpr std::string_view kCpu = "cpu", kFirst = "cuda:0";
// Of a device's memory, what is left to the driver and to what is not counted.
constexpr double kLeftAlone = 1.0 / 32;

// The whole number that a text is.
std::optional<int> whole_number(std::string_view text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || rest != end) return std::nullopt;
  return number;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return out;
}

// 1024^n for "k", "KB", "KiB" ...; 1 for none; 0 for others.
double factor_of(std::string_view suffix) {
  if (suffix.empty() || suffix == "b") return 1.0;
  const size_t power = std::string_view("kmgt").find(suffix[0]);
  const std::string_view rest = suffix.substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) return 0.0;
  return std::pow(1024.0, static_cast<double>(power + 1));
}

// What device code lacks for the options, whatever the model is.
Status check_options(const EngineOptions& options) {
  if (options.group) {
    return not_supported("--tensor-parallel shares a model between processes, on processors alone");
  }
  if (options.cache_type != kernels::KvType::kF16) {
    return not_supported("devices have caches of f16 alone: leave out --cache-type {}",
                         kernels::kv_type_name(options.cache_type));
  }
  return {};
}

// The processor where it need not be said why not.
std::string asked_device(const EngineOptions& options) {
  if (options.device == kAutoDevice && options.device_layers == 0) return std::string(kCpu);
  return options.device;
}

// As llama.cpp counts them: the last ones are the device's. A device that is named with none has
// all.
int first_layer_of(const EngineOptions& options, const ModelConfig& config) {
  const int layers = options.device_layers.value_or(0);
  return layers <= 0 ? 0 : std::max(0, config.layers - layers);
}

Expected<std::unique_ptr<OpenedDevice>> open_for(const std::string& name,
                                                 const EngineOptions& options,
                                                 const ModelFile& file, const DeviceAccess& access,
                                                 int first_layer) {
  AERIE_RETURN_IF_ERROR(check_options(options));
  AERIE_RETURN_IF_ERROR(access.supports(file));
  auto opened = std::make_unique<OpenedDevice>();
  AERIE_ASSIGN_OR_RETURN(opened->device, access.open(name));
  opened->name = name;
  opened->info = opened->device->info();
  opened->first_layer = first_layer;
  const auto memory = static_cast<double>(opened->info.memory);
  const DeviceShare& limit = options.device_memory;
  opened->room.limit = limit.share > 0.0 ? static_cast<int64_t>(limit.share * memory) : limit.bytes;
  const auto left_alone = static_cast<int64_t>(kLeftAlone * memory);
  opened->room.available = [left_alone, device = opened->device.get()] {
    return std::max<int64_t>(0, device->info().free - left_alone);
  };
  return opened;
}

}  // namespace

Expected<std::string> parse_device(std::string_view text) {
  std::string name = lower(text);
  if (name == kAutoDevice || name == kCpu || name == "emulated") return name;
  if (name == "none") return std::string(kCpu);
  if (name == "cuda" || name == "gpu") return std::string(kFirst);
  constexpr std::string_view kCuda = "cuda";
  if (name.starts_with(kCuda) && !name.starts_with("cuda:")) name.insert(kCuda.size(), 1, ':');
  if (const std::optional<int> number = device::gpu_number(name)) {
    return fmt::format("cuda:{}", *number);
  }
  return invalid_argument("'{}': give {}", text, kDeviceChoices);
}

Expected<DeviceShare> parse_device_memory(std::string_view text) {
  constexpr double kLeast = 1 << 20;
  double number = 0.0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string suffix = lower(std::string_view(rest, static_cast<size_t>(end - rest)));
  const double bytes = number * factor_of(suffix);
  if (error == std::errc() && suffix.empty() && number > 0.0 && number <= 1.0) {
    return DeviceShare{.share = number};
  }
  if (error == std::errc() && bytes >= kLeast &&
      bytes < static_cast<double>(std::numeric_limits<int64_t>::max())) {
    return DeviceShare{.bytes = static_cast<int64_t>(bytes)};
  }
  return invalid_argument(
      "'{}': give a share of the device's, such as 0.9, or bytes, 1M or more, such as 20G", text);
}

Expected<std::optional<int>> parse_device_layers(std::string_view text) {
  if (text == "all") return std::optional<int>(std::numeric_limits<int>::max());
  if (text == kAutoDevice) return std::optional<int>(EngineOptions::kLayersThatFit);
  const std::optional<int> layers = whole_number(text);
  if (!layers) {
    return invalid_argument(
        "'{}': give a number, 0 for the processor, all for a device, or auto for as many as fit",
        text);
  }
  return std::optional<int>(std::max(*layers, EngineOptions::kLayersThatFit));
}

std::string OpenedDevice::make() const {
  const std::string own = static_cast<const char*>(info.name);
  if (first_layer == 0) return own;
  return fmt::format("{}, from layer {} on; the processor before", own, first_layer);
}

std::string OpenedDevice::words() const {
  return fmt::format("{} ({})", name, make());
}

DeviceAccess DeviceAccess::real() {
  return {device::open, supported_by_device, [] {
            std::error_code ignored;
            return std::filesystem::exists("/proc/driver/nvidia/version", ignored);
          }};
}

Expected<std::unique_ptr<OpenedDevice>> choose_device(const EngineOptions& options,
                                                      const ModelFile& file,
                                                      const ModelConfig& config,
                                                      const DeviceAccess& access) {
  const std::string asked = asked_device(options);
  if (asked == kCpu) return std::unique_ptr<OpenedDevice>();
  const int first_layer = first_layer_of(options, config);
  if (asked != kAutoDevice) {
    return in_context(open_for(asked, options, file, access, first_layer),
                      fmt::format("--device {}", asked));
  }
  auto opened = open_for(std::string(kFirst), options, file, access, first_layer);
  if (opened.ok()) return opened;
  if (options.device_layers.value_or(0) > 0) {
    log(LogLevel::kWarning, fmt::format("the processor computes the model in spite of "
                                        "--n-gpu-layers: {}",
                                        opened.status().message()));
  } else if (access.is_there()) {
    log(LogLevel::kWarning,
        fmt::format(
            "there is a GPU, and the processor computes the model (as --device cpu says): {}",
            opened.status().message()));
  }
  return std::unique_ptr<OpenedDevice>();
}

Status leave_device(const EngineOptions& options, const OpenedDevice& device, Status reason) {
  const StatusCode code = reason.code();
  const bool is_of_device =
      code == StatusCode::kResourceExhausted || code == StatusCode::kUnsupported;
  if (options.device != kAutoDevice || !is_of_device) return reason;
  log(LogLevel::kWarning, fmt::format("the processor computes the model, and not {}: {}",
                                      device.words(), reason.message()));
  return {};
}

Status check_device_memory(const std::string& model, const MemoryNeed& need,
                           const OpenedDevice& device) {
  std::string where =
      fmt::format("that {} has left of {}", device.words(), mebibytes(device.info.memory));
  if (device.room.limit > 0) {
    where += fmt::format(", of which --gpu-memory allows {}", mebibytes(device.room.limit));
  }
  return check_memory(model, need, device.room.free(), where);
}

}  // namespace aerie
