#include "train/methods/training_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "train/batches/training_vocabulary.h"
#include "train/methods/eagle/continued_head.h"

// The methods, one line each: the name of what the method's file defines.
#define AERIE_TRAINING_METHODS(METHOD) \
  METHOD(kEagle3Training)              \
  METHOD(kPEagleTraining)              \
  METHOD(kDflashTraining)              \
  METHOD(kDsparkTraining)              \
  METHOD(kDistillTraining)             \
  METHOD(kEagleTraining)               \
  METHOD(kHassTraining)                \
  METHOD(kMtpTraining)                 \
  METHOD(kMedusaTraining)              \
  METHOD(kMedusa2Training)             \
  METHOD(kHydraTraining)               \
  METHOD(kRedrafterTraining)           \
  METHOD(kMlpSpeculatorTraining)       \
  METHOD(kLayerSkipTraining)

namespace aerie::train {

#define AERIE_DECLARE(method) extern const TrainingMethod method;
AERIE_TRAINING_METHODS(AERIE_DECLARE)
#undef AERIE_DECLARE

namespace {

// What else stands after `aerie train`, or in a method's place.
constexpr std::string_view kTakenWords[] = {"data", "speedup", "auto"};

std::vector<const TrainingMethod*>& registry() {
#define AERIE_ADDRESS(method) &(method),
  static std::vector<const TrainingMethod*> all = {AERIE_TRAINING_METHODS(AERIE_ADDRESS)};
#undef AERIE_ADDRESS
  return all;
}

}  // namespace

MakeMethod declare(const TrainingMethod& method, SettingList& settings) {
  return [make = method.declare(settings), vocab = settings.draft_vocab()](
             const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    if (vocab->ids != nullptr && !inputs.continued.empty()) {
      AERIE_ASSIGN_OR_RETURN(
          *vocab->ids, drafted_ids(inputs.continued, static_cast<int>(inputs.token_counts.size())));
    } else if (vocab->size > 0) {
      *vocab->ids = most_frequent(inputs.token_counts, vocab->size);
    }
    return make(inputs);
  };
}

std::span<const TrainingMethod* const> training_methods() {
  return registry();
}

const TrainingMethod* find_training_method(std::string_view name) {
  const auto found = std::ranges::find(registry(), name, &TrainingMethod::name);
  return found == registry().end() ? nullptr : *found;
}

Status add_training_method(const TrainingMethod& method) {
  const auto refuse = [&](std::string_view why) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("training method '{}': {}", method.name, why));
  };
  if (std::ranges::find(kTakenWords, method.name) != std::end(kTakenWords)) {
    return refuse("the name means something else");
  }
  if (find_training_method(method.name) != nullptr) return refuse("there is one of that name");
  if (method.name.empty() || method.name.front() == '-' ||
      method.name.find_first_of(" =,{}") != std::string_view::npos) {
    return refuse("the name is empty or cannot be typed as a command");
  }
  if (method.declare == nullptr) return refuse("it has no declare()");
  registry().push_back(&method);
  return {};
}

}  // namespace aerie::train
