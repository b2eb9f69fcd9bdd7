// When a new setting of speculation takes the place of the present one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/rollout/reply_times.h"

namespace aerie::server {

// What replies to requests that took no setting themselves have shown.
struct SettingFigures {
  ReplyTimes times;
  int64_t tokens = 0;   // of those replies
  int64_t drafted = 0;  // tokens
  int64_t accepted = 0;

  int64_t replies() const { return times.count(); }
  // One that ReplyTimes::add() does not take says nothing of a draft either.
  void add(const ReplyEnd& end);
};

// Replies of both groups are decoded together, and who is in which is drawn, so times can be
// compared. The interval is one of three standard errors: it is looked at after every reply.
struct RolloutRule {
  std::vector<double> steps = {0.1, 0.5};  // the candidate's share of the requests, rising
  int least_replies = 20;   // of the candidate in a step, before its times decide anything
  int most_replies = 1000;  // of both groups: what is not shown to be better by then is not
  double least_gain = 1.0;  // a step, and at last promotion: its speed-up is above that for sure
  double most_tail = 1.1;   // times the present setting's 99th percentile, that few may exceed
  double least_accepted = 0.05;  // drafts that stood, of the tokens of its replies

  static constexpr double kWidth = 3.0;
};

struct Verdict {
  enum class Kind : uint8_t { kWait, kNextStep, kPromote, kRollBack };
  Kind kind = Kind::kWait;
  std::string why;  // for the log
};

// `replies_in_step`: of the candidate.
Verdict judge(const RolloutRule& rule, size_t step, int64_t replies_in_step,
              const SettingFigures& present, const SettingFigures& candidate);

}  // namespace aerie::server
