// JSON schemas as rules. What cannot be enforced exactly is refused by its name and JSON pointer.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "grammar/json_grammar.h"

namespace aerie {

// A schema and where it stands (a JSON pointer, for messages).
struct SchemaAt {
  const Json& schema;
  const std::string& pointer;
};

Status unsupported_keyword(const std::string& pointer, const std::string& keyword,
                           const std::string& why);
Status invalid_keyword(const std::string& pointer, const std::string& keyword,
                       const std::string& why);
// Of RFC 6901.
std::string pointer_token(const std::string& key);

// Whether a keyword says nothing about whether a value is valid.
bool is_annotation(const std::string& keyword);
// The types that a schema without references and combinations can be of: names of draft 2020-12,
// without "integer" where there is "number".
Expected<std::vector<std::string>> types_of(const SchemaAt& at);
bool has_type(const Json& value, const std::string& type);
// A schema of what both allow; kUnsupported where that takes more than putting keywords together.
Expected<Json> merge_schemas(const Json& a, const Json& b, const std::string& pointer);
// Whether it is plain that nothing matches both. References are not followed.
bool are_disjoint(const Json& a, const Json& b);

class SchemaCompiler {
 public:
  using Expr = GrammarBuilder::Expr;

  SchemaCompiler(const Json& root, GrammarBuilder& builder)
      : root_(root), builder_(builder), json_(builder) {}

  Expected<Expr> compile(const Json& schema, const std::string& pointer);

 private:
  static constexpr int kMaxDepth = 200;
  static constexpr size_t kMaxSchemas = 20'000;
  static constexpr size_t kMaxKeyBytes = size_t{64} << 20;

  Expected<const Json*> resolve(const std::string& reference, const std::string& pointer) const;
  Expected<Expr> body(const SchemaAt& at);
  // A copy with allOf and $ref merged into it.
  Expected<Json> without_references(const Json& schema, const std::string& pointer,
                                    int depth) const;
  Expected<Expr> branches(const Json& schema, const std::string& keyword,
                          const std::string& pointer);
  Expected<Expr> plain(const SchemaAt& at);
  Expected<Expr> of_type(const SchemaAt& at, const std::string& type);
  Expected<Expr> listed(const SchemaAt& at);
  Expr constant(const Json& value);

  // schema_scalars.cc
  Expected<Expr> number(const SchemaAt& at, bool integer);
  Expected<Expr> string(const SchemaAt& at);
  Expected<Expr> pattern(const SchemaAt& at, int least, int most);

  // schema_containers.cc
  Expected<Expr> array(const SchemaAt& at);
  Expected<Expr> object(const SchemaAt& at);
  Expr other_names(const std::vector<std::string>& names);

  const Json& root_;
  GrammarBuilder& builder_;
  JsonGrammar json_;
  std::map<std::string, Expr> made_;  // by the schema's text: equal schemas are one rule
  size_t key_bytes_ = 0;
  int depth_ = 0;
};

}  // namespace aerie
