#include "train/data/running_target.h"

#include <fmt/format.h>

#include <utility>

namespace aerie::train {

Expected<std::unique_ptr<RunningTarget>> RunningTarget::open(const RunningTargetOptions& options) {
  if (options.sequences < 1 || options.sequences > 1024) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a batch of {}: give 1 to 1024", options.sequences));
  }
  EngineOptions engine_options;
  engine_options.model = options.model;
  engine_options.threads = options.threads;
  engine_options.device = options.device;
  engine_options.context = options.context;
  engine_options.default_context = RunningTargetOptions::kDefaultContext;
  Concurrency concurrency;
  concurrency.sequences = options.sequences;
  concurrency.cache_positions = Concurrency::kAll;
  concurrency.max_taps = options.max_taps;
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::open(engine_options, concurrency));
  RunningTargetOptions own = options;
  own.threads = engine->parts().options.threads;
  own.context = engine->parts().options.context;
  return std::unique_ptr<RunningTarget>(new RunningTarget(own, std::move(engine)));
}

}  // namespace aerie::train
