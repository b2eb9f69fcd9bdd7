// Whose turn it is to use the processor's cores, among what would all use every one of them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"

namespace aerie {

// Thread-safe. Each member has one thread that takes turns. Of those that have something to do, the
// one goes next that has had the least time so far; a member that comes, or comes back after it had
// nothing to do, is treated as if it had had as much as the one whose turn it was last.
class Turns {
 public:
  class Member {
   public:
    explicit Member(std::shared_ptr<Turns> turns);
    ~Member();  // ends its turn, too
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // Waits until it is its turn, which lasts until end().
    void begin();
    // `goes_on`: it asks again at once, and may be waited for until it does.
    void end(bool goes_on);

   private:
    friend class Turns;
    const std::shared_ptr<Turns> turns_;
    double seconds_ = 0.0;
    bool active_ = false;  // has something to do
    SteadyTime began_;
  };

 private:
  // All with the lock.
  const Member* next() const;

  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<Member*> members_;
  const Member* running_ = nullptr;
  double now_ = 0.0;  // what the one whose turn it was last had had before it
};

}  // namespace aerie
