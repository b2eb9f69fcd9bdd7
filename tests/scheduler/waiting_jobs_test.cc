#include "scheduler/waiting_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aerie::waiting_jobs_test {

using ::testing::ElementsAre;

bool any(const Job&) {
  return true;
}

class WaitingJobsTest : public testing::Test {
 protected:
  void add(JobId id, const std::string& client, int priority = 0) {
    auto job = std::make_unique<Job>();
    job->id = id;
    job->client = client;
    job->priority = priority;
    job->arrival = arrivals_++;
    jobs_.add(std::move(job));
  }
  // Takes all, each costing so many tokens.
  std::vector<JobId> take_all(double tokens) {
    std::vector<JobId> order;
    while (jobs_.next(any) != nullptr) {
      const JobId next = jobs_.next(any)->id;
      std::unique_ptr<Job> job = jobs_.take(any);
      EXPECT_EQ(job->id, next);
      order.push_back(job->id);
      jobs_.charge(*job, tokens);
      taken_.push_back(std::move(job));
    }
    return order;
  }

  WaitingJobs jobs_;
  std::vector<std::unique_ptr<Job>> taken_;
  uint64_t arrivals_ = 0;
};

TEST_F(WaitingJobsTest, OneClientsComeInTheOrderOfArrival) {
  for (JobId id = 1; id <= 4; ++id) add(id, "");
  EXPECT_EQ(jobs_.size(), 4u);
  EXPECT_THAT(take_all(10), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(jobs_.next(any), nullptr);
  EXPECT_EQ(jobs_.take(any), nullptr);
}

TEST_F(WaitingJobsTest, LowerPrioritiesComeFirst) {
  add(1, "a", 5);
  add(2, "b", 0);
  add(3, "a", -1);
  add(4, "a", 0);
  EXPECT_THAT(take_all(1), ElementsAre(3, 2, 4, 1));
}

TEST_F(WaitingJobsTest, ClientsTakeTurnsHoweverManyJobsTheyHave) {
  for (JobId id = 1; id <= 4; ++id) add(id, "many");
  add(5, "few");
  add(6, "few");
  EXPECT_THAT(take_all(10), ElementsAre(1, 5, 2, 6, 3, 4));
}

TEST_F(WaitingJobsTest, WhatIsUsedUpCountsNotTheNumberOfJobs) {
  for (JobId id = 1; id <= 3; ++id) add(id, "short");
  for (JobId id = 11; id <= 12; ++id) add(id, "long");
  std::vector<JobId> order;
  while (std::unique_ptr<Job> job = jobs_.take(any)) {
    order.push_back(job->id);
    jobs_.charge(*job, job->client == "long" ? 100.0 : 10.0);
    taken_.push_back(std::move(job));
  }
  EXPECT_THAT(order, ElementsAre(1, 11, 2, 3, 12));
}

TEST_F(WaitingJobsTest, ANewClientDoesNotComeBeforeAllThatOthersHaveHad) {
  add(1, "old");
  add(2, "old");
  add(3, "old");
  std::unique_ptr<Job> first = jobs_.take(any);
  jobs_.charge(*first, 1000);
  add(4, "new");
  add(5, "new");
  EXPECT_THAT(take_all(10), ElementsAre(2, 4, 3, 5));
  // Neither does one that had nothing to do for a while.
  jobs_.ended(*first);
  for (const auto& job : taken_) jobs_.ended(*job);
  add(6, "old");
  add(7, "new");
  add(8, "old");
  EXPECT_THAT(take_all(10), ElementsAre(6, 7, 8));
}

// What a client with little to do does not ask for is no credit for later.
TEST_F(WaitingJobsTest, NothingIsSavedUp) {
  add(1, "busy");
  add(2, "slow");
  std::unique_ptr<Job> busy = jobs_.take(any);
  std::unique_ptr<Job> slow = jobs_.take(any);
  jobs_.charge(*slow, 10);
  jobs_.charge(*busy, 1000);
  add(11, "busy");
  add(12, "busy");
  for (JobId id = 21; id <= 23; ++id) add(id, "slow");
  EXPECT_THAT(take_all(100), ElementsAre(11, 21, 12, 22, 23));
  jobs_.ended(*busy);
  jobs_.ended(*slow);
}

TEST_F(WaitingJobsTest, PassesOver) {
  for (JobId id = 1; id <= 3; ++id) add(id, "", id == 3 ? 1 : 0);
  const auto later = [](const Job& job) { return job.id > 1; };
  EXPECT_EQ(jobs_.next(later)->id, 2u);
  taken_.push_back(jobs_.take(later));
  EXPECT_EQ(jobs_.next(later)->id, 3u);
  EXPECT_EQ(jobs_.next([](const Job&) { return false; }), nullptr);
  EXPECT_THAT(take_all(1), ElementsAre(1, 3));
}

TEST_F(WaitingJobsTest, TakesOutWhatIsAskedFor) {
  for (JobId id = 1; id <= 5; ++id) add(id, "");
  const auto odd = jobs_.take_if([](const Job& job) { return job.id % 2 == 1; });
  ASSERT_EQ(odd.size(), 3u);
  EXPECT_EQ(odd[1]->id, 3u);
  EXPECT_THAT(take_all(1), ElementsAre(2, 4));
}

}  // namespace aerie::waiting_jobs_test
