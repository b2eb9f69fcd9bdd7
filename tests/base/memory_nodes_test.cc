#include "base/memory_nodes.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

namespace aerie::memory_nodes_test {

namespace fs = std::filesystem;

std::vector<int> own_cpus() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// A folder such as the kernel shows.
class Nodes {
 public:
  Nodes() { fs::create_directories(path_); }
  ~Nodes() { fs::remove_all(path_); }
  void add(const std::string& name, const std::string& cpus) const {
    fs::create_directories(fs::path(path_) / name);
    std::ofstream(fs::path(path_) / name / "cpulist") << cpus << "\n";
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = testing::TempDir() + "aerie_nodes_" + std::to_string(getpid());
};

TEST(MemoryNodes, OfThisMachineHoldEveryCpu) {
  std::vector<int> listed;
  for (const MemoryNode& node : memory_nodes()) {
    listed.insert(listed.end(), node.cpus.begin(), node.cpus.end());
  }
  if (listed.empty()) GTEST_SKIP() << "this system does not tell";
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(listed, own_cpus());
}

TEST(MemoryNodes, AreReadAsTheKernelWritesThem) {
  const std::vector<int> cpus = own_cpus();
  const std::string first = std::to_string(cpus.front());
  const Nodes folder;
  folder.add("node10", "0-" + std::to_string(cpus.back()));
  folder.add("node2", first + ",1020-1023");  // the latter most likely not for this process
  folder.add("node3", "");                    // memory alone
  folder.add("nodes", first);
  folder.add("node5x", first);
  folder.add("power", first);
  fs::create_directories(folder.path() + "/node6");  // without a list
  const std::vector<MemoryNode> nodes = memory_nodes(folder.path());
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].number, 2);
  EXPECT_EQ(nodes[0].cpus.front(), cpus.front());
  if (cpus.back() < 1020) {
    EXPECT_EQ(nodes[0].cpus.size(), 1u);
  }
  EXPECT_EQ(nodes[1], (MemoryNode{10, cpus}));
}

TEST(MemoryNodes, OddListsAreNoNodes) {
  const Nodes folder;
  int number = 0;
  for (const char* list : {"-", "x", "5-3", "-1", "99999999999999", "0-999999", ",", " 0", ""}) {
    folder.add("node" + std::to_string(number++), list);
  }
  EXPECT_TRUE(memory_nodes(folder.path()).empty());
  EXPECT_TRUE(memory_nodes(folder.path() + "/absent").empty());
}

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
  const std::vector<int> cpus = own_cpus();
  std::thread([&] {
    EXPECT_TRUE(bind_to_cpus({cpus.back()}));
    EXPECT_EQ(own_cpus(), std::vector<int>{cpus.back()});
    EXPECT_FALSE(bind_to_cpus({}));
    EXPECT_EQ(own_cpus(), std::vector<int>{cpus.back()});
  }).join();
  EXPECT_EQ(own_cpus(), cpus);
}

TEST(MemoryNodes, MemoryIsInterleaved) {
  const std::vector<MemoryNode> nodes = memory_nodes();
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
