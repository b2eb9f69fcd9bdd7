#include "base/system/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <thread>

#include "tests/testing/own_cpus.h"

namespace aerie::topology_test {

std::string file(const std::string& name) {
  std::ifstream in("tests/base/system/" + name);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<int> numbers(int first, int last) {
  std::vector<int> all(static_cast<size_t>(last - first + 1));
  std::iota(all.begin(), all.end(), first);
  return all;
}

TEST(Topology, OfThisMachine) {
  const Topology t = machine_topology();
  EXPECT_EQ(t.usable, static_cast<int>(test::own_cpus().size()));
  EXPECT_GE(t.processors, t.usable);
  EXPECT_GE(t.usable, t.cores);
  EXPECT_GE(t.cores, t.performance_cores);
  EXPECT_GE(t.performance_cores, t.threads());
  EXPECT_GE(t.threads(), 1);
  EXPECT_EQ(default_threads(), t.threads());
  std::vector<int> cpus;
  for (const MemoryNode& node : t.nodes) {
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  }
  std::ranges::sort(cpus);
  if (!cpus.empty()) {
    EXPECT_EQ(cpus, test::own_cpus());
  }
}

TEST(Topology, IsOfTheThreadThatAsks) {
  const std::vector<int> cpus = test::own_cpus();
  const Topology before = machine_topology();
  std::thread([&] {
    ASSERT_TRUE(bind_to_cpus({cpus.back()}));
    const Topology t = machine_topology();
    EXPECT_EQ(t.usable, 1);
    EXPECT_EQ(t.cores, 1);
    EXPECT_EQ(t.processors, before.processors);
    EXPECT_EQ(default_threads(), 1);
  }).join();
  EXPECT_EQ(test::own_cpus(), cpus);
  EXPECT_EQ(machine_topology(), before);
}

TEST(Topology, OfCoresThatAreAlike) {
  const Topology t = described_topology("l3:1 core:4 pu:1");
  EXPECT_EQ(t.processors, 4);
  EXPECT_EQ(t.usable, 4);
  EXPECT_EQ(t.cores, 4);
  EXPECT_EQ(t.performance_cores, 4);
  EXPECT_EQ(t.l3_cores, std::vector<int>{4});
  EXPECT_EQ(t.nodes, (std::vector<MemoryNode>{{0, {0, 1, 2, 3}}}));
  EXPECT_EQ(t.threads(), 4);
  EXPECT_EQ(t.threads_reason(), "one for each of 4 cores");
}

TEST(Topology, OfHyperthreads) {
  const Topology t = described_topology("core:4 pu:2");
  EXPECT_EQ(t.usable, 8);
  EXPECT_EQ(t.cores, 4);
  EXPECT_TRUE(t.l3_cores.empty());
  EXPECT_EQ(t.at_once(), 8);
  EXPECT_EQ(t.threads(), 4);
  EXPECT_EQ(t.threads_reason(), "one for each of 4 cores, none for hyperthreads");
}

TEST(Topology, OfTwoPackages) {
  const std::string two = "pack:2 [numa] l3:1 core:4 pu:2";
  const Topology t = described_topology(two);
  EXPECT_EQ(t.cores, 8);
  EXPECT_EQ(t.l3_cores, (std::vector<int>{4, 4}));
  EXPECT_EQ(t.nodes, (std::vector<MemoryNode>{{0, numbers(0, 7)}, {1, numbers(8, 15)}}));
  EXPECT_EQ(t.threads(), 8);
  const Topology second = described_topology(two, numbers(7, 12));
  EXPECT_EQ(second.processors, 16);
  EXPECT_EQ(second.usable, 6);
  EXPECT_EQ(second.cores, 4);  // of the first and the last one hyperthread
  EXPECT_EQ(second.l3_cores, (std::vector<int>{3, 1}));
  EXPECT_EQ(second.nodes, (std::vector<MemoryNode>{{0, {7}}, {1, numbers(8, 12)}}));
  EXPECT_EQ(second.threads(), 4);
}

TEST(Topology, OfPerformanceAndEfficiencyCores) {
  const std::string hybrid = file("performance_and_efficiency.xml");
  const Topology t = described_topology(hybrid);
  EXPECT_EQ(t.usable, 8);
  EXPECT_EQ(t.cores, 6);
  EXPECT_EQ(t.performance_cores, 2);  // though one of them clocks higher
  EXPECT_EQ(t.l3_cores, std::vector<int>{6});
  EXPECT_EQ(t.threads(), 2);
  EXPECT_EQ(t.threads_reason(),
            "one for each of 2 performance cores, none for 4 efficiency cores, none for "
            "hyperthreads");
  const Topology mixed = described_topology(hybrid, {3, 4, 5});
  EXPECT_EQ(mixed.cores, 3);
  EXPECT_EQ(mixed.threads(), 1);
  const Topology slow = described_topology(hybrid, {4, 5, 6});
  EXPECT_EQ(slow.performance_cores, 3);
  EXPECT_EQ(slow.threads(), 3);
  EXPECT_EQ(slow.threads_reason(), "one for each of 3 cores");
}

// As phones have them: the single fastest core is not the only one worth a thread.
TEST(Topology, OfThreeKindsOfCores) {
  const Topology t = described_topology(file("three_capacities.xml"));
  EXPECT_EQ(t.cores, 8);
  EXPECT_EQ(t.performance_cores, 4);
  EXPECT_EQ(described_topology(file("three_capacities.xml"), numbers(0, 3)).threads(), 4);
}

TEST(Topology, WithinAQuota) {
  const auto with = [](double quota) { return described_topology("core:4 pu:2", {}, quota); };
  EXPECT_EQ(with(1.5).quota, 1.5);
  EXPECT_EQ(with(1.5).threads(), 1);
  EXPECT_EQ(with(1.5).at_once(), 1);
  EXPECT_EQ(with(1.5).threads_reason(), "as many as the container's quota pays for");
  EXPECT_EQ(with(0.2).threads(), 1);
  EXPECT_EQ(with(3).threads(), 3);
  EXPECT_EQ(with(4).threads_reason(), "one for each of 4 cores, none for hyperthreads");
  EXPECT_EQ(with(6).threads(), 4);
  EXPECT_EQ(with(6).at_once(), 6);
  EXPECT_EQ(with(100).at_once(), 8);
  EXPECT_EQ(described_topology("core:4 pu:2", {0}, 6).threads(), 1);
}

TEST(Topology, OfWhatIsNoDescription) {
  for (const char* text : {"<no", "<topology version=\"2.0\"></topology>", "nonsense:2", "\n"}) {
    EXPECT_EQ(described_topology(text), Topology()) << text;
  }
  EXPECT_EQ(described_topology("core:2 pu:1", {77}).threads(), 1);
}

}  // namespace aerie::topology_test
