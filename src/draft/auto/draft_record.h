// What the controller knows of one drafter.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/token_tree.h"
#include "draft/auto/calibration.h"
#include "draft/auto/call_time.h"
#include "draft/drafter.h"
#include "sampling/noise.h"

namespace aerie {

// The target's noise for a sequence if it counts (the exact rule above temperature 0) and the
// drafter's own estimates do without it. The target draws the token of the largest log p_i + g_i
// (sampling/noise.h), so that a token of little noise is drawn less often than others of the same
// chance.
class UnseenNoise {
 public:
  UnseenNoise() = default;
  UnseenNoise(const DraftSequence& sequence, const Drafter& drafter);

  // Of a token at a position that stands so often, all noise taken together.
  double chance(double usual, uint64_t position, int32_t token) const;

 private:
  NoiseKey key_;
  double weight_ = 0.0;  // of the noise in the logarithm of the odds; 0: it tells nothing
};

// How often drafts went on being right, by depth. Counts of the past fade.
class DepthRecord {
 public:
  static constexpr int kDepths = 32;
  static constexpr double kHopeful = 0.7;  // what is believed before there is an outcome

  // `horizon`: past outcomes of a depth that count.
  explicit DepthRecord(double horizon, double hopeful = kHopeful)
      : keep_(1.0 - 1.0 / horizon), hopeful_(hopeful) {}

  // The chance that depth d + 1 stands where depth d did, d from 0. Where little is known it goes
  // by `general` (may be null).
  double estimate(int d, const DepthRecord* general) const;
  // Tokens that are to be expected of a chain of so many.
  double tokens(int depth, const DepthRecord* general) const;
  void learn(int d, bool stood);
  // A round in which it was asked for so many levels: whether one more would stand is known less.
  void grow_old(int depth);

 private:
  double keep_, hopeful_;
  std::array<FadingShare, kDepths> cells_ = {};
};

// One drafter's last draft for one sequence, and how its drafts have fared there.
struct DraftRecord {
  UnseenNoise noise;
  TokenTree tree;
  std::vector<Calibration::Claim> claims;  // of each node
  Calibration calibration{60};
  // Levels that were drafted and stood, given the level above; of a draft that ended by itself
  // above the depth that was asked for, the next one did not.
  DepthRecord depths{60};
  int asked = 0;           // that depth; 0: what is not drafted says nothing
  size_t read = 0;         // tokens of the sequence that it knew when it was last asked
  bool is_read = true;     // those were all
  bool looks = false;      // it is asked to see what it is worth, and reads yet
  bool looked_at = false;  // its draft is of such a look
  bool came_true = false;  // so was the one before, and its first token stood

  double arrears(size_t tokens) const { return static_cast<double>(tokens - read); }
  // It was asked for a sequence of so many tokens. How many it has read in that call.
  double note(size_t tokens, int unread) {
    const size_t before =
        std::exchange(read, tokens - std::min(tokens, static_cast<size_t>(unread)));
    is_read = unread == 0;
    looked_at = looks;
    looks = looks && !is_read;
    return static_cast<double>(read - std::min(before, read));
  }
};

// How a drafter's drafts have fared, over all sequences of a tenant.
struct TenantRecord {
  Calibration calibration{600};
  DepthRecord depths{100};
  // Of the same, how often a level was drafted where the one above was.
  DepthRecord levels{100, 1.0};
  FadingShare onward;  // how often levels but the first stood, of those drafted behind one that did
  // A fading mean over its trees.
  double nodes_per_level = 1.0;
  int64_t trees = 0;
  // Rounds since it was last asked for any of them, and how many of them there may be.
  int idle = 0;
  int patience = 16;

  // A draft of at most so many levels; 0: their number says nothing.
  void measure(const TokenTree& tree, int asked);
};

// A drafter, and what it costs, over all sequences: of what they say nothing is kept here.
struct ControlledDrafter {
  static constexpr int kUsualArrears = 16;  // tokens of a sequence that come with any call

  explicit ControlledDrafter(std::unique_ptr<Drafter> owned) : drafter(std::move(owned)) {}

  std::unique_ptr<Drafter> drafter;
  // Fading means over the calls that could be timed.
  int64_t timed = 0;
  double seconds = 0.0;          // of a call
  CallTime call;                 // by the depth of its deepest tree
  double batch = 1.0;            // requests of a call
  double reading_seconds = 0.0;  // of each token that it has to make up for, beside a call
  bool whole = false;            // has made trees that cannot be cut
  bool asked = false;            // in this round
  bool warned = false;           // that it takes long

  // A call took so long, in which it may have had so many tokens of a sequence to make up for (at
  // most). What is `least` is no matter. Whether it was a usual one.
  bool time(double call_seconds, std::span<const DraftRequest> requests, double arrears,
            double least);
  // Says so, once, where drafting a token takes more than a quarter of what the target takes for
  // one. Requires that it was timed.
  void warn_if_dear(double plain_seconds);
  // All but that it was warned of.
  void forget();
};

// Puts corrected estimates on the nodes of record.tree, which follows so many tokens, and remembers
// what the drafter said.
void calibrate(DraftRecord& record, const TenantRecord& general, size_t length);

// `truth`: the tokens that came after the root. How many of them the draft had.
int judge(std::span<const int32_t> truth, DraftRecord& record, TenantRecord& general);

}  // namespace aerie
