// Documents made at random of every schema of the suite that compiles, for check_documents.py: a
// line of JSON each, {"name", "schema", "document"}.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/grammar/matching.h"
#include "tests/grammar/schema_suite.h"

int main() {
  using namespace aerie;
  for (const test::SuiteSchema& schema : test::schema_suite()) {
    const auto grammar = test::compile(GrammarKind::kJsonSchema, schema.schema.dump());
    if (!grammar.ok()) continue;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const std::string text = test::random_text(*grammar, seed, 10 + 20 * static_cast<int>(seed));
      nlohmann::ordered_json line;
      line["name"] = schema.name;
      line["schema"] = schema.schema;
      line["document"] = text;
      std::puts(line.dump().c_str());
    }
  }
  return 0;
}
