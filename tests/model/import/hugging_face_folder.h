// A Hugging Face folder in memory, to be changed and written: one of tests/golden/families/ with
// one thing broken. And what comes of loading it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace aerie::test {

struct FolderTensor {
  std::string name;
  std::string type;  // "F32"
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};

// A path for a test of this process alone.
std::filesystem::path temporary_path(const std::string& name);

// What opening the path and loading the model says.
Status load_folder(const std::string& path);

// That it is refused with the code, a message that starts with the path and has these parts, and
// without asking for much memory at once. For programs that link memory_meter.cc.
void expect_refused(const std::string& path, StatusCode code,
                    const std::vector<std::string>& parts);

class HuggingFaceFolder {
 public:
  // A copy of the family's; fails the test if there is none. write() writes to `path`.
  HuggingFaceFolder(const std::string& family, std::filesystem::path path);
  // Removes what was written.
  ~HuggingFaceFolder();
  HuggingFaceFolder(const HuggingFaceFolder&) = delete;
  HuggingFaceFolder& operator=(const HuggingFaceFolder&) = delete;

  Json config;
  std::vector<FolderTensor> tensors;

  // Fails the test if there is none of the name.
  FolderTensor& tensor(std::string_view name);
  void remove_tensor(std::string_view name);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // config.json and model.safetensors, whose header is `shift` bytes longer than alignment asks
  // for.
  void write(size_t shift = 0) const;
  void write_text(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace aerie::test
