// A golden's checkpoint in memory, to be changed and written: with one thing broken, say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "draft/heads/heads.h"
#include "format/json.h"
#include "tests/draft/heads/head_models.h"

namespace aerie::test {

struct HeadTensor {
  std::string name;
  std::string type;  // "F32"
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};

class HeadFolder {
 public:
  // A copy of tests/golden/heads/<name>/head, for its target. Fails the test if there is none.
  HeadFolder(const std::string& name, std::string method);
  ~HeadFolder();  // removes what was written
  HeadFolder(const HeadFolder&) = delete;
  HeadFolder& operator=(const HeadFolder&) = delete;

  Json config;
  std::vector<HeadTensor> tensors;

  // Fails the test if there is none of the name.
  HeadTensor& tensor(std::string_view name);
  void remove(std::string_view name);
  // Zeros of the type F32, or I64.
  void add(const std::string& name, std::vector<int64_t> shape, const std::string& type = "F32");
  // A tensor of another shape under its name.
  void reshape(std::string_view name, std::vector<int64_t> shape);
  // Of a tensor of the type I64.
  void set(std::string_view name, const std::vector<int64_t>& values);

  // What comes of loading it as it is now.
  Expected<std::unique_ptr<FeatureHead>> load(const HeadSettings& settings = {});
  // That it is refused with the code, and a message that names the folder or its config.json and
  // has this part.
  void expect_refused(StatusCode code, const std::string& part, const HeadSettings& settings = {});

 private:
  void write() const;

  std::string method_, path_;
  HeadModels models_;
};

}  // namespace aerie::test
