// Ranks that are threads of one process: a model that several of them run.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "format/model_file.h"
#include "model/model.h"
#include "parallel/rank_group.h"

namespace aerie::test {

// What all ranks share, and each rank's view of it.
class ThreadGroup {
 public:
  // Sees, and may change, what a rank is about to give the others.
  using Spoil = std::function<void(int rank, std::span<std::byte> part)>;

  explicit ThreadGroup(int ranks, Spoil spoil = nullptr);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  std::shared_ptr<Group> rank(int rank);
  // The leader leaves: who listens hears nothing more.
  void leave();

 private:
  struct Shared;
  class OfRank;
  std::shared_ptr<Shared> shared_;
};

// The leader's model, loaded with these options but for its backend, which is split; the other
// ranks have a thread each, which ends with the object. Fails the test for any error.
class ThreadRanks {
 public:
  ThreadRanks(const ModelFile& file, const ModelOptions& options, int ranks,
              ThreadGroup::Spoil spoil = nullptr);
  ~ThreadRanks();
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  Model& leader() { return *leader_; }

 private:
  ThreadGroup group_;
  std::shared_ptr<Group> first_;
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<std::thread> others_;
  std::unique_ptr<Model> leader_;
};

}  // namespace aerie::test
