// The schemas and instances of the JSON Schema Test Suite.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace aerie::test {

struct SuiteInstance {
  nlohmann::ordered_json data;
  bool valid = false;
};

struct SuiteSchema {
  std::string name;  // file and description
  nlohmann::ordered_json schema;
  std::vector<SuiteInstance> instances;
};

// Of the main tests of both drafts, in a fixed order; empty if the suite is not there.
std::vector<SuiteSchema> schema_suite();

}  // namespace aerie::test
