// Mapped files that others cut short, overwrite or replace while they are read.

#include "format/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing/sanitized.h"

namespace aerie::mapped_file_test {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr size_t kBytes = size_t{1} << 20;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() : path_(fmt::format("{}aerie_mapped_{}", testing::TempDir(), getpid())) {
    overwrite('x');
    // So that a later time is another one, however coarse the clock of files is.
    fs::last_write_time(path_, fs::last_write_time(path_) - std::chrono::seconds(10));
  }
  ~MappedFileTest() override { fs::remove(path_); }

  void overwrite(char byte) const {
    std::ofstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    if (!file) file.open(path_, std::ios::binary);
    file << std::string(kBytes, byte);
  }
  static size_t count(const MappedFile& file, char byte) {
    return static_cast<size_t>(std::ranges::count(file.bytes(), static_cast<std::byte>(byte)));
  }

  std::string path_;
};

TEST_F(MappedFileTest, IsIntactIfNobodyTouchesIt) {
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(count(*file, 'x'), kBytes);
  EXPECT_TRUE(file->check().ok());
}

TEST_F(MappedFileTest, CutShortGivesZerosAndAnError) {
  auto opened = MappedFile::open(path_);
  ASSERT_TRUE(opened.ok());
  const MappedFile file = std::move(*opened);
  ASSERT_EQ(truncate(path_.c_str(), 10000), 0);
  EXPECT_EQ(count(file, 'x'), 10000u);
  EXPECT_EQ(count(file, '\0'), kBytes - 10000);
  EXPECT_EQ(file.check().code(), StatusCode::kInvalidData);
  EXPECT_THAT(file.check().message(), HasSubstr(path_));
  // What has its length again has not its bytes.
  overwrite('x');
  EXPECT_FALSE(file.check().ok());
}

TEST_F(MappedFileTest, SeveralThreadsMeetTheEnd) {
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  std::vector<size_t> zeros(4);
  std::vector<std::thread> threads;
  for (size_t& one : zeros) threads.emplace_back([&] { one = count(*file, '\0'); });
  for (std::thread& thread : threads) thread.join();
  for (const size_t one : zeros) EXPECT_EQ(one, kBytes);
  EXPECT_FALSE(file->check().ok());
}

TEST_F(MappedFileTest, OneOfManyIsCutShort) {
  std::vector<MappedFile> files;
  for (int i = 0; i < 8; ++i) files.push_back(*MappedFile::open(path_));
  const std::string other = path_ + ".other";
  fs::copy_file(path_, other);
  {
    const auto whole = MappedFile::open(other);
    ASSERT_TRUE(whole.ok());
    ASSERT_EQ(truncate(path_.c_str(), 0), 0);
    files.erase(files.begin());
    for (const MappedFile& file : files) EXPECT_EQ(count(file, '\0'), kBytes);
    EXPECT_EQ(count(*whole, 'x'), kBytes);
    EXPECT_TRUE(whole->check().ok());
  }
  fs::remove(other);
}

TEST_F(MappedFileTest, OverwrittenIsAnError) {
  for (const char byte : {'x', 'y', '\0'}) {
    const auto file = MappedFile::open(path_);
    ASSERT_TRUE(file.ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    overwrite(byte);
    EXPECT_EQ(file->check().code(), StatusCode::kInvalidData) << byte;
  }
}

TEST_F(MappedFileTest, ReplacedIsAsItWas) {
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  const std::string next = path_ + ".next";
  std::ofstream(next) << "another";
  fs::rename(next, path_);
  EXPECT_TRUE(file->check().ok());
  EXPECT_EQ(count(*file, 'x'), kBytes);
  fs::remove(path_);
  EXPECT_TRUE(file->check().ok());
}

// Another mapping's end is the process's, as ever.
TEST_F(MappedFileTest, OthersAreNotWatched) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own handler ends the process";
  const auto watched = MappedFile::open(path_);
  ASSERT_TRUE(watched.ok());
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    const auto* bytes =
        static_cast<const volatile char*>(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, fd, 0));
    if (truncate(path_.c_str(), 0) != 0) _exit(1);
    _exit(bytes[kBytes / 2]);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

}  // namespace aerie::mapped_file_test
