// The official suite: what is refused there, no output may be.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/grammar/grammars.h"
#include "tests/tokenizer/vocabularies.h"

namespace aerie::schema_suite_test {

using SuiteJson = nlohmann::ordered_json;

struct Count {
  int schemas = 0;
  int compiled = 0;
  int impossible = 0;  // refused because no text is valid
  int valid = 0;
  int accepted = 0;
  int invalid = 0;
  int wrong = 0;
  std::map<std::string, int> reasons;
};

// The word behind which a refusal stands.
std::string reason(const std::string& message) {
  const size_t colon = message.find(": ");
  const size_t slash = message.rfind('/', colon);
  return slash == std::string::npos || colon == std::string::npos
             ? message
             : message.substr(slash + 1, colon - slash - 1);
}

void run_schema(const SuiteJson& group, const std::string& name, Count& count) {
  ++count.schemas;
  GrammarSpec spec;
  spec.kind = GrammarKind::kJsonSchema;
  SuiteJson schema = group.at("schema");
  // Without it a schema is of the newest draft.
  if (name.find("/draft7/") != std::string::npos && schema.is_object() &&
      !schema.contains("$schema")) {
    schema["$schema"] = "http://json-schema.org/draft-07/schema#";
  }
  spec.text = schema.dump();
  // These ask for what is left open elsewhere: formats as assertions, contents.
  spec.strict = name.find("/optional/") != std::string::npos;
  const auto grammar = compile_grammar(spec, test::toy_trie());
  const bool impossible = !grammar.ok() && grammar.status().message().starts_with("no output");
  if (impossible) ++count.impossible;
  if (!grammar.ok() && !impossible) {
    ++count.reasons[reason(grammar.status().message())];
    return;
  }
  ++count.compiled;
  for (const SuiteJson& instance : group.at("tests")) {
    const std::string text = instance.at("data").dump();
    const bool accepted = !impossible && test::accepts(*grammar, text);
    if (instance.at("valid").get<bool>()) {
      ++count.valid;
      count.accepted += accepted ? 1 : 0;
      if (!accepted && std::getenv("AERIE_SHOW_REFUSED") != nullptr) {
        fmt::print("refused: {} {} {}\n", name, spec.text, text);
      }
      continue;
    }
    ++count.invalid;
    count.wrong += accepted ? 1 : 0;
    EXPECT_FALSE(accepted) << name << ": " << spec.text << "\n" << text;
  }
}

void run_folder(const std::filesystem::path& folder, Count& count) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    // "format" is an annotation there unless the optional tests ask for more.
    const auto groups = SuiteJson::parse(test::read_file(entry.path()));
    for (const SuiteJson& group : groups) run_schema(group, entry.path().string(), count);
  }
}

TEST(SchemaSuite, AcceptsNothingInvalid) {
  for (const char* draft : {"draft2020-12", "draft7"}) {
    const auto folder = test::kShared / "json-schema-test-suite/tests" / draft;
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is missing";
    Count count;
    run_folder(folder, count);
    fmt::print(
        "{}: {} of {} schemas compile ({} of them match nothing); of {} valid instances {} "
        "are accepted, of {} invalid ones {}\n",
        draft, count.compiled, count.schemas, count.impossible, count.valid, count.accepted,
        count.invalid, count.wrong);
    for (const auto& [word, times] : count.reasons) fmt::print("  {} {}\n", times, word);
    EXPECT_GT(2 * count.compiled, count.schemas);
    EXPECT_GT(10 * count.accepted, 7 * count.valid);
  }
}

}  // namespace aerie::schema_suite_test
