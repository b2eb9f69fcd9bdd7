#include "tests/model/packed_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "format/checksum.h"
#include "model/model.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHeaderBytes = 64;

ThreadPool& pool() {
  static ThreadPool instance(2);
  return instance;
}

template <typename T>
T number_at(const std::vector<std::byte>& bytes, size_t offset) {
  T value = {};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

std::vector<float> logits_of(const ModelFile& file, const std::string& cache, kernels::Isa isa) {
  constexpr int kRows = 7;
  ModelOptions options;
  options.backend = kernels::backend(isa);
  options.pool = &pool();
  options.max_rows = kRows;
  options.max_positions = 16;
  options.weight_cache = cache;
  auto model = load_model(file, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  const ModelCache kv =
      make_cache(**model, {.positions = options.max_positions, .sequences = 1}).value();
  const auto id = kv->open();
  EXPECT_TRUE(kv->reserve(*id, kRows).ok());
  ForwardBatch batch;
  batch.sequences.push_back({kv->pages(*id), 0, *id});
  for (int i = 0; i < kRows; ++i) {
    batch.rows.push_back({0, 5 * i + 3, i, kv->slot(*id, i), i - 1, {}, true, false});
  }
  EXPECT_TRUE(check_batch(batch, (*model)->config(), options).ok());
  const ForwardOutputs out = (*model)->forward(batch, *kv);
  std::vector<float> memory;
  const std::span<const float> logits = out.all_logits(kRows, memory);
  return {logits.begin(), logits.end()};
}

TemporaryFolder::TemporaryFolder(const std::string& name)
    : path_(fmt::format("{}aerie_{}_{}", testing::TempDir(), getpid(), name)) {
  fs::remove_all(path_);
  fs::create_directory(path_);
}

TemporaryFolder::~TemporaryFolder() {
  fs::remove_all(path_);
}

std::vector<fs::path> TemporaryFolder::files() const {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(path_)) paths.push_back(entry.path());
  return paths;
}

fs::path TemporaryFolder::file() const {
  const std::vector<fs::path> paths = files();
  EXPECT_EQ(paths.size(), 1u);
  return paths.empty() ? fs::path() : paths[0];
}

std::vector<std::byte> read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void write_bytes(const fs::path& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(file.good()) << path;
}

ino_t inode_of(const fs::path& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_ino;
}

PackedFile::PackedFile(std::vector<std::byte> file) : bytes(std::move(file)) {
  EXPECT_EQ(std::memcmp(bytes.data(), "aeriepk1", 8), 0);
  size_t at = kHeaderBytes;
  count = number_at<uint64_t>(bytes, at);
  at += 8;
  for (uint64_t i = 0; i < count; ++i) {
    Entry entry;
    const auto length = number_at<uint32_t>(bytes, at);
    at += 4;
    entry.name.assign(reinterpret_cast<const char*>(bytes.data()) + at, length);
    at += length;
    entry.offset = number_at<uint64_t>(bytes, at);
    entry.size = number_at<uint64_t>(bytes, at + 8);
    entry.checksum = number_at<uint64_t>(bytes, at + 16);
    at += 24;
    const std::span data = std::span(bytes).subspan(entry.offset, entry.size);
    EXPECT_EQ(checksum(data), entry.checksum) << entry.name;
    entries.push_back(std::move(entry));
  }
  EXPECT_EQ(at, kHeaderBytes + index_bytes());
}

uint64_t PackedFile::index_bytes() const {
  return number_at<uint64_t>(bytes, 16);
}

std::vector<std::byte> PackedFile::forged() const {
  std::string index;
  append(index, count);
  for (const Entry& entry : entries) {
    append(index, entry.name_length.value_or(static_cast<uint32_t>(entry.name.size())));
    index += entry.name;
    append(index, entry.offset);
    append(index, entry.size);
    append(index, entry.checksum);
  }
  EXPECT_LE(index.size(), index_bytes());
  std::vector<std::byte> out = bytes;
  const uint64_t size = index.size(), sum = checksum(std::as_bytes(std::span(index))) + size;
  std::memcpy(out.data() + 16, &size, 8);
  std::memcpy(out.data() + 24, &sum, 8);
  std::memcpy(out.data() + kHeaderBytes, index.data(), index.size());
  return out;
}

}  // namespace aerie
