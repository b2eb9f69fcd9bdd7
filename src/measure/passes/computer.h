// The limits of what computes a model: of the processor, or of a device beside it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "engine/opened_model.h"
#include "measure/passes/machine.h"

namespace aerie::measure {

// One thread at a time, and not while the model computes.
class Computer {
 public:
  // As Machine::open(), whose memory a device does not take. The model must outlive it.
  static Expected<Computer> open(const OpenedModel& model, int64_t memory_mib = 0);

  // Bandwidth, and the speeds of the dots that are asked for and known: of a device none.
  Expected<Limits> measure(const std::array<bool, kernels::kDotCount>& wanted);

 private:
  Computer() = default;

  std::optional<Machine> machine_;
  OpenedDevice* device_ = nullptr;  // in the place of machine_
};

// Bytes that a device reads and writes in a second when it copies, or writes when it clears: the
// faster. Takes a part of the memory that is free there: kResourceExhausted if that is below 1 MiB;
// kInternal if the device is lost.
Expected<double> device_bandwidth(OpenedDevice& device);

}  // namespace aerie::measure
