#include "tests/model/import/hugging_face_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "format/safetensors/safetensors.h"
#include "kernels/backend.h"
#include "model/import/hugging_face_file.h"
#include "model/model.h"
#include "tests/format/memory_meter.h"
#include "tests/format/safetensors/safetensors_writer.h"

namespace aerie::test {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;

// Far more than any of the tiny models needs.
constexpr size_t kMaxRequest = size_t{1} << 20;

}  // namespace

std::filesystem::path temporary_path(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / fmt::format("aerie_{}_{}", getpid(), name);
}

Status load_folder(const std::string& path) {
  static ThreadPool pool(1);
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFile> file, open_model_file(path));
  ModelOptions options;
  options.backend = kernels::backend(kernels::best_isa());
  options.pool = &pool;
  options.max_positions = 16;
  return load_model(*file, options).status();
}

void expect_refused(const std::string& path, StatusCode code,
                    const std::vector<std::string>& parts) {
  reset_memory_use();
  const Status status = load_folder(path);
  EXPECT_LT(memory_use().largest, kMaxRequest) << status.message();
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_THAT(status.message(), Each(Ge(' '))) << "a control character";
  EXPECT_TRUE(status.message().starts_with(path)) << status.message();
  for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
}

HuggingFaceFolder::HuggingFaceFolder(const std::string& family, std::filesystem::path path)
    : path_(std::move(path)) {
  const std::string source = "tests/golden/families/" + family;
  auto json = read_json(source + "/config.json");
  EXPECT_TRUE(json.ok()) << json.status().message();
  if (json.ok()) config = *std::move(json);
  const auto file = SafetensorsFile::open(source + "/model.safetensors");
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    tensors.push_back({tensor.name,
                       std::string(safetensors_type_info(tensor.type).name),
                       tensor.shape,
                       {tensor.data.begin(), tensor.data.end()}});
  }
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

HuggingFaceFolder::~HuggingFaceFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

FolderTensor& HuggingFaceFolder::tensor(std::string_view name) {
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const FolderTensor& tensor) { return tensor.name == name; });
  if (at != tensors.end()) return *at;
  ADD_FAILURE() << "there is no tensor " << name;
  return tensors.front();
}

void HuggingFaceFolder::remove_tensor(std::string_view name) {
  const auto count =
      std::erase_if(tensors, [&](const FolderTensor& tensor) { return tensor.name == name; });
  EXPECT_EQ(count, 1u) << name;
}

void HuggingFaceFolder::write(size_t shift) const {
  write_text("config.json", config.dump());
  SafetensorsWriter writer;
  std::vector<std::byte> data;
  for (const FolderTensor& tensor : tensors) {
    writer.add(tensor.name, tensor.type, tensor.shape, tensor.data);
    data.insert(data.end(), tensor.data.begin(), tensor.data.end());
  }
  const auto bytes = safetensors_bytes(writer.header() + std::string(shift, ' '), data);
  EXPECT_TRUE(write_bytes(file("model.safetensors"), bytes).ok());
}

void HuggingFaceFolder::write_text(const std::string& name, const std::string& text) const {
  std::ofstream(file(name), std::ios::binary) << text;
}

}  // namespace aerie::test
