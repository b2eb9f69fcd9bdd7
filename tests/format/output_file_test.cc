// Where output goes: files appear whole or not at all, links are followed, devices and pipes are
// written to as they are.

#include "format/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "format/input_file.h"
#include "tests/testing/file_size_limit.h"

namespace aerie::output_file_test {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() : folder_(fmt::format("{}aerie_output_{}", testing::TempDir(), getpid())) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string content(const std::string& name) const { return read_file(path(name)).value(); }
  std::vector<std::string> names() const { return names_in(folder_); }
  static Status write(OutputFile& file, std::string_view text) {
    return file.write(std::as_bytes(std::span(text)));
  }

  std::string folder_;
};

TEST_F(OutputFileTest, ReplacesAFileWhole) {
  ASSERT_TRUE(write_file(path("a"), "before").ok());
  chmod(path("a").c_str(), 0640);
  {
    auto file = OutputFile::create(path("a"));
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_TRUE(write(*file, "after").ok());
    EXPECT_EQ(content("a"), "before");
    ASSERT_TRUE(file->commit().ok());
  }
  EXPECT_EQ(content("a"), "after");
  EXPECT_THAT(names(), ElementsAre("a"));
  struct stat info = {};
  ASSERT_EQ(stat(path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

TEST_F(OutputFileTest, LeavesNothingWithoutCommit) {
  {
    auto file = OutputFile::create(path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(write(*file, "half").ok());
  }
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(OutputFileTest, AFullDiskKeepsWhatWasThere) {
  ASSERT_TRUE(write_file(path("a"), "before").ok());
  {
    const test::FileSizeLimit limit(10);
    EXPECT_EQ(write_file(path("a"), "longer than that").code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(content("a"), "before");
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(OutputFileTest, FollowsLinks) {
  fs::create_directory(path("sub"));
  ASSERT_TRUE(write_file(path("sub/file"), "before").ok());
  fs::create_symlink("second", path("first"));
  fs::create_symlink("sub/file", path("second"));
  fs::create_symlink("sub/new", path("dangling"));
  ASSERT_TRUE(write_file(path("first"), "one").ok());
  ASSERT_TRUE(write_file(path("dangling"), "two").ok());
  EXPECT_EQ(content("sub/file"), "one");
  EXPECT_EQ(content("sub/new"), "two");
  for (const char* link : {"first", "second", "dangling"}) {
    EXPECT_TRUE(fs::is_symlink(path(link))) << link;
  }
  EXPECT_THAT(names_in(path("sub")), ElementsAre("file", "new"));
}

TEST_F(OutputFileTest, ALinkToItselfIsAnError) {
  fs::create_symlink("loop", path("loop"));
  EXPECT_THAT(write_file(path("loop"), "x").message(), HasSubstr(path("loop")));
  EXPECT_THAT(names(), ElementsAre("loop"));
}

TEST_F(OutputFileTest, WritesThroughAPipe) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", path("link"));
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_file(path("pipe"), "one").ok());
  ASSERT_TRUE(write_file(path("link"), "two").ok());
  std::array<char, 16> buffer;
  ASSERT_EQ(read(reader, buffer.data(), buffer.size()), 6);
  EXPECT_EQ(std::string(buffer.data(), 6), "onetwo");
  close(reader);
  EXPECT_THAT(names(), ElementsAre("link", "pipe"));
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

// A node of the same kind in a place where nothing is lost; not everyone may make one.
TEST_F(OutputFileTest, WritesThroughADevice) {
  struct stat full = {};
  ASSERT_EQ(stat("/dev/full", &full), 0);
  std::string device = path("full");
  if (mknod(device.c_str(), S_IFCHR | 0600, full.st_rdev) != 0 || access(device.c_str(), W_OK)) {
    ASSERT_NE(geteuid(), 0u) << "root would replace the system's own in a failure";
    device = "/dev/full";
  }
  const Status status = write_file(device, "x");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr(device));
  EXPECT_TRUE(fs::is_character_file(device));
}

// Behind what was written there already, and by that descriptor.
TEST_F(OutputFileTest, OwnDescriptorsGoOn) {
  const int fd = open(path("a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write_all(fd, "one "), 0);
  for (const char* form : {"/dev/fd/{}", "/proc/self/fd/{}"}) {
    ASSERT_TRUE(write_file(fmt::format(fmt::runtime(form), fd), "two ").ok()) << form;
  }
  fs::create_symlink(fmt::format("/dev/fd/{}", fd), path("link"));
  ASSERT_TRUE(write_file(path("link"), "three ").ok());
  ASSERT_EQ(write_all(fd, "four"), 0);
  EXPECT_EQ(content("a"), "one two two three four");
  close(fd);
  EXPECT_FALSE(write_file(fmt::format("/dev/fd/{}", fd), "x").ok());
  EXPECT_EQ(content("a"), "one two two three four");
}

TEST_F(OutputFileTest, NamesWhatCannotBeWritten) {
  EXPECT_THAT(write_file(folder_, "x").message(), HasSubstr("not a regular file"));
  const Status missing = write_file(path("nowhere/a"), "x");
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(path("nowhere/a")));
  ASSERT_TRUE(write_file(path("a"), "x").ok());
  EXPECT_FALSE(write_file(path("a/b"), "x").ok());
  EXPECT_THAT(names(), ElementsAre("a"));
}

}  // namespace aerie::output_file_test
