// Memory stays within a small multiple of the text, whatever it holds: of JSON, and of the
// safetensors files whose headers are JSON. A program of its own, because the meter replaces
// operator new.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "format/json.h"
#include "format/safetensors/safetensors.h"
#include "tests/format/memory_meter.h"
#include "tests/format/safetensors/safetensors_writer.h"

namespace aerie::json_memory_test {

using test::SafetensorsWriter;
using Bytes = std::vector<std::byte>;

constexpr size_t kFactor = 40;  // as format/json.h says
constexpr size_t kSlack = 16384;

// Parses the text, and destroys what it made, within the limit.
void check(const std::string& text) {
  test::reset_memory_use();
  EXPECT_TRUE(parse_json(text, "x").ok()) << text.substr(0, 40);
  EXPECT_LE(test::memory_use().peak, text.size() * kFactor + kSlack) << text.substr(0, 40);
}

std::string repeated(const std::string& element, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ",";
    text += element;
  }
  return text + "]";
}

TEST(JsonMemory, DenseTexts) {
  const std::string deep = std::string(60, '[') + std::string(60, ']');
  for (const std::string& element :
       std::vector<std::string>{"1", "\"\"", "[]", "{}", "null", "[[]]", "[1]", "{\"\":1}",
                                "{\"\":\"\"}", "{\"\":{}}", "{\"\":{\"\":[]}}", deep}) {
    for (const int count : {1000, 30000}) check(repeated(element, count));
  }
}

TEST(JsonMemory, ManyKeys) {
  std::string keys = "{", objects = "{";
  for (int i = 0; i < 50000; ++i) {
    keys += fmt::format("{}\"{:x}\":1", i == 0 ? "" : ",", i);
    objects += fmt::format("{}\"{:x}\":{{}}", i == 0 ? "" : ",", i);
  }
  check(keys + "}");
  check(objects + "}");
}

// An unfinished text costs no more than a finished one.
TEST(JsonMemory, BrokenTexts) {
  for (const char* element : {"1", "\"\"", "[]", "{\"\":1}"}) {
    std::string text = repeated(element, 50000);
    text.pop_back();
    test::reset_memory_use();
    EXPECT_FALSE(parse_json(text, "x").ok());
    EXPECT_LE(test::memory_use().peak, text.size() * kFactor + kSlack);
  }
}

struct Tally {
  int read = 0;
  int refused = 0;
};

void check(const Bytes& bytes, Tally& tally) {
  test::reset_memory_use();
  const auto file = SafetensorsFile::parse(bytes, "x");
  ASSERT_LE(test::memory_use().peak, bytes.size() * kFactor + kSlack);
  if (!file.ok()) {
    ASSERT_TRUE(file.status().message().starts_with("x: ")) << file.status().message();
    ++tally.refused;
    return;
  }
  ++tally.read;
  size_t sum = 0;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    ASSERT_EQ(file->find(tensor.name), &tensor);
    sum += tensor.data.size();
    for (const std::byte byte : tensor.data) sum += byte == std::byte{255} ? 1 : 0;
  }
  volatile size_t sink = sum;
  (void)sink;
}

SafetensorsWriter small_file() {
  SafetensorsWriter writer;
  writer.add_metadata("format", "pt").add("a.weight", {2, 3}, {1, 2, 3, 4, 5, 6});
  writer.add("b", "BF16", {4}, Bytes(8)).add("c", "I64", {}, Bytes(8)).add("d", "F16", {0}, {});
  return writer;
}

TEST(SafetensorsCorruption, EveryTruncation) {
  const Bytes whole = small_file().bytes();
  Tally tally;
  for (size_t size = 0; size <= whole.size(); ++size) {
    check(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)), tally);
  }
  EXPECT_EQ(tally.read, 1) << "only the whole file is valid";
}

TEST(SafetensorsCorruption, EveryByteOfTheHeader) {
  const Bytes whole = small_file().bytes();
  const size_t header = sizeof(uint64_t) + small_file().header().size();
  Tally tally;
  for (size_t at = 0; at < header; ++at) {
    const auto old = static_cast<int>(whole[at]);
    std::vector<int> values = {0, 1, 0x7F, 0x80, 0xFF, old ^ 1, old + 1, old - 1};
    for (const char c : std::string_view(" \"-09[{}]")) values.push_back(c);
    for (const int value : values) {
      Bytes bytes = whole;
      bytes[at] = static_cast<std::byte>(value);
      check(bytes, tally);
    }
  }
  EXPECT_GT(tally.read, 100) << "names may be anything";
  EXPECT_GT(tally.refused, 1000);
}

TEST(SafetensorsCorruption, RandomChanges) {
  const Bytes whole = small_file().bytes();
  const size_t header = sizeof(uint64_t) + small_file().header().size();
  std::mt19937_64 random(7);
  Tally tally;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = whole;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      // Digits most of the time, which keeps the header's form.
      const auto value = random() % 3 == 0 ? static_cast<uint8_t>(random())
                                           : static_cast<uint8_t>('0' + random() % 10);
      bytes[random() % header] = static_cast<std::byte>(value);
    }
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    check(bytes, tally);
  }
  EXPECT_GT(tally.refused, 10000);
}

// The most tensors for the length of a header, all of them valid.
TEST(SafetensorsCorruption, DenseFilesStayWithinTheLimit) {
  std::string header = "{";
  for (int i = 0; i < 20000; ++i) {
    header += fmt::format(R"({}"{:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                          i == 0 ? "" : ",", i);
  }
  Tally tally;
  check(test::safetensors_bytes(header + "}", {}), tally);
  EXPECT_EQ(tally.read, 1);
}

}  // namespace aerie::json_memory_test
