#include "engine/placement/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/opened_model.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/temporary_model.h"

namespace aerie::memory_test {

using ::testing::HasSubstr;
constexpr int64_t kMiB = 1 << 20;

TEST(Memory, IsKnownHere) {
  EXPECT_GT(available_memory(), kMiB);
}

// The files of a machine's groups, below a folder of its own.
class Groups {
 public:
  explicit Groups(const std::string& groups_of_process) {
    write("/proc/self/cgroup", groups_of_process);
  }
  ~Groups() { std::filesystem::remove_all(root_); }
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << '\n';
  }
  void limit(const std::string& folder, const std::string& most, int64_t used,
             int64_t of_files = 0) const {
    write(folder + "/memory.max", most);
    write(folder + "/memory.current", std::to_string(used));
    write(folder + "/memory.stat", "anon 5\nfile 99999999999\ninactive_file " +
                                       std::to_string(of_files) + "\nactive_file 7");
  }
  int64_t left() const { return memory_of_groups(root_); }

 private:
  std::string root_ =
      (std::filesystem::temp_directory_path() / ("aerie_groups_" + std::to_string(getpid())))
          .string();
};

TEST(Memory, OfGroupsOfVersion2) {
  const Groups groups("0::/system.slice/aerie.service");
  EXPECT_EQ(groups.left(), -1);
  const std::string mount = "/sys/fs/cgroup";
  groups.limit(mount + "/system.slice/aerie.service", "max", 10 * kMiB);
  EXPECT_EQ(groups.left(), -1);
  groups.limit(mount + "/system.slice", std::to_string(100 * kMiB), 30 * kMiB);
  EXPECT_EQ(groups.left(), 70 * kMiB);
  groups.limit(mount + "/system.slice/aerie.service", std::to_string(50 * kMiB), 10 * kMiB);
  EXPECT_EQ(groups.left(), 40 * kMiB);
  // A model's file that was read counts as used, and is given up when the memory is wanted.
  groups.limit(mount + "/system.slice/aerie.service", std::to_string(50 * kMiB), 10 * kMiB,
               8 * kMiB);
  EXPECT_EQ(groups.left(), 48 * kMiB);
  groups.limit(mount + "/system.slice/aerie.service", std::to_string(50 * kMiB), 60 * kMiB);
  EXPECT_EQ(groups.left(), 0);
}

TEST(Memory, OfGroupsOfVersion1) {
  const Groups groups("9:name=systemd:/\n4:cpu,memory:/box/7\n3:cpuset:/box\n0::/");
  EXPECT_EQ(groups.left(), -1);
  const auto limit = [&](const std::string& folder, const std::string& most, int64_t used) {
    groups.write(folder + "/memory.limit_in_bytes", most);
    groups.write(folder + "/memory.usage_in_bytes", std::to_string(used));
    groups.write(folder + "/memory.stat", "inactive_file 0\ntotal_inactive_file 1048576");
  };
  // In a container its own group is the uppermost.
  limit("/sys/fs/cgroup/memory", std::to_string(200 * kMiB), 50 * kMiB);
  EXPECT_EQ(groups.left(), 151 * kMiB);
  limit("/sys/fs/cgroup/memory/box/7", std::to_string(90 * kMiB), 50 * kMiB);
  EXPECT_EQ(groups.left(), 41 * kMiB);
}

TEST(Memory, OfWordsThatAreNoGroups) {
  EXPECT_EQ(Groups("").left(), -1);
  EXPECT_EQ(Groups("nonsense\n0\n::\n0::").left(), -1);
  const Groups outside("0::/../../elsewhere");
  outside.limit("/sys/fs/cgroup", std::to_string(3 * kMiB), kMiB);
  EXPECT_EQ(outside.left(), 2 * kMiB);
}

TEST(Memory, HeedsLimitsOfTheProcess) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer needs all of the address space";
  for (const int resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit before = {};
    ASSERT_EQ(getrlimit(static_cast<__rlimit_resource>(resource), &before), 0);
    rlimit less = before;
    less.rlim_cur = int64_t{8} << 30;
    ASSERT_EQ(setrlimit(static_cast<__rlimit_resource>(resource), &less), 0);
    const int64_t left = memory_of_limits();
    const int64_t available = available_memory();
    ASSERT_EQ(setrlimit(static_cast<__rlimit_resource>(resource), &before), 0);
    EXPECT_GT(left, kMiB);
    EXPECT_LT(left, int64_t{8} << 30);
    EXPECT_LE(available, left);
  }
}

TEST(Memory, TakesWhatFits) {
  EXPECT_TRUE(check_memory("m", {50 * kMiB, 30 * kMiB, 20 * kMiB}, 100 * kMiB).ok());
  EXPECT_FALSE(check_memory("m", {50 * kMiB, 30 * kMiB, 20 * kMiB + 1}, 100 * kMiB).ok());
  EXPECT_TRUE(check_memory("m", {50 * kMiB, 30 * kMiB, 20 * kMiB}, -1).ok());
}

TEST(Memory, SaysWhatDoesNotFit) {
  const Status status = check_memory("big.gguf", {50 * kMiB, 30 * kMiB, 20 * kMiB}, 70 * kMiB);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  for (const char* part : {"big.gguf", "50 MiB", "30 MiB", "20 MiB", "70 MiB that are available",
                           "30 MiB are missing", "smaller"}) {
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
}

// The cache of an engine has, of a layer with a window, places for what its sequences see and for
// as much that is kept, and the rows of a pass.
TEST(MemoryOfWindows, IsThatOfWhatIsSeen) {
  test::TinySpec spec;
  spec.vocab = test::kByteVocab;
  spec.tokenizer = true;
  spec.context = 8192;
  spec.window = 100;
  const test::TemporaryModel file("windows", spec);
  EngineOptions options;
  options.model = file.path();
  options.context = 8192;
  options.threads = 1;
  Concurrency concurrency;
  concurrency.sequences = 3;
  concurrency.cache_positions = Concurrency::kRoom;
  const auto opened = open_model(options, concurrency);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const KvCache& cache = *opened->cache;
  EXPECT_EQ(cache.positions(), 3 * (8192 + 64));
  ASSERT_NE(cache.windows(), nullptr);
  const int64_t rows = (opened->decoder.max_rows + 63) / 64;
  EXPECT_EQ(cache.windows()->places(), (options.reuse_prefixes ? 6 : 3) * (3 + 2) + rows);
  // One of the two layers has a window.
  EXPECT_EQ(cache.bytes(), (cache.pages() + cache.windows()->places()) * cache.layout().page());
}

}  // namespace aerie::memory_test
