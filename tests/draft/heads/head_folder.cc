#include "tests/draft/heads/head_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "format/safetensors/safetensors_folder.h"
#include "tests/format/safetensors/safetensors_writer.h"

namespace aerie::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kGoldens = "tests/golden/heads/";

std::vector<std::byte> zeros(const std::vector<int64_t>& shape, const std::string& type) {
  const auto elements =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return std::vector<std::byte>(static_cast<size_t>(elements) * (type == "I64" ? 8 : 4));
}

std::string target_of(const std::string& name) {
  auto golden = read_json(kGoldens + name + "/golden.json");
  EXPECT_TRUE(golden.ok()) << golden.status().message();
  return kGoldens + name + "/" + (*golden)["target"].get<std::string>();
}

}  // namespace

HeadFolder::HeadFolder(const std::string& name, std::string method)
    : method_(std::move(method)),
      path_(fs::path(testing::TempDir()) / fmt::format("aerie_{}_{}", getpid(), name)),
      models_(target_of(name)) {
  const std::string source = kGoldens + name + "/head";
  auto json = read_json(source + "/config.json");
  EXPECT_TRUE(json.ok()) << json.status().message();
  if (json.ok()) config = *std::move(json);
  const auto folder = SafetensorsFolder::open_any(source);
  EXPECT_TRUE(folder.ok()) << folder.status().message();
  if (!folder.ok()) return;
  for (const SafetensorsTensor* tensor : folder->tensors()) {
    tensors.push_back({tensor->name,
                       std::string(safetensors_type_info(tensor->type).name),
                       tensor->shape,
                       {tensor->data.begin(), tensor->data.end()}});
  }
  fs::remove_all(path_);
  fs::create_directories(path_);
}

HeadFolder::~HeadFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

HeadTensor& HeadFolder::tensor(std::string_view name) {
  const auto at = std::ranges::find(tensors, name, &HeadTensor::name);
  if (at != tensors.end()) return *at;
  ADD_FAILURE() << "there is no tensor " << name;
  return tensors.front();
}

void HeadFolder::remove(std::string_view name) {
  EXPECT_EQ(std::erase_if(tensors, [&](const HeadTensor& t) { return t.name == name; }), 1u)
      << name;
}

void HeadFolder::add(const std::string& name, std::vector<int64_t> shape, const std::string& type) {
  std::vector<std::byte> data = zeros(shape, type);
  tensors.push_back({name, type, std::move(shape), std::move(data)});
}

void HeadFolder::reshape(std::string_view name, std::vector<int64_t> shape) {
  remove(name);
  add(std::string(name), std::move(shape));
}

void HeadFolder::set(std::string_view name, const std::vector<int64_t>& values) {
  HeadTensor& changed = tensor(name);
  EXPECT_EQ(changed.type, "I64");
  changed.shape = {static_cast<int64_t>(values.size())};
  changed.data.resize(values.size() * sizeof(int64_t));
  std::memcpy(changed.data.data(), values.data(), changed.data.size());
}

void HeadFolder::write() const {
  std::ofstream(path_ + "/config.json", std::ios::binary) << config.dump();
  SafetensorsWriter writer;
  for (const HeadTensor& t : tensors) writer.add(t.name, t.type, t.shape, t.data);
  const Status status = writer.write(path_ + "/model.safetensors");
  EXPECT_TRUE(status.ok()) << status.message();
}

Expected<std::unique_ptr<FeatureHead>> HeadFolder::load(const HeadSettings& settings) {
  write();
  return models_.load(method_, path_, settings);
}

void HeadFolder::expect_refused(StatusCode code, const std::string& part,
                                const HeadSettings& settings) {
  const Status status = load(settings).status();
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_THAT(status.message(), StartsWith(path_));
  EXPECT_THAT(status.message(), HasSubstr(part));
}

}  // namespace aerie::test
