// Schemas for what other schemas exclude: "not", "if", dependencies and "oneOf" become schemas
// without them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/schema/schema_document.h"

namespace aerie::grammar {

// Writes schemas into the document, which must outlive it. All of them are sound: what is valid by
// them is what is meant. Some are partial: not all that is meant is valid by them, since no
// automaton tells the rest in reasonable size. Then nothing follows from something being invalid by
// them.
class SchemaNegation {
 public:
  explicit SchemaNegation(SchemaDocument& document) : document_(document) {}

  // What is not valid by `schema`; null if of that nothing can be told.
  Expected<const Json*> negated(const Json& schema);
  // What "if", "then" and "else" of `schema` say together.
  Expected<const Json*> conditional(const Json& schema);
  // What "dependencies", "dependentRequired" and "dependentSchemas" of `schema` say, one for each
  // name.
  Expected<std::vector<const Json*>> dependencies(const Json& schema);
  // What one of the schemas says.
  const Json* either(const std::vector<const Json*>& schemas, const Json& origin);

 private:
  // The alternatives of which one has to hold for the schema not to.
  using Ways = std::vector<Json>;

  Expected<Json> negation(const Json& schema);
  Expected<Ways> ways(const Json& schema);
  Status add_types(const Json& schema, Ways& ways);
  void add_values(const Json& values, Ways& ways);
  void add_numbers(const Json& values, Ways& ways);
  Status add_prefix(const Json* list, Ways& ways);
  void add_contains(const Json& schema, Ways& ways);
  void add_limits(const Json& schema, Ways& ways);
  Status add_members(const Json& schema, Ways& ways);
  Status add_combined(const Json& schema, Ways& ways);
  Status add_one_of(const Json& list, Ways& ways);
  Status add_conditional(const Json& schema, Ways& ways);
  // `{"allOf": [negated...]}`, if all of them can be told.
  Status add_none(const Json& list, Ways& ways);
  // The schema itself, by reference; silent: what it evaluates does not count, since it is not part
  // of what the client said holds.
  Json reference(const Json& schema) const;
  Json silent_reference(const Json& schema) const;
  const Json* keep(Json schema, const Json& origin, bool partial);

  SchemaDocument& document_;
  std::map<const Json*, const Json*> known_;
  int depth_ = 0;
  bool partial_ = false;  // of the one that is being written
};

}  // namespace aerie::grammar
