// What speculation gains in production: a random share of the requests that may speculate is
// answered plainly, and the times that tokens take are compared. Which requests these are depends
// on nothing, so that what else differs between the two groups is chance, which the interval
// bounds.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "aerie/request.h"
#include "server/rollout/reply_times.h"

namespace aerie::server {

// Thread-safe.
class Holdback {
 public:
  // Whose requests are compared: a setting of speculation (as Service::speculations() has it), and
  // a class that clients give. Of classes the first kMostClasses are told apart.
  struct Group {
    std::string method;
    std::string traffic_class;

    auto operator<=>(const Group&) const = default;
  };
  static constexpr size_t kMostClasses = 32;
  static constexpr const char* kOtherClass = "other";

  // `share` of the requests are held back: 0 (none) to 1. With `gates`, all but that share of those
  // for whom speculation is slower by the whole interval, until that is so no more.
  explicit Holdback(double share, bool gates = false) : share_(share), gates_(gates) {}

  // Whether a request that may speculate is to be answered plainly.
  bool draw(const Group& group);
  // A reply that ended. One of fewer than kLeastTokens, or that was cut off, says nothing of times.
  void on_end(Group group, bool held_back, const ReplyEnd& end);

  struct Figures {
    Group group;
    int64_t speculated = 0;  // replies that count
    int64_t held_back = 0;
    int64_t drafted = 0;  // tokens
    int64_t accepted = 0;
    // Mean time for a token after the first, plainly, over the same with speculation, and its
    // interval of 95 %.
    Speedup speedup;
    bool is_gated = false;
  };
  std::vector<Figures> figures() const;

  static constexpr int kLeastTokens = ReplyTimes::kLeastTokens;
  static constexpr int kLeastReplies = 5;  // in each group, for a speed-up

 private:
  struct Record {
    ReplyTimes speculated, held_back;
    int64_t drafted = 0, accepted = 0;
  };

  static Speedup speedup_of(const Record& record);
  bool is_gated(const Record& record) const;
  Group known(Group group) const;

  const double share_;
  const bool gates_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_{std::random_device{}()};
  std::map<Group, Record> records_;
};

}  // namespace aerie::server
