// The flags that all methods share.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>

#include "base/status.h"
#include "train/run/training_run.h"

namespace CLI {
class App;
}

namespace aerie::train {

// Adds the flags with the defaults of `settings`; the returned function turns what was parsed into
// settings, among them what stands in config.json of all flags of `app`, those of others included.
// It must not outlive `app`.
std::function<Expected<TrainSettings>()> add_train_flags(CLI::App& app,
                                                         const TrainSettings& settings);

// "90", "90s", "30m", "2h", "1.5h" as seconds. kInvalidArgument, naming the flag, for anything
// else.
Expected<double> parse_duration(const std::string& flag, const std::string& text);

// "cpu", "cuda", "cuda:1". kInvalidArgument for what is none, kUnsupported for what is not there.
Expected<at::Device> parse_device(const std::string& text);

}  // namespace aerie::train
