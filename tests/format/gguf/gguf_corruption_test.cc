// Systematic corruption: whatever is done to a valid file, it is either read or refused, and memory
// stays within a small multiple of the file's size. A program of its own, because the
// meter replaces operator new.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "format/gguf/gguf.h"
#include "tests/format/gguf/gguf_writer.h"
#include "tests/format/memory_meter.h"

namespace aerie::gguf_corruption_test {

using test::GgufWriter;
using Bytes = std::vector<std::byte>;

constexpr size_t kSlack = 8192;  // for the object itself and for messages

// Reads everything that the file claims to hold; sums so that nothing is optimised away.
uint64_t touch(const GgufFile& file) {
  uint64_t sum = file.version();
  for (const auto& [key, value] : file.metadata()) {
    for (const char c : key) sum += static_cast<uint8_t>(c);
    EXPECT_EQ(file.find(key), &value);
    if (const auto* scalar = std::get_if<MetadataScalar>(&value.value)) {
      if (const auto* text = std::get_if<std::string_view>(scalar)) {
        for (const char c : *text) sum += static_cast<uint8_t>(c);
      }
    } else if (const auto* array = std::get_if<MetadataArray>(&value.value)) {
      if (const auto* texts = std::get_if<std::vector<std::string_view>>(array)) {
        for (const std::string_view text : *texts) {
          for (const char c : text) sum += static_cast<uint8_t>(c);
        }
      }
    }
  }
  for (const TensorInfo& tensor : file.tensors()) {
    EXPECT_EQ(file.find_tensor(tensor.name), &tensor);
    EXPECT_LE(tensor.offset + tensor.bytes, file.file_bytes());
    if (!tensor.dtype) continue;
    const TensorView view = file.tensor(tensor.name).value();
    EXPECT_EQ(view.bytes(), tensor.bytes);
    for (int64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<uint8_t>(view.data[i]);
  }
  return sum;
}

struct Tally {
  int read = 0;
  int refused = 0;
};

void check(const Bytes& bytes, Tally& tally) {
  test::reset_memory_use();
  {
    const auto file = GgufFile::parse(bytes, "x");
    const size_t limit = bytes.size() * 16 + kSlack;
    ASSERT_LE(test::memory_use().total, limit);
    if (!file.ok()) {
      ASSERT_TRUE(file.status().message().starts_with("x: ")) << file.status().message();
      ++tally.refused;
      return;
    }
    ++tally.read;
    volatile uint64_t sink = touch(**file);
    (void)sink;
  }
}

GgufWriter small_file() {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama").add_u32("general.alignment", 32);
  writer.add_u8("a", 1).add_i16("b", -1).add_u64("c", 1).add_f32("d", 1).add_f64("e", 1);
  writer.add_bool("f", true).add_array<uint8_t>("g", {1, 2, 3}).add_array<float>("h", {1, 2});
  writer.add_array<bool>("i", {true, false}).add_array<std::string>("j", {"x", "yz", ""});
  writer.add_tensor("t.a", DType::kQ4_1, {32, 2}, std::vector<float>(64));
  writer.add_tensor("t.b", DType::kF32, {4}, std::vector<float>(4));
  writer.add_raw_tensor("t.c", 10, {256}, Bytes(84));
  writer.add_tensor("t.d", DType::kQ6_K, {256, 1, 2}, std::vector<float>(512));
  return writer;
}

TEST(GgufCorruption, EveryTruncation) {
  const Bytes whole = small_file().bytes();
  Tally tally;
  for (size_t size = 0; size <= whole.size(); ++size) {
    // An exact copy, so that a sanitizer sees a read past the end.
    check(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)), tally);
  }
  EXPECT_EQ(tally.read, 1) << "only the whole file is valid";
}

TEST(GgufCorruption, EveryByteOfTheHeader) {
  const GgufWriter writer = small_file();
  const Bytes whole = writer.bytes();
  Tally tally;
  for (size_t at = 0; at < writer.header_size(); ++at) {
    const auto old = static_cast<uint8_t>(whole[at]);
    for (const int value : {0, 1, 2, 9, 0x7F, 0x80, 0xFF, old ^ 1, old ^ 0x80, old + 1, old - 1}) {
      Bytes bytes = whole;
      bytes[at] = static_cast<std::byte>(value);
      check(bytes, tally);
    }
  }
  EXPECT_GT(tally.read, 100);
  EXPECT_GT(tally.refused, 1000);
}

template <typename T>
void overwrite_everywhere(const std::vector<T>& values, Tally& tally) {
  const GgufWriter writer = small_file();
  const Bytes whole = writer.bytes();
  for (size_t at = 0; at + sizeof(T) <= writer.header_size(); ++at) {
    for (const T value : values) {
      Bytes bytes = whole;
      std::memcpy(bytes.data() + at, &value, sizeof(T));
      check(bytes, tally);
    }
  }
}

TEST(GgufCorruption, EveryFieldOfFourOrEightBytes) {
  Tally tally;
  overwrite_everywhere<uint32_t>(
      {0, 1, 2, 3, 7, 8, 9, 10, 12, 1u << 20, INT32_MAX, 1u << 31, UINT32_MAX - 31, UINT32_MAX},
      tally);
  overwrite_everywhere<uint64_t>(
      {0, 1, 31, 32, 64, 1 << 20, uint64_t{1} << 32, UINT64_MAX / 8, UINT64_MAX / 4, UINT64_MAX / 2,
       UINT64_MAX / 2 - 31, uint64_t{1} << 63, UINT64_MAX - 31, UINT64_MAX - 7, UINT64_MAX},
      tally);
  EXPECT_GT(tally.refused, 10000);
}

TEST(GgufCorruption, RandomChanges) {
  const GgufWriter writer = small_file();
  const Bytes whole = writer.bytes();
  std::mt19937_64 random(7);
  Tally tally;
  for (int round = 0; round < 50000; ++round) {
    Bytes bytes = whole;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % writer.header_size();
      const size_t length = std::min<size_t>(1 + random() % 8, bytes.size() - at);
      const uint64_t value = random() % 3 == 0 ? random() : random() % 40;
      std::memcpy(bytes.data() + at, &value, length);
    }
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    check(bytes, tally);
  }
  EXPECT_GT(tally.read, 0);
}

// The files that cost the most memory for their size, all of them valid.
TEST(GgufCorruption, DenseFilesStayWithinTheLimit) {
  constexpr size_t kSize = size_t{1} << 20;
  Tally tally;
  GgufWriter bytes_array;
  bytes_array.add_array<uint8_t>("k", std::vector<uint8_t>(kSize));
  check(bytes_array.bytes(), tally);
  GgufWriter strings;
  strings.add_array<std::string>("k", std::vector<std::string>(kSize / 8));
  check(strings.bytes(), tally);
  const auto name = [](size_t i) { return std::to_string(i); };
  GgufWriter keys, tensors;
  for (size_t i = 0; i < kSize / 14; ++i) keys.add_u8(name(i), 1);
  for (size_t i = 0; i < kSize / 25; ++i) tensors.add_raw_tensor(name(i), 999, {}, {});
  check(keys.bytes(), tally);
  check(tensors.bytes(), tally);
  EXPECT_EQ(tally.read, 4);
}

}  // namespace aerie::gguf_corruption_test
