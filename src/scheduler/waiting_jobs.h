// Who comes next: priorities first, then clients in turns, then the order of arrival.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "scheduler/job.h"

namespace aerie {

// Clients of a priority share what there is evenly: the next job is of the one that was charged
// least since it last had nothing to do. Not thread-safe.
class WaitingJobs {
 public:
  void add(std::unique_ptr<Job> job);

  // The next job; null if none waits. Stays where it is.
  const Job* next() const;
  // Takes it out.
  std::unique_ptr<Job> take();
  // Takes out all for which `wanted` is true.
  std::vector<std::unique_ptr<Job>> take_if(const std::function<bool(const Job&)>& wanted);

  // The client of a job that waits or was taken used up so much, in tokens.
  void charge(const Job& job, double tokens);
  // A job that was taken has ended.
  void ended(const Job& job);

  size_t size() const { return size_; }

 private:
  struct Client {
    double charged = 0.0;
    int jobs = 0;  // that wait or were taken
  };
  using Place = std::pair<int, uint64_t>;  // priority, arrival
  using Jobs = std::map<Place, std::unique_ptr<Job>>;

  Jobs::iterator find_next();
  void enter(const Job& job);
  void leave(const Job& job);

  Jobs jobs_;
  std::unordered_map<std::string, Client> clients_;
  size_t size_ = 0;
};

}  // namespace aerie
