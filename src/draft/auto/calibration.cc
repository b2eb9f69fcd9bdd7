#include "draft/auto/calibration.h"

#include <algorithm>
#include <iterator>

namespace aerie {
namespace {

constexpr float kEdges[] = {0.02f, 0.05f, 0.1f, 0.2f, 0.35f, 0.55f, 0.75f, 0.9f};
// Nothing is certain enough to make a deeper chain free.
constexpr double kMost = 0.99;

}  // namespace

Calibration::Calibration(double horizon) : keep_(1.0 - 1.0 / horizon) {}

Calibration::Claim Calibration::claim(const TokenTree& tree, int node) {
  const TokenTree::Node& at = tree.nodes[static_cast<size_t>(node)];
  float said = at.probability;
  if (at.parent >= 0) {
    const float above = tree.nodes[static_cast<size_t>(at.parent)].probability;
    said = above > 0 ? std::min(1.0f, said / above) : 0.0f;
  }
  static_assert(std::size(kEdges) + 1 == kSteps);
  const auto* edge = std::upper_bound(std::begin(kEdges), std::end(kEdges), said);
  const auto cell = static_cast<int>(edge - std::begin(kEdges));
  return {static_cast<uint8_t>(cell + (at.parent < 0 ? 0 : kSteps)), said};
}

double Calibration::estimate(Claim claim, const Calibration* general) const {
  const double prior =
      general == nullptr ? static_cast<double>(claim.said) : general->estimate(claim, nullptr);
  return std::min(kMost, cells_[claim.cell].estimate(prior));
}

void Calibration::learn(Claim claim, bool stood) {
  cells_[claim.cell].learn(stood, keep_);
}

}  // namespace aerie
