// What comes of a request: tokens, how it ended, and figures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "aerie/sampling.h"

namespace aerie {

enum class FinishReason : uint8_t {
  kNone,    // still going
  kStop,    // a stop condition
  kLength,  // max_tokens, or the context is full
  kError,   // its grammar asks for too much to go on; what there is may begin an output that fits
};
std::string_view finish_reason_name(
    FinishReason reason);  // "none", "stop", "length", "error": OpenAI's words, the last one vLLM's

// What becomes of a prompt that is not answered: one vector out of the states of its tokens, behind
// the model's last norm.
enum class Pooling : uint8_t {
  kNone,  // it is answered
  kLast,  // the last token's
  kMean,  // the mean of all
};

// How an emitted token came about.
enum class TokenOrigin : uint8_t {
  kTarget,      // no draft was at stake: the prompt's first token, or plain decoding
  kAccepted,    // drafted and accepted
  kCorrection,  // the target's own, where a draft was refused
  kBonus,       // the target's own, after a draft that was accepted whole
};

struct EmittedToken {
  int32_t id = 0;
  TokenOrigin origin = TokenOrigin::kTarget;
  std::vector<TokenLogprob> logprobs;  // empty unless asked for
};

// Of a drafter that was tried on paper (Request::shadow).
struct ShadowStats {
  int64_t rounds = 0;                // behind which it drafted
  int64_t drafted = 0;               // nodes
  int64_t accepted = 0;              // those that the text then was
  std::vector<int64_t> accepted_at;  // by depth
  double seconds = 0.0;              // of drafting
};

// Figures of one sequence.
struct SequenceStats {
  int64_t rounds = 0;        // target passes after the prompt
  int64_t round_tokens = 0;  // tokens that those emitted
  int64_t drafted = 0;       // nodes proposed
  int64_t accepted = 0;      // nodes accepted and emitted
  // By depth, from the root's children: rounds that proposed so deep, rounds accepted so deep.
  std::vector<int64_t> proposed_at;
  std::vector<int64_t> accepted_at;
  ShadowStats shadow;

  // Tokens for each target pass, the correction or bonus counted; 0 before the first round.
  double mean_accepted_length() const {
    return rounds == 0 ? 0.0 : static_cast<double>(round_tokens) / static_cast<double>(rounds);
  }
  double acceptance_rate() const {
    return drafted == 0 ? 0.0 : static_cast<double>(accepted) / static_cast<double>(drafted);
  }
};

enum class Stage : uint8_t { kPrefill, kDraft, kVerify, kSample, kCommit, kOther };
inline constexpr int kStages = 6;
std::string_view stage_name(
    Stage stage);  // "prefill", "draft", "verify", "sample", "commit", "other"

struct StageTimes {
  std::array<double, kStages> seconds = {};
  double of(Stage stage) const { return seconds[static_cast<size_t>(stage)]; }
};

}  // namespace aerie
