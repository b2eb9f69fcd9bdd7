// Turns between what would all use every core.
#include "base/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace aerie::turns_test {

using std::chrono::milliseconds;

// Takes turns of so long until it is told to stop. How many it had.
class Worker {
 public:
  Worker(std::shared_ptr<Turns> turns, milliseconds each, std::atomic<int>& inside,
         std::atomic<bool>& overlap) {
    thread_ = std::thread([this, turns = std::move(turns), each, &inside, &overlap] {
      Turns::Member member(turns);
      while (!stop_) {
        member.begin();
        if (inside.fetch_add(1) != 0) overlap = true;
        std::this_thread::sleep_for(each);
        inside.fetch_sub(1);
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

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> turns_ = 0;
  std::thread thread_;
};

TEST(Turns, OneAtATimeAndEqualTimeWhateverATurnTakes) {
  const auto turns = std::make_shared<Turns>();
  std::atomic<int> inside = 0;
  std::atomic<bool> overlap = false;
  Worker slow(turns, milliseconds(20), inside, overlap);
  Worker quick(turns, milliseconds(2), inside, overlap);
  std::this_thread::sleep_for(milliseconds(600));
  slow.stop();
  quick.stop();
  EXPECT_FALSE(overlap);
  // Turn by turn both would have had as many.
  EXPECT_GT(quick.turns(), 4 * slow.turns());
  EXPECT_GT(slow.turns(), 6);
}

TEST(Turns, OneThatComesLateIsNotAheadOfTheOthers) {
  const auto turns = std::make_shared<Turns>();
  std::atomic<int> inside = 0;
  std::atomic<bool> overlap = false;
  Worker first(turns, milliseconds(2), inside, overlap);
  std::this_thread::sleep_for(milliseconds(400));
  Worker second(turns, milliseconds(2), inside, overlap);
  std::this_thread::sleep_for(milliseconds(20));
  const int before = first.turns();
  std::this_thread::sleep_for(milliseconds(200));
  // It would wait for 400 ms if the other had them to make up for.
  EXPECT_GT(first.turns() - before, 10);
  EXPECT_GT(second.turns(), 10);
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
