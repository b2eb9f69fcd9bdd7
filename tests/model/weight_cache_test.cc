// Packed weights that are kept in files: the same bits with and without them, whatever becomes of
// the files.
#include "model/weight_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "base/log.h"
#include "format/checksum.h"
#include "format/converted_file.h"
#include "format/gguf/gguf_split.h"
#include "model/import/hugging_face_file.h"
#include "tests/model/families/family_goldens.h"
#include "tests/model/packed_files.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/tiny_model.h"

namespace aerie::weight_cache_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

ThreadPool& pool() {
  static ThreadPool instance(2);
  return instance;
}

// As it is, or converted.
std::unique_ptr<ModelFile> open_family(const std::string& name, std::optional<DType> type) {
  std::unique_ptr<ModelFile> file = open_family_model(name);
  if (!type) return file;
  auto converted = ConvertedFile::wrap(std::move(file), {*type, true}, pool());
  EXPECT_TRUE(converted.ok()) << converted.status().message();
  return std::move(converted).value();
}

// What is logged meanwhile.
template <typename Do>
std::string warnings(const Do& something) {
  testing::internal::CaptureStderr();
  something();
  return testing::internal::GetCapturedStderr();
}

// No warnings for as long as it exists.
class Quiet {
 public:
  Quiet() { set_log_level(LogLevel::kError); }
  ~Quiet() { set_log_level(LogLevel::kWarning); }
};

class FamilyCacheTest : public testing::TestWithParam<std::string> {};

TEST_P(FamilyCacheTest, ChangesNoBit) {
  for (const kernels::Isa isa : {kernels::best_isa(), kernels::Isa::kReference}) {
    for (const std::optional<DType> type :
         {std::optional<DType>(), std::optional(DType::kQ8_0), std::optional(DType::kQ4_0)}) {
      SCOPED_TRACE(
          fmt::format("{} {}", kernels::isa_name(isa), type ? dtype_info(*type).name : ""));
      const TemporaryFolder folder("family_cache");
      const std::vector<float> plain = logits_of(*open_family(GetParam(), type), "", isa);
      EXPECT_TRUE(folder.files().empty());
      ino_t inode = 0;
      for (int time = 0; time < 3; ++time) {
        const std::string said = warnings([&] {
          EXPECT_EQ(logits_of(*open_family(GetParam(), type), folder.path(), isa), plain);
        });
        EXPECT_EQ(said, "");
        const ino_t now = inode_of(folder.file());
        EXPECT_TRUE(time == 0 || now == inode) << "it was written again";
        inode = now;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, FamilyCacheTest, testing::ValuesIn(family_models()),
                         family_test_name);

class WeightCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    write_model(1);
    plain_ = logits_of(*open(), "");
    EXPECT_EQ(logits_of(*open(), cache_.path()), plain_);
    good_ = read_bytes(cache_.file());
  }

  static test::TinySpec spec(uint64_t seed) {
    test::TinySpec spec;
    spec.layers = 1;
    spec.vocab = 50;
    spec.dtype = DType::kQ4_0;
    spec.seed = seed;
    return spec;
  }
  std::string model() const { return models_.path() + "/model.gguf"; }
  void set_time(int64_t seconds) const {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, model().c_str(), times, 0), 0);
  }
  // The same size and time whatever the seed.
  void write_model(uint64_t seed) const {
    EXPECT_TRUE(test::tiny_gguf(spec(seed)).write(model()).ok());
    set_time(1000);
  }
  std::unique_ptr<ModelFile> open() const {
    auto file = GgufFile::open(model());
    EXPECT_TRUE(file.ok()) << file.status().message();
    return std::move(file).value();
  }
  std::vector<float> logits() const { return logits_of(*open(), cache_.path()); }

  // Puts `bytes` in the place of the cache: the model says the same, and the file is a good one
  // again.
  void expect_mended(const Bytes& bytes) {
    const fs::path path = cache_.file();
    write_bytes(path, bytes);
    EXPECT_EQ(logits(), plain_);
    EXPECT_EQ(cache_.file(), path);
    EXPECT_TRUE(read_bytes(path) == good_);
  }

  const TemporaryFolder models_{"cache_models"};
  const TemporaryFolder cache_{"cache"};
  std::vector<float> plain_;
  Bytes good_;
};

// Nothing that is written into a cache goes unread: another weight there is another in the model.
TEST_F(WeightCacheTest, TheFileIsWhatIsUsed) {
  const PackedFile file(good_);
  std::set<std::string> names;
  for (size_t i = 0; i < file.entries.size(); ++i) {
    PackedFile forged = file;
    PackedFile::Entry& entry = forged.entries[i];
    names.insert(entry.name);
    // The first row's first code.
    forged.bytes[entry.offset] ^= std::byte{7};
    entry.checksum = checksum(std::span(forged.bytes).subspan(entry.offset, entry.size));
    write_bytes(cache_.file(), forged.forged());
    const std::string said = warnings([&] { EXPECT_NE(logits(), plain_) << entry.name; });
    EXPECT_EQ(said, "");
  }
  EXPECT_TRUE(names.contains("blk.0.ffn_down.weight[0:64]"));
  EXPECT_TRUE(names.contains("output.weight[0:50]"));
  EXPECT_EQ(names.size(), 8u);
}

TEST_F(WeightCacheTest, ATableIsKeptOnlyIfItIsMade) {
  const auto has_table = [](const PackedFile& file) {
    return std::any_of(file.entries.begin(), file.entries.end(),
                       [](const auto& entry) { return entry.name == "token_embd.weight"; });
  };
  EXPECT_FALSE(has_table(PackedFile(good_)));
  const TemporaryFolder folder("table");
  logits_of(*open_family("llama-bf16", DType::kQ8_0), folder.path());
  const PackedFile made(read_bytes(folder.file()));
  EXPECT_TRUE(has_table(made));
}

TEST_F(WeightCacheTest, EachKindHasAFileOfItsOwn) {
  const TemporaryFolder folder("kinds");
  std::set<fs::path> files;
  const auto check = [&](const ModelFile& file, kernels::Isa isa) {
    logits_of(file, folder.path(), isa);
    const std::vector<fs::path> now = folder.files();
    files.insert(now.begin(), now.end());
    return files.size();
  };
  EXPECT_EQ(check(*open(), kernels::best_isa()), 1u);
  EXPECT_EQ(check(*open(), kernels::Isa::kReference), 2u);
  EXPECT_EQ(check(*open_family("llama", std::nullopt), kernels::best_isa()), 3u);
  EXPECT_EQ(check(*open_family("llama", DType::kQ8_0), kernels::best_isa()), 4u);
  EXPECT_EQ(check(*open_family("llama", DType::kQ4_0), kernels::best_isa()), 5u);
  EXPECT_EQ(check(*open_family("llama", DType::kQ4_0), kernels::best_isa()), 5u);
}

// Whichever part is named.
TEST_F(WeightCacheTest, ASplitModelHasOne) {
  const std::vector<std::string> first = {"token_embd.weight", "blk.0.attn_norm.weight",
                                          "blk.0.attn_q.weight", "blk.0.attn_k.weight"};
  const std::vector<std::string> second = {"blk.0.attn_v.weight",   "blk.0.attn_output.weight",
                                           "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight",
                                           "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight",
                                           "output_norm.weight",    "output.weight"};
  const auto path = [&](int64_t part) { return gguf_split_path(models_.path() + "/m", part, 2); };
  for (uint16_t part = 0; part < 2; ++part) {
    test::TinySpec parts = spec(1);
    parts.omit = part == 0 ? second : first;
    test::GgufWriter writer = test::tiny_gguf(parts);
    writer.add_u16("split.no", part).add_u16("split.count", 2).add_i32("split.tensors.count", 12);
    ASSERT_TRUE(writer.write(path(part)).ok());
  }
  const TemporaryFolder folder("split");
  Bytes bytes;
  for (int64_t part : {0, 1, 0}) {
    auto file = GgufFile::open(path(part));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(warnings([&] { EXPECT_EQ(logits_of(**file, folder.path()), plain_); }), "");
    const Bytes now = read_bytes(folder.file());
    EXPECT_TRUE(bytes.empty() || now == bytes);
    bytes = now;
  }
  // The second part is watched as the first is.
  std::ofstream(path(1), std::ios::app) << "more";
  auto file = GgufFile::open(path(0));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(warnings([&] { EXPECT_EQ(logits_of(**file, folder.path()), plain_); }),
              HasSubstr("packed anew"));
}

// config.json says how what lies in the other files is meant.
TEST_F(WeightCacheTest, EveryFileOfAFolderIsWatched) {
  const TemporaryFolder copy("watched"), folder("watched_cache");
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy_file(fs::path("tests/golden/families/llama") / name, fs::path(copy.path()) / name);
  }
  const auto says = [&] {
    auto file = open_model_file(copy.path());
    EXPECT_TRUE(file.ok()) << file.status().message();
    return warnings([&] { logits_of(**file, folder.path()); });
  };
  EXPECT_EQ(says(), "");
  EXPECT_EQ(says(), "");
  const fs::path config = fs::path(copy.path()) / "config.json";
  std::ifstream in(config);
  std::string text(std::istreambuf_iterator<char>(in), {});
  const size_t brace = text.rfind('}');
  text.insert(brace, ", \"a_comment\": 1");
  std::ofstream(config) << text;
  EXPECT_THAT(says(), HasSubstr("packed anew"));
  EXPECT_EQ(says(), "");
  fs::last_write_time(fs::path(copy.path()) / "model.safetensors",
                      fs::file_time_type::clock::now());
  EXPECT_THAT(says(), HasSubstr("packed anew"));
}

TEST_F(WeightCacheTest, AnotherModelInTheSamePlaceIsPacked) {
  const fs::path path = cache_.file();
  for (const uint64_t seed : {2, 3, 1}) {
    const ino_t before = inode_of(path);
    const int64_t size = static_cast<int64_t>(fs::file_size(model()));
    write_model(seed);
    ASSERT_EQ(static_cast<int64_t>(fs::file_size(model())), size);
    const std::vector<float> expected = logits_of(*open(), "");
    const std::string said = warnings([&] { EXPECT_EQ(logits(), expected); });
    EXPECT_THAT(said, HasSubstr("was made of other files than the model has now"));
    EXPECT_THAT(said, HasSubstr(path.string()));
    EXPECT_EQ(cache_.file(), path);
    EXPECT_NE(inode_of(path), before);
    EXPECT_EQ(warnings([&] { EXPECT_EQ(logits(), expected); }), "");
  }
  EXPECT_EQ(logits(), plain_);
}

TEST_F(WeightCacheTest, AnotherTimeIsAnotherModel) {
  set_time(1001);
  EXPECT_THAT(warnings([&] { EXPECT_EQ(logits(), plain_); }), HasSubstr("packed anew"));
  EXPECT_FALSE(read_bytes(cache_.file()) == good_) << "the fingerprint is another";
  EXPECT_EQ(warnings([&] { EXPECT_EQ(logits(), plain_); }), "");
}

TEST_F(WeightCacheTest, CutFilesAreMended) {
  const Quiet quiet;
  const PackedFile file(good_);
  std::vector<size_t> lengths;
  for (size_t length = 0; length < 64 + file.index_bytes(); length += 5) lengths.push_back(length);
  for (const PackedFile::Entry& entry : file.entries) {
    for (const uint64_t at : {entry.offset, entry.offset + 1, entry.offset + entry.size - 1}) {
      lengths.push_back(at);
    }
  }
  for (const size_t length : lengths) {
    SCOPED_TRACE(length);
    Bytes cut = good_;
    cut.resize(length);
    expect_mended(cut);
  }
}

TEST_F(WeightCacheTest, DamagedFilesAreMended) {
  const Quiet quiet;
  const PackedFile file(good_);
  std::vector<size_t> places;
  for (size_t at = 0; at < 32; ++at) places.push_back(at);
  for (size_t at = 64; at < 64 + file.index_bytes(); at += 3) places.push_back(at);
  std::mt19937_64 random(3);
  for (const PackedFile::Entry& entry : file.entries) {
    for (int i = 0; i < 10; ++i) places.push_back(entry.offset + random() % entry.size);
    places.push_back(entry.offset);
    places.push_back(entry.offset + entry.size - 1);
  }
  for (const size_t at : places) {
    SCOPED_TRACE(at);
    Bytes damaged = good_;
    damaged[at] ^= static_cast<std::byte>(1 << random() % 8);
    expect_mended(damaged);
  }
}

TEST_F(WeightCacheTest, DamageIsAWarning) {
  Bytes damaged = good_;
  damaged[PackedFile(good_).entries[3].offset] ^= std::byte{1};
  const std::string said = warnings([&] { expect_mended(damaged); });
  EXPECT_THAT(said,
              HasSubstr(cache_.file().string() + ": is damaged; the weights are packed anew"));
}

TEST_F(WeightCacheTest, OtherFilesAreReplaced) {
  const Quiet quiet;
  std::mt19937_64 random(4);
  for (const size_t size : {0, 1, 63, 64, 65, 1000, 100000}) {
    Bytes garbage(size);
    for (std::byte& b : garbage) b = static_cast<std::byte>(random());
    expect_mended(garbage);
    std::copy_n(good_.begin(), std::min<size_t>(size, 32), garbage.begin());
    expect_mended(garbage);
  }
}

// Indices with a right checksum that lie.
TEST_F(WeightCacheTest, HostileIndicesAreMended) {
  const Quiet quiet;
  const PackedFile file(good_);
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  for (const uint64_t count : {uint64_t{0}, file.count - 1, file.count + 1, kMax / 28, kMax}) {
    PackedFile lie = file;
    lie.count = count;
    expect_mended(lie.forged());
  }
  for (const uint64_t value :
       {uint64_t{0}, uint64_t{1}, uint64_t{good_.size()}, kMax / 2, kMax - 4095, kMax}) {
    for (size_t i = 0; i < file.entries.size(); ++i) {
      PackedFile lie = file;
      lie.entries[i].offset = value;
      expect_mended(lie.forged());
      lie = file;
      lie.entries[i].size = value;
      expect_mended(lie.forged());
      lie = file;
      lie.entries[i].checksum = value;
      expect_mended(lie.forged());
    }
  }
  PackedFile twice = file;
  twice.entries[1].name = twice.entries[2].name;
  expect_mended(twice.forged());
  PackedFile exchanged = file;
  std::swap(exchanged.entries[0].name, exchanged.entries[4].name);
  expect_mended(exchanged.forged());

  // A name, and an index, of more bytes than there are.
  for (const uint64_t size : {uint64_t{5}, uint64_t{good_.size()}, uint64_t{1} << 40, kMax}) {
    Bytes bytes = good_;
    std::memcpy(&bytes[16], &size, 8);
    expect_mended(bytes);
  }
  for (const uint32_t length : {0u, 1u, 1000u, 0xFFFFFFFFu}) {
    PackedFile lie = file;
    lie.entries[2].name_length = length;
    expect_mended(lie.forged());
  }
}

TEST_F(WeightCacheTest, WhatCannotBeWrittenIsAWarning) {
  const std::string in_file = model() + "/cache";
  EXPECT_THAT(warnings([&] { EXPECT_EQ(logits_of(*open(), in_file), plain_); }),
              HasSubstr("the packed weights are not kept"));

  const fs::path path = cache_.file();
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_THAT(warnings([&] { EXPECT_EQ(logits(), plain_); }), HasSubstr("is a directory"));
  EXPECT_TRUE(fs::is_directory(path));
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(warnings([&] { EXPECT_EQ(logits(), plain_); }), HasSubstr("not a regular file"));
  fs::remove(path);

  const Quiet quiet;
  for (const size_t room : {size_t{0}, size_t{100}, size_t{5000}, good_.size() - 1}) {
    const test::FileSizeLimit limit(room);
    EXPECT_EQ(logits(), plain_);
    EXPECT_TRUE(cache_.files().empty()) << room;
  }
  EXPECT_EQ(logits(), plain_);
  EXPECT_TRUE(read_bytes(cache_.file()) == good_);
}

TEST_F(WeightCacheTest, TheFolderIsMade) {
  const std::string folder = cache_.path() + "/a/b";
  EXPECT_EQ(warnings([&] { EXPECT_EQ(logits_of(*open(), folder), plain_); }), "");
  EXPECT_FALSE(fs::is_empty(folder));
}

TEST_F(WeightCacheTest, SeveralAtATime) {
  const TemporaryFolder folder("several");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ThreadPool own(1);
      ModelOptions options = test::model_options();
      options.pool = &own;
      options.weight_cache = folder.path();
      for (int time = 0; time < 5; ++time) {
        const std::unique_ptr<ModelFile> file = open();
        EXPECT_TRUE(load_model(*file, options).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(logits_of(*open(), folder.path()), plain_);
  EXPECT_TRUE(read_bytes(folder.file()) == good_);
}

// Should this fail, packed weights are not what they were, and the files that people have must not
// be taken for them: raise kPackingVersion and write the new numbers here.
TEST(PackingVersion, GoesWithThePackedBytes) {
  ASSERT_EQ(kPackingVersion, 1);
  for (const kernels::Isa isa : kernels::built_isas()) {
    if (!kernels::isa_supported(isa)) continue;
    uint64_t sum = 0;
    for (const char* family : {"gemma2", "gpt2", "llama", "llama-bf16", "llama-fp8-block",
                               "mistral", "phi3", "qwen2", "qwen3"}) {
      for (const std::optional<DType> type :
           {std::optional<DType>(), std::optional(DType::kQ8_0), std::optional(DType::kQ4_1)}) {
        const TemporaryFolder folder("packing_version");
        logits_of(*open_family(family, type), folder.path(), isa);
        for (const PackedFile::Entry& entry : PackedFile(read_bytes(folder.file())).entries) {
          sum = sum * 3 + entry.checksum;
        }
      }
    }
    EXPECT_EQ(sum, isa == kernels::Isa::kReference ? 17124483552504437512u : 18022320140816879808u)
        << kernels::isa_name(isa);
  }
}

}  // namespace aerie::weight_cache_test
