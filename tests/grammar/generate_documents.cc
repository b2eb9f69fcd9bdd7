// Prints outputs drawn at random for the schemas of files of the official suite, or of a list of
// schemas: one JSON object for each, with "schema" and "document" (as text), or "refused" and why.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/grammar/grammars.h"

namespace {

using Json = nlohmann::ordered_json;

void print_documents(const Json& schema, std::mt19937& random) {
  constexpr int kDocuments = 25;
  aerie::GrammarSpec spec;
  spec.kind = aerie::GrammarKind::kJsonSchema;
  spec.text = schema.dump();
  const auto grammar = aerie::compile_grammar(spec, aerie::test::toy_trie());
  if (!grammar.ok()) {
    const Json line = {{"schema", schema}, {"refused", grammar.status().message()}};
    std::puts(line.dump(-1, ' ', true).c_str());
    return;
  }
  for (int i = 0; i < kDocuments; ++i) {
    const auto text = aerie::test::try_random_output(*grammar, aerie::test::toy(), random);
    if (!text) continue;
    const Json line = {{"schema", schema}, {"document", *text}};
    std::puts(line.dump(-1, ' ', true).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::mt19937 random(1);
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i]);
    const Json list = Json::parse(file, nullptr, false);
    for (const Json& entry : list) {
      const bool suite = entry.is_object() && entry.contains("tests");
      Json schema = suite ? entry.at("schema") : entry;
      // Without it a schema is of the newest draft.
      const bool old = std::string_view(argv[i]).find("/draft7/") != std::string_view::npos;
      if (old && schema.is_object())
        schema.emplace("$schema", "http://json-schema.org/draft-07/schema#");
      print_documents(schema, random);
    }
  }
  return 0;
}
