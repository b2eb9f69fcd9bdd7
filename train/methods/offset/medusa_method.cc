#include "train/methods/offset/medusa_method.h"

#include <utility>

#include "train/methods/training_methods.h"

namespace aerie::train {

extern const TrainingMethod kMedusaTraining;

namespace {

class Medusa final : public Method {
 public:
  explicit Medusa(MedusaHeads heads) : heads_(std::move(heads)) { needs_.last = true; }

  const MethodNeeds& needs() const override { return needs_; }
  Parameters& parameters() override { return heads_.parameters(); }
  double weight(const Batch& batch) const override { return heads_.offsets().weight(batch); }
  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& /*none*/,
                               bool train) override {
    return heads_.accumulate(batch, heads_.offsets().states(batch), scale, train);
  }
  Status write(const std::string& folder) const override { return heads_.write(folder); }
  DraftSettings settings() const override {
    return DraftSettings::of(kMedusaTraining.drafter, heads_.options().heads);
  }

 private:
  MedusaHeads heads_;
  MethodNeeds needs_;
};

MakeMethod declare_medusa(SettingList& settings) {
  const auto o = std::make_shared<MedusaOptions>();
  o->add_to(settings);
  return made_of(o, make_medusa);
}

}  // namespace

Expected<std::unique_ptr<Method>> make_medusa(Target& target, const MedusaOptions& options,
                                              at::Generator& /*generator*/) {
  AERIE_ASSIGN_OR_RETURN(MedusaHeads heads, MedusaHeads::create(target, options));
  return std::unique_ptr<Method>(std::make_unique<Medusa>(std::move(heads)));
}

constinit const TrainingMethod kMedusaTraining = {
    .name = "medusa",
    .what = "Medusa: heads that each foresee one token further",
    .drafter = "medusa",
    .schedule = {.rate = 1e-3, .warmup = 0.1, .floor = 0.0},
    .declare = declare_medusa,
};

}  // namespace aerie::train
