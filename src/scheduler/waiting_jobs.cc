#include "scheduler/waiting_jobs.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace aerie {

// One that comes anew begins where the one that got least stands, so that neither idling nor a new
// name is worth anything.
void WaitingJobs::enter(const Job& job) {
  const auto found = clients_.find(job.client);
  if (found != clients_.end()) {
    ++found->second.jobs;
    return;
  }
  double least = 0.0;
  bool first = true;
  for (const auto& [name, client] : clients_) {
    least = first ? client.charged : std::min(least, client.charged);
    first = false;
  }
  clients_[job.client] = {least, 1};
}

void WaitingJobs::leave(const Job& job) {
  const auto found = clients_.find(job.client);
  assert(found != clients_.end());
  if (--found->second.jobs == 0) clients_.erase(found);
}

void WaitingJobs::add(std::unique_ptr<Job> job) {
  // One that was preempted is known already.
  if (job->preemptions == 0) enter(*job);
  const Place place{job->priority, job->arrival};
  jobs_[place] = std::move(job);
  ++size_;
}

WaitingJobs::Jobs::iterator WaitingJobs::find_next() {
  auto best = jobs_.begin();
  if (best == jobs_.end()) return best;
  const int priority = best->first.first;
  double least = clients_.at(best->second->client).charged;
  for (auto at = std::next(best); at != jobs_.end() && at->first.first == priority; ++at) {
    const double charged = clients_.at(at->second->client).charged;
    if (charged < least) {
      least = charged;
      best = at;
    }
  }
  return best;
}

const Job* WaitingJobs::next() const {
  const auto found = const_cast<WaitingJobs*>(this)->find_next();
  return found == jobs_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Job> WaitingJobs::take() {
  const auto found = find_next();
  if (found == jobs_.end()) return nullptr;
  std::unique_ptr<Job> job = std::move(found->second);
  jobs_.erase(found);
  --size_;
  return job;
}

std::vector<std::unique_ptr<Job>> WaitingJobs::take_if(
    const std::function<bool(const Job&)>& wanted) {
  std::vector<std::unique_ptr<Job>> taken;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    if (!wanted(*at->second)) {
      ++at;
      continue;
    }
    taken.push_back(std::move(at->second));
    at = jobs_.erase(at);
    --size_;
  }
  return taken;
}

void WaitingJobs::charge(const Job& job, double tokens) {
  clients_.at(job.client).charged += tokens;
}

void WaitingJobs::ended(const Job& job) {
  leave(job);
}

}  // namespace aerie
