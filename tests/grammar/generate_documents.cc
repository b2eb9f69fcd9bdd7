// Prints outputs drawn at random for the schemas of files of the official suite, or of a list of
// schemas: one JSON object for each, with "schema" and "document" (as text), or "refused" and why.
// With "--time MODEL.gguf" instead what they take with that vocabulary, one JSON object a schema.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/grammar/grammars.h"
#include "tests/tokenizer/vocabularies.h"

namespace {

using Json = nlohmann::ordered_json;

// Of this thread, so that others on the machine do not count.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// Masks and advances along a document's tokens: microseconds for each.
std::vector<double> follow(const std::shared_ptr<const aerie::Grammar>& grammar,
                           const std::vector<int32_t>& ids, std::span<bool> flags) {
  std::vector<double> times;
  auto constraint = aerie::make_constraint(grammar);
  for (const int32_t id : ids) {
    const double before = cpu_ms();
    constraint->mask(flags);
    if (!flags[static_cast<size_t>(id)]) break;  // the tokenizer cuts where the draw did not
    constraint->advance(id);
    times.push_back(1e3 * (cpu_ms() - before));
  }
  return times;
}

// Until the first mask is there; then along drawn documents, once for their masks and once more.
void print_times(const Json& schema, const aerie::Tokenizer& tokenizer,
                 const std::shared_ptr<const aerie::TokenTrie>& trie, std::mt19937& random) {
  constexpr int kDrawn = 3;
  aerie::GrammarSpec spec;
  spec.kind = aerie::GrammarKind::kJsonSchema;
  spec.text = schema.dump();
  const auto size = static_cast<size_t>(tokenizer.vocab_size());
  const auto flags = std::make_unique<bool[]>(size);
  const double start = cpu_ms();
  const auto grammar = aerie::compile_grammar(spec, trie);
  if (!grammar.ok()) {
    std::puts(Json{{"refused", grammar.status().message()}}.dump(-1, ' ', true).c_str());
    return;
  }
  const double compiled = cpu_ms();
  aerie::make_constraint(*grammar)->mask({flags.get(), size});
  Json line = {{"bytes", spec.text.size()},
               {"compile_ms", compiled - start},
               {"first_ms", cpu_ms() - start}};
  // Bytes and words, which the tokenizer cuts as it does other texts.
  const auto bytes = aerie::compile_grammar(spec, aerie::test::toy_trie());
  for (int i = 0; i < kDrawn && bytes.ok(); ++i) {
    const auto text = aerie::test::try_random_output(*bytes, aerie::test::toy(), random);
    if (!text) continue;
    const std::vector<int32_t> ids = aerie::test::encode(tokenizer, *text);
    for (const double time : follow(*grammar, ids, {flags.get(), size}))
      line["new_us"].push_back(time);
    for (const double time : follow(*grammar, ids, {flags.get(), size}))
      line["known_us"].push_back(time);
  }
  std::puts(line.dump(-1, ' ', true).c_str());
}

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
  std::unique_ptr<aerie::Tokenizer> tokenizer;
  std::shared_ptr<const aerie::TokenTrie> trie;
  int first = 1;
  if (argc > 2 && std::string_view(argv[1]) == "--time") {
    tokenizer = aerie::test::load_gguf(argv[2]);
    if (tokenizer == nullptr) return 1;
    trie = aerie::make_token_trie(*tokenizer);
    first = 3;
  }
  for (int i = first; i < argc; ++i) {
    std::ifstream file(argv[i]);
    const Json list = Json::parse(file, nullptr, false);
    for (const Json& entry : list) {
      const bool suite = entry.is_object() && entry.contains("tests");
      Json schema = suite ? entry.at("schema") : entry;
      // Without it a schema is of the newest draft.
      const bool old = std::string_view(argv[i]).find("/draft7/") != std::string_view::npos;
      if (old && schema.is_object())
        schema.emplace("$schema", "http://json-schema.org/draft-07/schema#");
      if (tokenizer != nullptr) {
        print_times(schema, *tokenizer, trie, random);
      } else {
        print_documents(schema, random);
      }
    }
  }
  return 0;
}
