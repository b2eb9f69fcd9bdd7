// The decoder-only transformer on a device: every operation of a pass is a kernel there, six a
// layer, and passes of few rows are graphs that are started whole. Its bits are its own, the same
// for every number of rows; a processor's are others.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/model.h"

namespace aerie {

// kUnsupported for a transformer that there is no device code for (check_device_code()),
// kResourceExhausted where its memory does not suffice. File and device must outlive the model.
// Caches for it have their planes in the device's memory (KvCache::Planes::kElsewhere), from
// attach() on.
Expected<std::unique_ptr<Model>> load_device_transformer(const ModelFile& file, Blueprint blueprint,
                                                         const ModelOptions& options,
                                                         device::Device& device);

// Device memory that its weights would take, and its work.
int64_t device_working_bytes(const Blueprint& blueprint, const ModelOptions& options);

}  // namespace aerie
