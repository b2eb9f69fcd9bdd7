// Which device a model is computed by: the processor, or one beside it (EngineOptions::device).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "core/model_config.h"
#include "engine/engine_options.h"
#include "engine/placement/memory.h"
#include "format/model_file.h"
#include "kernels/device/device.h"

namespace aerie {

inline constexpr std::string_view kAutoDevice = "auto";
// What `device` may be, for messages.
inline constexpr std::string_view kDeviceChoices = "auto, cpu, cuda, cuda:N or emulated";

// "auto", "cpu", "cuda:0", "cuda:1", ... or "emulated": of "cuda" and "gpu", which are the first,
// and of what llama.cpp writes: "CUDA1", "none". kInvalidArgument for others.
Expected<std::string> parse_device(std::string_view text);

// "0.9" is a share of the device's memory, "20G", "500MiB" and "21474836480" are bytes; suffixes
// are powers of 1024. kInvalidArgument for others.
Expected<DeviceShare> parse_device_memory(std::string_view text);

// A number, "all" or "auto" (EngineOptions::kLayersThatFit, as is a negative number):
// --n-gpu-layers.
Expected<std::optional<int>> parse_device_layers(std::string_view text);

// A device that a model was opened on.
struct OpenedDevice {
  std::string name;  // "cuda:0"
  device::Info info;
  MemoryRoom room;      // of its memory
  int first_layer = 0;  // that it computes; the processor has those before it
  std::unique_ptr<device::Device> device;

  // "NVIDIA H100 80GB HBM3", and which layers it has if not all.
  std::string make() const;
  // "cuda:0 (NVIDIA H100 80GB HBM3)"; for people.
  std::string words() const;
};

// How devices are reached; tests give others.
struct DeviceAccess {
  std::function<Expected<std::unique_ptr<device::Device>>(const std::string&)> open;
  std::function<Status(const ModelFile&)> supports;
  std::function<bool()> is_there;  // a GPU, whether or not it can be used

  static DeviceAccess real();
};

// The device for the model, as `options` ask for one; null: the processor. With "auto" that is what
// cannot be computed elsewhere, with a warning if there is a GPU or layers were asked to be on one.
// kInvalidArgument for what contradicts itself or the model; the reason where a device that was
// asked for by its name cannot be had.
Expected<std::unique_ptr<OpenedDevice>> choose_device(const EngineOptions& options,
                                                      const ModelFile& file,
                                                      const ModelConfig& config,
                                                      const DeviceAccess& access);

// What becomes of a model that its device has no room or no code for after all: the reason, or OK
// and a warning where the processor may compute it.
Status leave_device(const EngineOptions& options, const OpenedDevice& device, Status reason);

// kResourceExhausted with the sizes and what is missing, if they do not fit into what is left of
// the device's memory.
Status check_device_memory(const std::string& model, const MemoryNeed& need,
                           const OpenedDevice& device);

}  // namespace aerie
