#include "scheduler/waiting_jobs.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace aerie {

void WaitingJobs::enter(const Job& job) {
  Client& client = clients_[job.client];
  if (client.waiting == 0) {
    double least = last_charged_;
    bool first = true;
    for (const auto& [name, other] : clients_) {
      if (other.waiting == 0) continue;
      least = first ? other.charged : std::min(least, other.charged);
      first = false;
    }
    client.charged = std::max(client.charged, least);
  }
  ++client.jobs;
}

void WaitingJobs::leave(const Job& job) {
  const auto found = clients_.find(job.client);
  assert(found != clients_.end());
  if (--found->second.jobs == 0) clients_.erase(found);
}

void WaitingJobs::add(std::unique_ptr<Job> job) {
  // One that was preempted is known already.
  if (job->preemptions == 0) enter(*job);
  ++clients_.at(job->client).waiting;
  const Place place{job->priority, job->arrival};
  jobs_[place] = std::move(job);
}

WaitingJobs::Jobs::iterator WaitingJobs::find_next(const Filter& may_be) {
  auto best = jobs_.end();
  double least = 0.0;
  for (auto at = jobs_.begin(); at != jobs_.end(); ++at) {
    if (best != jobs_.end() && at->first.first != best->first.first) break;
    const double charged = clients_.at(at->second->client).charged;
    if ((best != jobs_.end() && charged >= least) || !may_be(*at->second)) continue;
    least = charged;
    best = at;
  }
  return best;
}

std::unique_ptr<Job> WaitingJobs::take_out(Jobs::iterator at) {
  std::unique_ptr<Job> job = std::move(at->second);
  jobs_.erase(at);
  --clients_.at(job->client).waiting;
  return job;
}

const Job* WaitingJobs::next(const Filter& may_be) const {
  const auto found = const_cast<WaitingJobs*>(this)->find_next(may_be);
  return found == jobs_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Job> WaitingJobs::take(const Filter& may_be) {
  const auto found = find_next(may_be);
  if (found == jobs_.end()) return nullptr;
  std::unique_ptr<Job> job = take_out(found);
  last_charged_ = clients_.at(job->client).charged;
  return job;
}

std::vector<std::unique_ptr<Job>> WaitingJobs::take_if(const Filter& wanted) {
  std::vector<std::unique_ptr<Job>> taken;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    const auto next = std::next(at);
    if (wanted(*at->second)) taken.push_back(take_out(at));
    at = next;
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
