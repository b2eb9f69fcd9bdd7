#include "base/system/memory_nodes.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/system/topology.h"
#include "tests/testing/own_cpus.h"

namespace aerie::memory_nodes_test {

TEST(MemoryNodes, ThreadsAreSharedOutByCpus) {
  std::vector<int> four(4), twelve(12);
  std::iota(four.begin(), four.end(), 0);
  std::iota(twelve.begin(), twelve.end(), 4);
  const auto shared = [](const std::vector<std::vector<int>>& cpus, int threads) {
    std::vector<MemoryNode> nodes;
    for (const auto& own : cpus) nodes.push_back({static_cast<int>(nodes.size()), own});
    std::vector<int> result;
    for (int t = 0; t < threads; ++t) result.push_back(node_of_thread(nodes, t, threads).number);
    return result;
  };
  EXPECT_EQ(shared({four, four}, 8), (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(shared({four, four}, 3), (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(shared({four, twelve}, 4), (std::vector<int>{0, 1, 1, 1}));
  EXPECT_EQ(shared({four, twelve}, 1), (std::vector<int>{0}));
  EXPECT_EQ(shared({four}, 3), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(shared({four, four}, 20)[9], 0);
  EXPECT_EQ(shared({four, four}, 20)[10], 1);
}

TEST(MemoryNodes, AThreadStaysWhereItIsBound) {
  const std::vector<int> cpus = test::own_cpus();
  std::thread([&] {
    EXPECT_TRUE(bind_to_cpus({cpus.back()}));
    EXPECT_EQ(test::own_cpus(), std::vector<int>{cpus.back()});
    EXPECT_FALSE(bind_to_cpus({}));
    EXPECT_EQ(test::own_cpus(), std::vector<int>{cpus.back()});
  }).join();
  EXPECT_EQ(test::own_cpus(), cpus);
}

TEST(MemoryNodes, MemoryIsInterleaved) {
  const std::vector<MemoryNode> nodes = machine_topology().nodes;
  if (nodes.empty()) GTEST_SKIP() << "this system does not tell";
  constexpr size_t kBytes = size_t{1} << 22;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const bool done = interleave_memory(memory, kBytes, nodes);
  if (!done) {
    EXPECT_TRUE(errno == ENOSYS || errno == EPERM) << errno;
  }
  std::memset(memory, 1, kBytes);
  EXPECT_FALSE(interleave_memory(memory, kBytes, {}));
  EXPECT_FALSE(interleave_memory(memory, kBytes, {{1 << 20, {}}}));
  munmap(memory, kBytes);
}

}  // namespace aerie::memory_nodes_test
