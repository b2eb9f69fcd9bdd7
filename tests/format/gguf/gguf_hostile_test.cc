// Broken and hostile files: each is refused with a message that says what is wrong where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "format/gguf/gguf.h"
#include "tests/format/gguf/gguf_writer.h"

namespace aerie::gguf_hostile_test {

using test::GgufWriter;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Status parse(const Bytes& bytes) {
  return GgufFile::parse(bytes, "x.gguf").status();
}
Status parse(const GgufWriter& writer) {
  return parse(writer.bytes());
}

Bytes to_bytes(std::string_view text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

template <typename T>
Bytes patched(Bytes bytes, size_t at, T value) {
  EXPECT_LE(at + sizeof(value), bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return bytes;
}

void expect_invalid(const Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(status.message(), HasSubstr(message));
  EXPECT_TRUE(status.message().starts_with("x.gguf: ")) << status.message();
}

GgufWriter with_key(std::string_view key) {
  GgufWriter writer;
  writer.add_u32(key, 1);
  return writer;
}

GgufWriter with_tensor(std::string_view name, const std::vector<int64_t>& shape = {1},
                       uint32_t type = 0, size_t bytes = 4) {
  GgufWriter writer;
  writer.add_raw_tensor(name, type, shape, Bytes(bytes));
  return writer;
}

constexpr size_t kVersionAt = 4, kTensorCountAt = 8, kMetadataCountAt = 16, kFirstEntryAt = 24;

TEST(GgufHostile, OtherFiles) {
  expect_invalid(parse(Bytes()), "is empty");
  expect_invalid(parse(to_bytes("<!DOCTYPE html>\n<html>")),
                 "is not a GGUF file: it starts with \"<!DOCTYPE html>\\n\"");
  expect_invalid(parse(to_bytes("GG")), "it starts with \"GG\"");
  expect_invalid(parse(to_bytes("\x1b[2J\xff")), "it starts with \"\\x1b[2J\\xff\"");
  expect_invalid(parse(to_bytes("version https://git-lfs.github.com/spec/v1\n")), "git lfs pull");
}

TEST(GgufHostile, Versions) {
  const Bytes bytes = GgufWriter().bytes();
  for (const uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    const Status status = parse(patched(bytes, kVersionAt, version));
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("version " + std::to_string(version)));
  }
  const Status status = parse(patched(bytes, kVersionAt, 0x03000000u));
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("is a big-endian GGUF file (version 3)"));
}

TEST(GgufHostile, Counts) {
  const Bytes bytes = GgufWriter().bytes();
  for (const size_t at : {kTensorCountAt, kMetadataCountAt}) {
    expect_invalid(parse(patched(bytes, at, uint64_t{1})), "bytes are missing");
    expect_invalid(parse(patched(bytes, at, UINT64_MAX)), "18446744073709551615");
    expect_invalid(parse(patched(bytes, at, uint64_t{1} << 24)), "bytes are missing");
  }
  expect_invalid(parse(patched(bytes, kMetadataCountAt, uint64_t{2})),
                 "2 metadata keys: at least 28 bytes are missing");
}

TEST(GgufHostile, Names) {
  using std::string_literals::operator""s;
  expect_invalid(parse(with_key("")), "metadata key 1 of 1: the name is empty");
  expect_invalid(parse(with_key(std::string(65536, 'k'))), "65536 bytes long");
  expect_invalid(parse(with_key("a\xFF")), "the name 'a\\xff' is not UTF-8");
  expect_invalid(parse(with_key("a\xC0\x80")), "is not UTF-8");
  expect_invalid(parse(with_key("a\0b"s)), "the name 'a\\x00b' contains a NUL byte");
  expect_invalid(parse(with_tensor("")), "tensor 1 of 1: the name is empty");
  expect_invalid(parse(with_tensor(std::string(257, 't'))), "257 bytes long");
  expect_invalid(parse(with_tensor("\xED\xA0\x80")), "is not UTF-8");
  expect_invalid(parse(with_tensor("a\0"s)), "contains a NUL byte");
  EXPECT_TRUE(parse(with_key(std::string(65535, 'k'))).ok());
  EXPECT_TRUE(parse(with_tensor(std::string(256, 't'))).ok());
  EXPECT_TRUE(parse(with_tensor("größe.\xF0\x9F\xA6\x85")).ok());
  const Bytes bytes = with_key("key").bytes();
  expect_invalid(parse(patched(bytes, kFirstEntryAt, UINT64_MAX)), "18446744073709551615 bytes");
}

TEST(GgufHostile, Duplicates) {
  GgufWriter keys;
  keys.add_u8("a", 1).add_u8("b", 1).add_string("a", "x");
  expect_invalid(parse(keys), "metadata key 'a' occurs twice");
  GgufWriter tensors;
  tensors.add_tensor("w", DType::kF32, {1}, std::vector<float>(1));
  tensors.add_tensor("w", DType::kF16, {1}, std::vector<float>(1));
  expect_invalid(parse(tensors), "tensor 'w' occurs twice");
}

TEST(GgufHostile, Values) {
  GgufWriter boolean;
  boolean.add_raw("flag", 7, to_bytes("\x02"));
  expect_invalid(parse(boolean), "metadata key 'flag': a boolean has the value 2");
  GgufWriter booleans;
  booleans.add_array<uint8_t>("flags", {0, 1, 2});
  expect_invalid(parse(patched(booleans.bytes(), kFirstEntryAt + 8 + 5 + 4, uint32_t{7})),
                 "metadata key 'flags': a boolean has the value 2");
  GgufWriter unknown;
  unknown.add_raw("k", 13, to_bytes("x"));
  expect_invalid(parse(unknown), "metadata key 'k': value type 13 is unknown");
  GgufWriter text;
  text.add_string("k", "value");
  expect_invalid(parse(patched(text.bytes(), kFirstEntryAt + 8 + 1 + 4, uint64_t{6})),
                 "metadata key 'k': at least 1 bytes are missing: 6 are wanted at offset 45");
}

TEST(GgufHostile, Arrays) {
  constexpr size_t kTypeAt = kFirstEntryAt + 8 + 1 + 4;
  GgufWriter array;
  array.add_array<uint32_t>("k", {1, 2});
  const Bytes bytes = array.bytes();
  expect_invalid(parse(patched(bytes, kTypeAt, uint32_t{77})), "value type 77 is unknown");
  expect_invalid(parse(patched(bytes, kTypeAt + 4, uint64_t{3})),
                 "metadata key 'k': array of 3: at least 4 bytes are missing");
  expect_invalid(parse(patched(bytes, kTypeAt + 4, UINT64_MAX / 2)),
                 "array of 9223372036854775807: 9223372036854775807 items are declared");
  expect_invalid(parse(patched(bytes, kTypeAt, uint32_t{8})), "bytes are missing");
}

TEST(GgufHostile, DeeplyNestedArrays) {
  const auto nested = [](int depth) {
    Bytes value;
    const auto put = [&](auto number) {
      const size_t at = value.size();
      value.resize(at + sizeof(number));
      std::memcpy(value.data() + at, &number, sizeof(number));
    };
    for (int i = 1; i < depth; ++i) put(uint32_t{9}), put(uint64_t{1});
    put(uint32_t{0}), put(uint64_t{0});
    GgufWriter writer;
    writer.add_raw("k", 9, value);
    return writer;
  };
  EXPECT_TRUE(parse(nested(8)).ok());
  expect_invalid(parse(nested(10)), "metadata key 'k': arrays are nested more than 8 deep");
  expect_invalid(parse(nested(100000)), "nested more than 8 deep");
}

TEST(GgufHostile, Alignment) {
  for (const uint32_t alignment : {0u, 1u, 4u, 33u, 0xFFFFFFFFu}) {
    GgufWriter writer;
    writer.add_u32("general.alignment", alignment);
    expect_invalid(parse(writer), "'general.alignment' is " + std::to_string(alignment) +
                                      "; it must be a power of two");
  }
  GgufWriter text;
  text.add_string("general.alignment", "32");
  expect_invalid(parse(text), "'general.alignment' is of type string; it must be u32");
  GgufWriter huge = with_tensor("t");
  huge.add_u64("general.alignment", uint64_t{1} << 63);
  expect_invalid(parse(huge), "more than the file's");
  GgufWriter wider = with_tensor("t");
  wider.add_tensor("u", DType::kF32, {1}, std::vector<float>(1)).add_u32("general.alignment", 64);
  expect_invalid(parse(wider), "tensor 'u': offset 32 is not a multiple of the alignment 64");
}

TEST(GgufHostile, TensorShapes) {
  expect_invalid(parse(with_tensor("t", {1, 1, 1, 1, 1})), "'t': it has 5 dimensions");
  expect_invalid(parse(with_tensor("t", {4, 0})), "tensor 't': dimension 1 has size 0");
  expect_invalid(parse(with_tensor("t", {-1})), "dimension 0 of size 18446744073709551615");
  expect_invalid(parse(with_tensor("t", {int64_t{1} << 32, int64_t{1} << 31})), "dimension 1 of");
  expect_invalid(parse(with_tensor("t", {INT64_MAX})), "shape [9223372036854775807] makes it too");
  expect_invalid(parse(with_tensor("t", {33}, 2, 18)), "whole q4_0 blocks of 32");
  expect_invalid(parse(with_tensor("t", {}, 14, 210)), "rows of 1 elements");
}

constexpr size_t kOffsetAt = kFirstEntryAt + 8 + 1 + 4 + 8 + 4;  // of a tensor 't' of rank 1

TEST(GgufHostile, TensorOffsets) {
  const Bytes bytes = with_tensor("t", {8}, 0, 32).bytes();
  ASSERT_TRUE(parse(bytes).ok());
  ASSERT_EQ(bytes.size(), 96u);
  expect_invalid(parse(patched(bytes, kOffsetAt, uint64_t{8})), "offset 8 is not a multiple");
  expect_invalid(parse(patched(bytes, kOffsetAt, uint64_t{64})),
                 "tensor 't': offset 128 + 32 bytes ends beyond the file's 96 bytes: 64 bytes are "
                 "missing in all (the download may be incomplete)");
  expect_invalid(parse(patched(bytes, kOffsetAt, uint64_t{INT64_MAX} - 31)), "ends beyond");
  expect_invalid(parse(patched(bytes, kOffsetAt, UINT64_MAX - 31)), "is beyond any file");
}

TEST(GgufHostile, ATruncatedFileSaysHowMuchIsMissing) {
  GgufWriter writer = with_tensor("t", {8}, 0, 32);
  writer.add_tensor("u", DType::kF32, {100}, std::vector<float>(100));
  Bytes bytes = writer.bytes();
  bytes.resize(bytes.size() - 401);
  expect_invalid(parse(bytes), "401 bytes are missing in all (the download may be incomplete)");
}

TEST(GgufHostile, AnUnknownTypesTensorMustStartInsideTheFile) {
  const Bytes bytes = with_tensor("t", {8}, 999, 32).bytes();
  EXPECT_TRUE(parse(bytes).ok());
  expect_invalid(parse(patched(bytes, kOffsetAt, uint64_t{64})), "ends beyond the file's");
}

TEST(GgufHostile, OverlappingTensors) {
  GgufWriter writer = with_tensor("first", {16}, 0, 64);
  writer.add_tensor("u", DType::kF32, {1}, std::vector<float>(1));
  const Bytes bytes = writer.bytes();
  ASSERT_TRUE(parse(bytes).ok());
  const size_t second_offset_at = writer.header_size() - 8;
  expect_invalid(parse(patched(bytes, second_offset_at, uint64_t{32})),
                 "tensor 'first' and tensor 'u' overlap");
  expect_invalid(parse(patched(bytes, second_offset_at, uint64_t{0})), "overlap");
}

TEST(GgufHostile, NamesInMessagesCannotSteerATerminal) {
  GgufWriter writer;
  writer.add_raw("\x1b[31mred\n", 99, {});
  const std::string message = parse(writer).message();
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_THAT(message, HasSubstr("'\\x1b[31mred\\n'"));
}

Status open_status(const std::string& path) {
  return GgufFile::open(path).status();
}

TEST(GgufOpen, PathsThatAreNotReadableFiles) {
  const std::string dir = ::testing::TempDir();
  const Status missing = open_status(dir + "no/such.gguf");
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), dir + "no/such.gguf: there is no such file");
  EXPECT_EQ(open_status("").code(), StatusCode::kNotFound);
  EXPECT_THAT(open_status(dir).message(), HasSubstr("is a directory; name a file in it"));
  EXPECT_THAT(open_status("/dev/null").message(), HasSubstr("is not a regular file"));

  const std::string pipe = dir + "aerie_gguf_pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(open_status(pipe).message(), HasSubstr("is not a regular file"));
  std::remove(pipe.c_str());
}

TEST(GgufOpen, EmptyTextAndForbiddenFiles) {
  const std::string path = ::testing::TempDir() + "aerie_gguf_open_test";
  std::ofstream(path).close();
  EXPECT_EQ(open_status(path).message(), path + ": is empty, not a GGUF file");
  std::ofstream(path) << "Hello, world\n";
  EXPECT_EQ(open_status(path).message(),
            path + ": is not a GGUF file: it starts with \"Hello, world\\n\"");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  if (geteuid() != 0) {  // root may read anything
    EXPECT_EQ(open_status(path).code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(open_status(path).message(), HasSubstr("cannot open: Permission denied"));
  }
  std::remove(path.c_str());
}

}  // namespace aerie::gguf_hostile_test
