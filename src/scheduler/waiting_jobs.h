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
// least. One that has had nothing waiting begins level with those that have, so that what it did
// not ask for earlier is no credit (the virtual token counter of Sheng et al., "Fairness in Serving
// Large Language Models", section 4). Not thread-safe.
class WaitingJobs {
 public:
  void add(std::unique_ptr<Job> job);

  using Filter = std::function<bool(const Job&)>;

  // The next job of those that `may_be`; null if there is none. Stays where it is.
  const Job* next(const Filter& may_be) const;
  // Takes it out.
  std::unique_ptr<Job> take(const Filter& may_be);
  // Takes out all for which `wanted` is true.
  std::vector<std::unique_ptr<Job>> take_if(const Filter& wanted);

  // The client of a job that waits or was taken used up so much, in tokens.
  void charge(const Job& job, double tokens);
  // A job that was taken has ended.
  void ended(const Job& job);

  size_t size() const { return jobs_.size(); }

 private:
  struct Client {
    double charged = 0.0;
    int jobs = 0;     // that wait or were taken
    int waiting = 0;  // of these, those that wait
  };
  using Place = std::pair<int, uint64_t>;  // priority, arrival
  using Jobs = std::map<Place, std::unique_ptr<Job>>;

  Jobs::iterator find_next(const Filter& may_be);
  std::unique_ptr<Job> take_out(Jobs::iterator at);
  void enter(const Job& job);
  void leave(const Job& job);

  Jobs jobs_;
  std::unordered_map<std::string, Client> clients_;
  double last_charged_ = 0.0;  // of the client whose job was taken last, then
};

}  // namespace aerie
