// Which experts the rows of a pass use, and the order in which their products are made: rows by
// expert, so that each expert that is used is read once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/blueprint.h"

namespace aerie {

// The `used` experts that a row's logits [experts] favour, the most favoured first and of equals
// the one with the smaller index, with their weights. `corrections`: [experts], or null. Infinities
// and NaN choose some experts and weigh them with NaN. Allocates nothing. Requires 1 <= used, and
// as many experts in the groups that are used, which divide logits.size() evenly and are at most
// kMostExpertGroups.
inline constexpr int kMostExpertGroups = 64;
void choose_experts(std::span<const float> logits, const ExpertRouter& router,
                    const float* corrections, int used, int32_t* chosen, float* weights);

// Reused from pass to pass. Allocates when it is made alone.
class ExpertRouting {
 public:
  ExpertRouting(int max_rows, int experts, int used);

  // From the logits [rows][experts] of a pass; weights are times `scale`.
  void route(const float* logits, int64_t rows, const ExpertRouter& router,
             const float* corrections = nullptr, float scale = 1.0f);

  // The pairs of a row and an expert that it uses, sorted by expert and then by row: of each, the
  // row.
  std::span<const int32_t> rows() const { return rows_; }
  // The experts that are used, ascending, and their pairs.
  std::span<const int32_t> experts() const { return experts_; }
  std::span<const kernels::RowGroup> groups() const { return groups_; }
  // Of row r's experts, the most favoured first: [r][used] indices of their pairs, and weights.
  std::span<const int32_t> places() const { return places_; }
  const float* weights() const { return weights_.data(); }
  int used() const { return used_; }

 private:
  int count_, used_;
  std::vector<int32_t> chosen_, places_, rows_, experts_, ends_;
  std::vector<float> weights_;
  std::vector<kernels::RowGroup> groups_;
};

}  // namespace aerie
