#include "train/methods/offset/medusa_method.h"

#include <utility>

namespace aerie::train {
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
  DraftSettings settings() const override { return {heads_.speculate()}; }

 private:
  MedusaHeads heads_;
  MethodNeeds needs_;
};

}  // namespace

Expected<std::unique_ptr<Method>> make_medusa(Target& target, const MedusaOptions& options,
                                              at::Generator& /*generator*/) {
  AERIE_ASSIGN_OR_RETURN(MedusaHeads heads, MedusaHeads::create(target, options));
  return std::unique_ptr<Method>(std::make_unique<Medusa>(std::move(heads)));
}

}  // namespace aerie::train
