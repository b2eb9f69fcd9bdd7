// What requests say about the form of an output: response_format, structured_outputs, guided_*,
// grammar; tools that must be called.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "grammar/grammar.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

struct NamedGrammar {
  GrammarSpec spec;
  std::string field;  // that asked for it
};

// Of a request of chat or completions. More than one is an error.
std::optional<NamedGrammar> read_grammar(FieldReader& request);

// {"type": "text" | "json_object" | "json_schema", ...}, where the schema lies in `format` itself
// or within it under "json_schema".
std::optional<NamedGrammar> read_response_format(const Json& format, const std::string& name,
                                                 std::optional<ApiError>& error);

// Compiled grammars by what they were made of: masks that were computed once are kept with a
// grammar. Of those that no request has any more the newest few stay, within a bound in bytes that
// counts their states and masks. Held by shared_ptr. Thread-safe.
class GrammarCache : public std::enable_shared_from_this<GrammarCache> {
 public:
  // Null: it is not there.
  std::shared_ptr<const Grammar> find(const GrammarSpec& spec);
  // As compile_grammar().
  Expected<std::shared_ptr<const Grammar>> get(const GrammarSpec& spec,
                                               std::shared_ptr<const TokenTrie> trie,
                                               const CompileOptions& options);

 private:
  static constexpr size_t kMost = 64;
  static constexpr size_t kMostIdleBytes = size_t{32} << 20;

  struct Entry {
    std::string key;
    std::shared_ptr<const Grammar> grammar;
  };
  std::shared_ptr<const Grammar> lend(std::shared_ptr<const Grammar> grammar);
  std::shared_ptr<const Grammar> find(const std::string& key);
  void trim();

  std::mutex mutex_;
  std::list<Entry> newest_first_;
};

}  // namespace aerie::server
