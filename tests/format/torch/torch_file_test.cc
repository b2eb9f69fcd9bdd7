// Files of torch.save(): what PyTorch wrote, held to what PyTorch says of it; and broken ones.
#include "format/torch/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/format/torch/torch_writer.h"

namespace aerie::torch_file_test {

using namespace std::string_literals;
using test::pickle_dict;
using test::pickle_global;
using test::pickle_integer;
using test::pickle_string;
using test::pickle_tensor;
using test::PickleTensor;
using test::torch_text;
using test::zip_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kCorpus = "tests/fuzz/corpus/torch/";

std::string values_of(const TorchTensor& tensor) {
  std::string text;
  const Status status = tensor.read([&](std::span<const std::byte> part) {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    return Status();
  });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(static_cast<int64_t>(text.size()), tensor.bytes());
  return text;
}

std::string hexadecimal(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    constexpr const char* kDigits = "0123456789abcdef";
    digits += kDigits[static_cast<uint8_t>(c) >> 4];
    digits += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return digits;
}

TEST(TorchFile, HoldsWhatPyTorchSays) {
  std::map<std::string, std::vector<nlohmann::json>> expected;
  std::ifstream lines("tests/golden/torch.jsonl");
  for (std::string line; std::getline(lines, line);) {
    auto json = nlohmann::json::parse(line);
    expected[json["file"]].push_back(std::move(json));
  }
  ASSERT_EQ(expected.size(), 10u);
  for (const auto& [name, tensors] : expected) {
    const auto file = TorchFile::open(kCorpus + name);
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_EQ(file->tensors().size(), tensors.size()) << name;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TorchTensor& tensor = file->tensors()[i];
      EXPECT_EQ(tensor.name, tensors[i]["name"].get<std::string>()) << name;
      EXPECT_EQ(safetensors_type_info(tensor.type).name, tensors[i]["type"].get<std::string>())
          << tensor.name;
      EXPECT_EQ(tensor.shape, tensors[i]["shape"].get<std::vector<int64_t>>()) << tensor.name;
      EXPECT_EQ(hexadecimal(values_of(tensor)), tensors[i]["bytes"].get<std::string>())
          << name << " " << tensor.name;
    }
  }
}

TEST(TorchFile, ValuesThatAreNoTensors) {
  const auto file = TorchFile::open(std::string(kCorpus) + "nested.pt");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(file->values(), ElementsAre(Pair("epoch", "3"), Pair("rate", "0.5"),
                                          Pair("name", "a head"), Pair("kind", "torch.bfloat16"),
                                          Pair("trained", "true"), Pair("stack.2.1", "7")));
}

// With the bytes that it views.
struct Parsed {
  std::vector<std::byte> bytes;
  Expected<TorchFile> file = Status(StatusCode::kNotFound, "not parsed");
};

Parsed parse(const std::string& text) {
  Parsed parsed;
  parsed.bytes = test::bytes_of_text(text);
  parsed.file = TorchFile::parse(parsed.bytes, "x");
  return parsed;
}

void expect_refused(const std::string& text, StatusCode code, const std::string& part) {
  const Status status = parse(text).file.status();
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_TRUE(status.message().starts_with("x: ")) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(part));
}

constexpr auto kBroken = StatusCode::kInvalidData;
constexpr auto kNot = StatusCode::kUnsupported;

std::string one_tensor(const PickleTensor& tensor, size_t stored_bytes) {
  return torch_text(pickle_dict({{"a", pickle_tensor(tensor)}}),
                    {{"0", std::string(stored_bytes, '\1')}});
}

TEST(TorchFile, TensorsStayInTheirStorage) {
  const PickleTensor whole = {.stored = 6, .shape = {2, 3}, .strides = {3, 1}};
  ASSERT_TRUE(parse(one_tensor(whole, 24)).file.ok());
  constexpr const char* kOut = "tensor 'a': reaches out of its storage of 6 elements";
  PickleTensor tensor = whole;
  tensor.offset = 1;
  expect_refused(one_tensor(tensor, 24), kBroken, kOut);
  tensor = whole;
  tensor.strides = {4, 1};
  expect_refused(one_tensor(tensor, 24), kBroken, kOut);
  tensor.strides = {0x7FFFFFFF, 0x7FFFFFFF};
  expect_refused(one_tensor(tensor, 24), kBroken, kOut);
  tensor.strides = {-1, 1};
  expect_refused(one_tensor(tensor, 24), kBroken, "its strides is not an integer of at least 0");
  tensor = whole;
  tensor.offset = -1;
  expect_refused(one_tensor(tensor, 24), kBroken, "its offset");
  tensor = whole;
  tensor.shape = {0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF};
  tensor.strides = {0, 0, 0};
  expect_refused(one_tensor(tensor, 24), kBroken, "too many elements");
  tensor.shape = {2};
  expect_refused(one_tensor(tensor, 24), kBroken, "has 1 sizes and 3 strides");
  tensor = whole;
  tensor.stored = 7;
  expect_refused(one_tensor(tensor, 24), kBroken, "24 bytes for 7 elements of 4");
  tensor = whole;
  tensor.storage = "DoubleStorage";
  expect_refused(one_tensor(tensor, 24), kBroken, "24 bytes for 6 elements of 8");
  tensor = whole;
  tensor.key = "1";
  expect_refused(one_tensor(tensor, 24), kBroken, "there is no 'archive/data/1' in the archive");
  tensor = whole;
  tensor.offset = 7;
  tensor.shape = {0, 3};
  expect_refused(one_tensor(tensor, 24), kBroken, kOut);
}

TEST(TorchFile, TensorsAreNotMuchLargerThanTheFile) {
  const PickleTensor wide = {.stored = 1, .shape = {0x7FFFFFFF, 1000}, .strides = {0, 0}};
  expect_refused(one_tensor(wide, 4), kNot, "more than 64 times the file's");
}

TEST(TorchFile, OneStorageForSeveral) {
  const PickleTensor whole = {.stored = 4, .shape = {2, 2}, .strides = {2, 1}};
  PickleTensor turned = whole;
  turned.strides = {1, 2};
  const Parsed parsed =
      parse(torch_text(pickle_dict({{"a", pickle_tensor(whole)}, {"b", pickle_tensor(turned)}}),
                       {{"0", "aaaabbbbccccdddd"}}));
  ASSERT_TRUE(parsed.file.ok()) << parsed.file.status().message();
  EXPECT_EQ(values_of(parsed.file->tensors()[0]), "aaaabbbbccccdddd");
  EXPECT_EQ(values_of(parsed.file->tensors()[1]), "aaaaccccbbbbdddd");
}

TEST(TorchFile, RefusesWhatIsMoreThanATensor) {
  PickleTensor tensor = {.stored = 1, .shape = {1}, .strides = {1}};
  tensor.more = "}"s + pickle_string("conj") + "\x88s";
  expect_refused(one_tensor(tensor, 4), kNot, "conjugated");
  const std::string storage = "("s + pickle_string("storage") +
                              pickle_global("torch", "FloatStorage") + pickle_string("0") +
                              pickle_string("cpu") + "K\1tQ";
  expect_refused(torch_text(pickle_dict({{"a", storage}}), {{"0", "abcd"}}), kNot,
                 "'a' is a storage without a tensor");
  expect_refused(torch_text(pickle_dict(
                     {{"a", pickle_global("torch._utils", "_rebuild_parameter") + "K\1\x85R"}})),
                 kBroken, "is a parameter without a tensor");
  expect_refused(torch_text(pickle_dict(
                     {{"a", pickle_global("torch._utils", "_rebuild_tensor_v2") + "K\1\x85R"}})),
                 kBroken, "is described by 1 values");
  expect_refused(torch_text(pickle_dict(
                     {{"a", pickle_global("os", "system") + pickle_string("true") + "\x85R"}})),
                 kNot, "data.pkl: byte");
  expect_refused(torch_text(pickle_dict({{"a", pickle_global("os", "system") + ")R"}})), kNot,
                 "would run code: it names 'os.system'");
}

TEST(TorchFile, NamesAreWhatTheyCanBe) {
  const std::string tensor = pickle_tensor({.stored = 1, .shape = {}, .strides = {}});
  const auto file = [&](const std::vector<std::pair<std::string, std::string>>& entries) {
    return torch_text(pickle_dict(entries), {{"0", "abcd"}});
  };
  ASSERT_TRUE(parse(file({{"a", tensor}})).file.ok());
  expect_refused(file({{"a", tensor}, {"a", tensor}}), kBroken, "'a' is there twice");
  expect_refused(file({{"a.b", tensor}, {"a", "}"s + pickle_string("b") + tensor + "s"}}), kBroken,
                 "'a.b' is there twice");
  expect_refused(file({{"", tensor}}), kBroken, "is empty or holds a NUL byte");
  expect_refused(file({{std::string("a\0b", 3), tensor}}), kBroken, "NUL byte");
  expect_refused(file({{std::string(2000, 'n'), tensor}}), kNot, "is longer than 1024 bytes");
  expect_refused(torch_text("\x80\x02}N"s + tensor + "s.", {{"0", "abcd"}}), kNot,
                 "keys that are neither strings nor integers");
}

TEST(TorchFile, NestingIsBounded) {
  const auto nested = [](int depth) {
    std::string value = "K\1";
    for (int i = 0; i < depth; ++i) value = "}"s + pickle_string("a") + value + "s";
    return torch_text("\x80\x02"s + value + ".");
  };
  EXPECT_TRUE(parse(nested(30)).file.ok());
  expect_refused(nested(40), kNot, "nested 33 deep");
  expect_refused(nested(20'000), kNot, "nested 33 deep");
  expect_refused(torch_text("\x80\x02]q\1h\1a."), kNot, "x: its containers");
  expect_refused(torch_text("\x80\x02K\1."), kNot, "holds a single value");
}

TEST(TorchFile, Archives) {
  const std::string pickle = pickle_dict({{"a", "K\1"}});
  const auto archive = [&](std::vector<test::ZipPart> parts) { return zip_text(parts); };
  EXPECT_TRUE(parse(archive({{"any/data.pkl", pickle}})).file.ok());
  EXPECT_TRUE(parse(zip_text({{"any/data.pkl", pickle}}, true)).file.ok()) << "zip64";
  expect_refused(archive({{"any/weights.pkl", pickle}}), kBroken, "without data.pkl");
  expect_refused(archive({{"a/data.pkl", pickle}, {"b/data.pkl", pickle}}), kBroken, "two pickles");
  expect_refused(archive({{"a/data.pkl", pickle}, {"a/data.pkl", pickle}}), kBroken,
                 "two members 'a/data.pkl'");
  expect_refused(archive({{"a/data.pkl", pickle}, {"a/constants.pkl", "."}}), kNot, "TorchScript");
  expect_refused(archive({{"a/data.pkl", pickle}, {"a/byteorder", "big"}}), kNot, "lowest byte");
  expect_refused(archive({{"a/data.pkl", pickle, 8}}), kNot, "'a/data.pkl': is compressed");
  expect_refused(archive({{"a/data.pkl", pickle, 0, 1}}), kNot, "is encrypted");
  expect_refused("", kBroken, "is empty");
  expect_refused("GGUF", kBroken, "starts with \"GGUF\"");
  expect_refused("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", kBroken,
                 "git lfs pull");
}

// The end of an archive with one byte of it changed.
std::string changed(std::string text, size_t from_end, uint64_t value, size_t bytes) {
  return text.replace(text.size() - from_end, bytes, test::number_text(value, bytes));
}

TEST(TorchFile, BrokenArchives) {
  const std::string text =
      zip_text({{"a/data.pkl", pickle_dict({{"a", "K\1"}})}, {"a/b", "12345"}});
  ASSERT_TRUE(parse(text).file.ok());
  const size_t entry = 46 + 3, second = 22 + entry;  // of the directory, from the file's end
  expect_refused(text.substr(0, text.size() - 1), kBroken, "has no end");
  expect_refused(changed(text, 6, 0x7FFFFFFF, 4), kBroken, "leaves the file");
  expect_refused(changed(text, 10, 0x7FFFFFFF, 4), kBroken, "leaves the file");
  expect_refused(changed(text, 12, 0xFFF0, 2), kBroken, "do not fit");
  expect_refused(changed(text, 18, 1, 2), kNot, "one part of a zip archive of several");
  expect_refused(changed(text, second, 0, 4), kBroken, "entry 1 of the zip directory is none");
  expect_refused(changed(text, second - 42, 0x7FFFFFFF, 4), kBroken, "bytes are missing");
  expect_refused(changed(text, second - 42, 1, 4), kBroken, "there is no header at 1");
  expect_refused(changed(text, second - 42, 0, 4), kBroken, "its header calls it 'a/data.pkl'");
  expect_refused(changed(text, second - 24, 6, 4), kBroken, "is stored in 5 bytes and has 6");
  expect_refused(changed(changed(text, second - 24, 600, 4), second - 20, 600, 4), kBroken,
                 "reach into the directory");
  expect_refused(changed(text, second - 28, 0xFFFF, 2), kBroken, "bytes are missing");
}

TEST(TorchFile, MembersDoNotOverlap) {
  // The second member's header and data lie in the first one's data.
  const std::string inner = zip_text({{"a/b", "12345"}});
  const std::string hidden = inner.substr(0, 30 + 3 + 5);
  std::string text = zip_text(
      {{"a/data.pkl", pickle_dict({{"a", "K\1"}})}, {"a/outer", hidden}, {"a/b", "12345"}});
  const size_t at = text.find(hidden);
  text.replace(text.size() - 22 - 49 + 42, 4, test::number_text(at, 4));
  expect_refused(text, kBroken, "'a/outer' and 'a/b' overlap");
}

TEST(TorchFile, OldFiles) {
  std::ifstream stream(std::string(kCorpus) + "old.pt", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  ASSERT_TRUE(parse(text).file.ok());
  expect_refused(text.substr(0, text.size() - 1), kBroken, "bytes are missing");
  std::string other = text;
  other[18] = '\x7F';  // of the version
  expect_refused(other, kNot, "version");
  const std::string start = text.substr(0, 15);
  expect_refused(start + "\x80\x02M\xE9\x03.\x80\x02}.\x80\x02}.\x80\x02](X\1" +
                     std::string(3, '\0') + "ke." + std::string(8, '\0'),
                 kBroken, "the storage 'k' belongs to no tensor");
}

}  // namespace aerie::torch_file_test
