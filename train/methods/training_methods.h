// The methods that drafters can be trained by.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "train/methods/setting_list.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"
#include "train/nn/adamw.h"
#include "train/run/schedule.h"

namespace aerie::train {

// What a method is made of, beside its settings.
struct MethodInputs {
  Target& target;
  at::Generator& generator;
  // Of each token of the vocabulary, how often the target generated it in the training data.
  std::span<const int64_t> token_counts;
  // A checkpoint that is trained further: what it drafts and, where the method can read it, its
  // shape go before the settings. Empty: there is none.
  std::string continued = {};
};
using MakeMethod = std::function<Expected<std::unique_ptr<Method>>(const MethodInputs&)>;

// Keeps the options and calls `make` with what they hold then.
template <typename Options>
MakeMethod made_of(const std::shared_ptr<Options>& options,
                   Expected<std::unique_ptr<Method>> (*make)(Target&, const Options&,
                                                             at::Generator&)) {
  return [options, make](const MethodInputs& inputs) {
    return make(inputs.target, *options, inputs.generator);
  };
}

// All that there is to say of a method; its file defines one. Defaults are those of papers and of
// their authors' code, where these give any.
struct TrainingMethod {
  std::string_view name;  // after `aerie train`, in a run's config.json and on model cards
  std::string_view what;  // one line of help
  // The drafter (draft/method.h) that loads what is trained: "eagle3".
  std::string_view drafter;

  // Defaults of TrainOptions.
  Schedule schedule = {};
  AdamWOptions adamw = {};
  double clip_norm = 0.0;
  double clip_value = 0.0;

  // Lists its settings; the returned function keeps their fields (made_of()).
  MakeMethod (*declare)(SettingList& settings) = nullptr;

  // How many tokens of a draft `aerie speedup` tries; empty: it does not train by this method. It
  // takes the first that it can unless it is told another. The drafter needs no more than "model".
  std::span<const int> speedup_depths = {};
  // What `aerie speedup` sets otherwise than the method's default.
  std::span<const SettingValue> speedup_settings = {};
};

// Lists the method's settings. The returned function makes it of what their fields hold then.
MakeMethod declare(const TrainingMethod& method, SettingList& settings);

// In the order in which they are listed.
std::span<const TrainingMethod* const> training_methods();
const TrainingMethod* find_training_method(std::string_view name);  // null: there is none

// One more, after those that are there; it and what it names must outlive all use. Not thread-safe:
// before flags are added. kInvalidArgument, saying what is wrong, for a name that is taken or
// cannot be a subcommand's, and for a method without declare().
Status add_training_method(const TrainingMethod& method);

}  // namespace aerie::train
