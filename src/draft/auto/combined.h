// Several drafters as one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "draft/drafter.h"
#include "draft/speculative_config.h"

namespace aerie {

// What they want together, null ones left out. kUnsupported if they want more layers tapped than a
// model hands out (ModelOptions::max_taps).
Expected<DrafterNeeds> common_needs(std::span<const std::unique_ptr<Drafter>> drafters);

// Commits with the taps of all (common_needs()), as each drafter wants them. Not thread-safe.
// Allocates only while there are more taps than ever before.
class OwnTaps {
 public:
  explicit OwnTaps(std::vector<int32_t> all) : all_(std::move(all)) {}
  // Holds until the next call.
  std::span<const DraftCommit> of(const Drafter& drafter, std::span<const DraftCommit> commits);

 private:
  std::vector<int32_t> all_;
  std::vector<size_t> places_;  // of the drafter's layers among all
  std::vector<DraftCommit> commits_;
  std::vector<float> taps_;
};

// With kFirst, each sequence's draft is that of the first drafter that has one. With kMerge all
// draft, and their trees are merged by token prefix (SpecInfer, Miao et al. 2305.09781).
//
// What is cut where there is no room for all depends on DraftNoise. kTarget: each drafter may use
// up all nodes, and the likeliest stay (draft/tree/tree_growth.h). kOwn: nothing that was drawn may
// be cut because of its value, so each is asked for its share of the nodes, max_nodes / n, the
// first max_nodes % n of them for one more; everything stays, each proposal with its distribution,
// in the drafters' order (TokenTree::proposals). What one leaves of its share the others do not
// get. Under a rule that takes chains alone (DraftSequence::trees) kMerge is kFirst.
//
// Drafters draw independently of each other: under kOwn each is opened with a choice of its own.
//
// Errors are those of common_needs(). Requires at least one drafter, and not Combination::kAuto
// (draft/auto/controller.h).
Expected<std::unique_ptr<Drafter>> combine_drafters(std::vector<std::unique_ptr<Drafter>> drafters,
                                                    Combination combination);

}  // namespace aerie
