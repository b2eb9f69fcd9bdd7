// Models that a device computes (kernels/device/device.h) in the place of the processor.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "format/model_file.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/model.h"

namespace aerie {

// kUnsupported, saying what, if there is no device code for something in the model: for its layers,
// or for the types of its experts.
Status supported_by_device(const ModelFile& file);

// kUnsupported, saying what, if the device has no products for types that the file has: of experts,
// or of matrices of heads. The blueprint is the file's, whose tensors have GGUF's names.
Status check_device_types(const ModelFile& file, const Blueprint& blueprint,
                          device::Device& device);

// Of the device's memory: what the weights take there, and what a model with these options works
// with. Require supported_by_device().
int64_t device_weight_bytes(const ModelFile& file, const LayerRange& layers = {});
int64_t device_working_bytes(const ModelFile& file, const ModelOptions& options);

// load_model() for the device, which must outlive the model and belongs to one thread at a time.
// kUnsupported also for options that there is no device code for; kResourceExhausted if the
// device's memory does not suffice. The layers before `first_layer` are the processor's
// (DividedModel); kUnsupported if others read their keys and values (ModelConfig::divides_at()).
Expected<std::unique_ptr<Model>> load_device_model(const ModelFile& file,
                                                   const ModelOptions& options,
                                                   device::Device& device, int first_layer = 0);

}  // namespace aerie
