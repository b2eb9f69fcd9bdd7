#include "tests/grammar/schema_suite.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace aerie::test {

std::vector<SuiteSchema> schema_suite() {
  std::vector<std::filesystem::path> files;
  for (const char* draft : {"draft2020-12", "draft7"}) {
    const auto folder =
        std::filesystem::path("../shared/data/json-schema-test-suite/tests") / draft;
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<SuiteSchema> suite;
  for (const auto& path : files) {
    std::ifstream file(path);
    const auto groups = nlohmann::ordered_json::parse(file);
    for (const auto& group : groups) {
      SuiteSchema schema;
      schema.name = path.parent_path().filename().string() + "/" + path.filename().string() + ": " +
                    group["description"].get<std::string>();
      schema.schema = group["schema"];
      for (const auto& test : group["tests"]) {
        schema.instances.push_back({test["data"], test["valid"].get<bool>()});
      }
      suite.push_back(std::move(schema));
    }
  }
  return suite;
}

}  // namespace aerie::test
