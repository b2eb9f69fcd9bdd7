// Turns between what would all use every core.
#include "base/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace aerie::turns_test {

using std::chrono::milliseconds;

// Takes turns of so long until it is told to stop. How many it had, and the time that they took: on
// a busy machine that is more than they were to take.
class Worker {
 public:
  Worker(std::shared_ptr<Turns> turns, milliseconds each, std::atomic<int>& inside,
         std::atomic<bool>& overlap) {
    thread_ = std::thread([this, turns = std::move(turns), each, &inside, &overlap] {
      Turns::Member member(turns);
      while (!stop_) {
        member.begin();
        const SteadyTime began = steady_now();
        if (inside.fetch_add(1) != 0) overlap = true;
        std::this_thread::sleep_for(each);
        inside.fetch_sub(1);
        seconds_ = seconds_ + seconds_since(began);
        ++turns_;
        member.end(true);
      }
    });
  }
  ~Worker() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int turns() const { return turns_; }
  double seconds() const { return seconds_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> turns_ = 0;
  std::atomic<double> seconds_ = 0.0;
  std::thread thread_;
};

bool within_a_minute(const std::function<bool()>& condition) {
  const SteadyTime begin = steady_now();
  while (!condition()) {
    if (seconds_since(begin) > 60.0) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

TEST(Turns, OneAtATimeAndEqualTimeWhateverATurnTakes) {
  const auto turns = std::make_shared<Turns>();
  std::atomic<int> inside = 0;
  std::atomic<bool> overlap = false;
  Worker slow(turns, milliseconds(20), inside, overlap);
  Worker quick(turns, milliseconds(2), inside, overlap);
  ASSERT_TRUE(within_a_minute([&] { return slow.turns() > 0 && quick.turns() > 0; }));
  const double slow_before = slow.seconds(), quick_before = quick.seconds();
  ASSERT_TRUE(within_a_minute([&] { return slow.turns() > 15; }));
  slow.stop();
  quick.stop();
  EXPECT_FALSE(overlap);
  // Turn by turn both would have had as many, and the quick one a tenth of the time.
  EXPECT_GT(quick.turns(), slow.turns());
  const double ratio = (quick.seconds() - quick_before) / (slow.seconds() - slow_before);
  EXPECT_GT(ratio, 0.4);
  EXPECT_LT(ratio, 2.5);
}

TEST(Turns, OneThatComesLateIsNotAheadOfTheOthers) {
  const auto turns = std::make_shared<Turns>();
  std::atomic<int> inside = 0;
  std::atomic<bool> overlap = false;
  Worker first(turns, milliseconds(2), inside, overlap);
  ASSERT_TRUE(within_a_minute([&] { return first.seconds() > 0.4; }));
  Worker second(turns, milliseconds(2), inside, overlap);
  ASSERT_TRUE(within_a_minute([&] { return second.turns() > 0; }));
  const double first_before = first.seconds(), second_before = second.seconds();
  ASSERT_TRUE(within_a_minute([&] { return second.seconds() - second_before > 0.15; }));
  // It would wait for 400 ms if the other had them to make up for.
  EXPECT_GT(first.seconds() - first_before, 0.3 * (second.seconds() - second_before));
}

TEST(Turns, OneThatGoesLetsTheOthersGoOn) {
  const auto turns = std::make_shared<Turns>();
  {
    Turns::Member lost(turns);
    lost.begin();
  }
  Turns::Member other(turns);
  other.begin();
  other.end(false);
}

}  // namespace aerie::turns_test
