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

  // `share` of the requests are held back: 0 (none) to 1.
  explicit Holdback(double share) : share_(share) {}

  // Whether the next request that may speculate is to be answered plainly.
  bool draw();
  // A reply that ended. One of fewer than kLeastTokens, or that was cut off, says nothing of times.
  void on_end(Group group, bool held_back, const ReplyEnd& end);

  struct Figures {
    Group group;
    int64_t speculated = 0;  // replies that count
    int64_t held_back = 0;
    int64_t drafted = 0;  // tokens
    int64_t accepted = 0;
    // Mean time for a token after the first, plainly, over the same with speculation, and its
    // interval of 95 % (of the ratio of two means, by the delta method on its logarithm). 0: not
    // enough replies in one of the groups.
    double speedup = 0.0;
    double low = 0.0;
    double high = 0.0;
  };
  std::vector<Figures> figures() const;

  static constexpr int kLeastTokens = 8;
  static constexpr int kLeastReplies = 5;  // in each group, for a speed-up

 private:
  // Of times for a token: Welford's running mean and squares ("Note on a method for calculating
  // corrected sums of squares and products", Technometrics 4, 1962).
  struct Times {
    int64_t count = 0;
    double mean = 0.0;
    double squares = 0.0;
    void add(double seconds);
    double relative_variance() const;  // of the mean
  };
  struct Record {
    Times speculated, held_back;
    int64_t drafted = 0, accepted = 0;
  };

  const double share_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_{std::random_device{}()};
  std::map<Group, Record> records_;
};

}  // namespace aerie::server
