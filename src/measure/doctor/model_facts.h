// What running a model takes, from its files alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "draft/speculative_config.h"
#include "measure/doctor/drafter_facts.h"
#include "measure/passes/floor.h"

namespace aerie::measure {

// The work of a pass if the model's float matrices were of another type.
struct ConvertedWork {
  std::string type;  // as --type has it
  PassWork work;
};

struct ModelFacts {
  std::string path;
  std::string family;
  std::string type;  // that most of its bytes are of: "q4_0"
  int64_t parameters = 0;
  int64_t file_bytes = 0;
  int trained_context = 0;
  int context = 0;  // of what follows
  // Bytes of memory.
  int64_t weight_bytes = 0;
  int64_t cache_bytes = 0;
  int64_t work_bytes = 0;
  // The same of a device's; an error: no device computes it.
  Status device_status;
  int64_t device_weight_bytes = 0;
  int64_t device_cache_bytes = 0;
  int64_t device_work_bytes = 0;
  PassWork work;
  std::vector<ConvertedWork> conversions;  // none unless there are float matrices

  std::vector<DrafterFacts> drafters;

  int64_t bytes() const;  // with those of its drafters
};

// As `aerie run` would open it with this instruction set: `context` 0 is the model's own, at most
// EngineOptions::default_context. kInvalidArgument, saying what to do, for a draft head and for a
// context that the model does not have; else the errors of open_model_source() and
// read_model_config(), of packing types that have no place here, and of read_drafter_facts().
Expected<ModelFacts> read_model_facts(const std::string& path, int context, kernels::Isa isa,
                                      ThreadPool& pool, const SpeculativeConfig& speculation = {});

}  // namespace aerie::measure
