// `aerie speedup`: from a model to a draft head for it, measured, and a profile that says how to
// use it.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "train/speedup/speedup_options.h"

namespace aerie::train {

enum class SpeedupEnd : uint8_t { kDone, kInterrupted };

// OUT then holds
//   speedup.json   what was measured before, and how far it has come
//   prompts.jsonl  all prompts in the order in which they are answered
//   held-out.jsonl those that nothing is trained on
//   data/, run/    as `aerie train data` and `aerie train METHOD` leave them
//   head/          what users load, with its model card
//   profile.json   as `aerie tune` writes it
//   report.json    all figures
// With the same options it goes on with what is there; when all of it is, it says so.
//
// kInvalidArgument, saying what to do, for options that cannot be, a budget in which too little
// would be learned, and a folder that was begun with other options; kResourceExhausted if there is
// not enough room on the disk; else errors of the stages. What is finished stays in any case.
Expected<SpeedupEnd> speedup(const SpeedupOptions& options);

}  // namespace aerie::train
