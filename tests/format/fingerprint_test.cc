// What a fingerprint tells apart, and files that are read by position.
#include "format/fingerprint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "format/gguf/gguf.h"
#include "format/input_file.h"
#include "tests/format/gguf/gguf_writer.h"

namespace aerie::fingerprint_test {

namespace fs = std::filesystem;

class FingerprintTest : public testing::Test {
 protected:
  void SetUp() override { write(0, "one"); }
  void TearDown() override { fs::remove(path_); }

  // Three tensors of 4 KiB: the bytes of the middle one are `fill`.
  void write(uint8_t fill, const std::string& name) {
    test::GgufWriter writer;
    writer.add_string("general.name", name);
    for (const char* tensor : {"a", "b", "c"}) {
      const uint8_t byte = tensor[0] == 'b' ? fill : uint8_t{9};
      writer.add_tensor_bytes(tensor, DType::kF32, {1024},
                              std::vector<std::byte>(4096, std::byte{byte}));
    }
    ASSERT_TRUE(writer.write(path_).ok());
    set_time(1000);
  }
  void set_time(int64_t seconds) const {
    const timespec times[2] = {{seconds, 5}, {seconds, 5}};
    ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  }
  uint64_t get() const {
    auto file = GgufFile::open(path_);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return *fingerprint(**file);
  }
  uint64_t get_content() const {
    auto file = GgufFile::open(path_);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return *content_fingerprint(**file);
  }
  // Of tensor b, at its byte `at`.
  void change_byte(int64_t at) const {
    int64_t offset = 0;
    {
      auto file = GgufFile::open(path_);
      ASSERT_TRUE(file.ok());
      offset = (*file)->find_tensor("b")->offset;
    }
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset + at);
    file.put('\x55');
    file.close();
    set_time(1000);
  }

  const std::string path_ =
      fmt::format("{}aerie_{}_fingerprint.gguf", testing::TempDir(), getpid());
};

TEST_F(FingerprintTest, OfTheContentIsThatOfACopy) {
  const uint64_t first = get_content();
  const uint64_t with_time = get();
  set_time(2000);
  EXPECT_EQ(get_content(), first);
  EXPECT_NE(get(), with_time);
  change_byte(1);
  EXPECT_NE(get_content(), first);
  write(0, "two");
  EXPECT_NE(get_content(), first);
}

TEST_F(FingerprintTest, IsThatOfTheFile) {
  const uint64_t first = get();
  EXPECT_EQ(get(), first);
  write(0, "one");
  EXPECT_EQ(get(), first);
  const std::string moved = path_ + ".moved";
  fs::rename(path_, moved);
  fs::copy_file(moved, path_);
  fs::remove(moved);
  set_time(1000);
  EXPECT_EQ(get(), first) << "a copy with the same time";
}

TEST_F(FingerprintTest, SeesTimes) {
  const uint64_t first = get();
  set_time(1001);
  EXPECT_NE(get(), first);
}

TEST_F(FingerprintTest, SeesTheHeader) {
  const uint64_t first = get();
  write(0, "two");
  EXPECT_NE(get(), first);
}

TEST_F(FingerprintTest, SeesTheEndsAndTheMiddleOfEveryTensor) {
  const uint64_t first = get();
  for (const int64_t at : {0, 255, 2048, 3900, 4095}) {
    write(0, "one");
    change_byte(at);
    EXPECT_NE(get(), first) << "byte " << at;
  }
  // The limit that the header states.
  write(0, "one");
  change_byte(1000);
  EXPECT_EQ(get(), first);
}

TEST_F(FingerprintTest, OfBytesInMemory) {
  std::ifstream in(path_, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  auto file = GgufFile::parse(std::as_bytes(std::span(text)), "memory");
  ASSERT_TRUE(file.ok());
  EXPECT_NE(*fingerprint(**file), get()) << "there is no time";
}

TEST_F(FingerprintTest, InputFileReadsByPosition) {
  auto file = InputFile::open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size(), static_cast<int64_t>(fs::file_size(path_)));
  EXPECT_EQ(file->modified(), int64_t{1000} * 1'000'000'000 + 5);
  char magic[4];
  ASSERT_TRUE(file->read(0, std::as_writable_bytes(std::span(magic))).ok());
  EXPECT_EQ(std::string(magic, 4), "GGUF");
  std::byte end[2];
  EXPECT_TRUE(file->read(file->size() - 2, end).ok());
  const Status beyond = file->read(file->size() - 1, end);
  EXPECT_EQ(beyond.code(), StatusCode::kInvalidData);
  EXPECT_NE(beyond.message().find(path_), std::string::npos);
  EXPECT_TRUE(file->read(file->size() + 100, {}).ok());
}

TEST_F(FingerprintTest, InputFileOpensRegularFilesOnly) {
  EXPECT_EQ(InputFile::open(path_ + ".absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(InputFile::open(testing::TempDir()).status().code(), StatusCode::kInvalidArgument);
  const std::string pipe = path_ + ".pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(InputFile::open(pipe).status().code(), StatusCode::kInvalidArgument);
  fs::remove(pipe);
}

}  // namespace aerie::fingerprint_test
