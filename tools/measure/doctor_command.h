// `aerie doctor`: see measure/doctor/diagnosis.h and docs/doctor.md.
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace aerie {

// Adds the flags to `app`; the returned function looks at machine and model and gives the exit
// status: 1 if the model cannot run, else 0. It must not outlive `app`.
std::function<Expected<int>()> add_doctor_flags(CLI::App& app);

}  // namespace aerie
