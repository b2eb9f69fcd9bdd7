// From schemas, with all that they refer to and combine, to the shapes of what is valid.
#pragma once

#include <map>
#include <set>

#include "base/status.h"
#include "grammar/schema/schema_negation.h"
#include "grammar/schema/schema_reader.h"
#include "grammar/schema/schema_validator.h"

namespace aerie::grammar {

// What it is given must outlive it. Errors name keyword and place.
class SchemaExpander {
 public:
  SchemaExpander(SchemaReader& reader, SchemaValidator& validator, SchemaNegation& negation)
      : document_(reader.document()), reader_(reader), validator_(validator), negation_(negation) {}

  // What is valid is what one of the shapes says; none: nothing is valid.
  Expected<Shapes> expand(const Goal& goal);

 private:
  Expected<Shapes> expand_schema(const Json& schema);
  Expected<Shapes> expand_object(const Json& schema);
  // Of "if" and what depends on members.
  Expected<Shapes> expand_rewritten(const Json& schema, Shapes shapes);
  Expected<Shapes> without(const Json& schema, const Json& excluded, const Shapes& shapes);
  // What "unevaluatedProperties" and "unevaluatedItems" of the schema say of each of its shapes: of
  // one that is an alternative not all, since others may hold as well.
  void add_unevaluated(const Json& schema, Shapes& shapes);
  Goal unevaluated_items(const Json& schema, const Json& value, const Shape& shape);
  // Nothing in the shapes evaluates members or items any more.
  void silence(Shapes& shapes);
  Expected<Shapes> expand_values(const Json& schema);
  Expected<Shapes> expand_list(const Json& schema, const char* keyword);
  Expected<Shapes> expand_one_of(const Json& schema, const Shapes& base);
  Expected<Shapes> product(const Json& schema, const Shapes& a, const Shapes& b);
  // The schema that it stands for if it is nothing but references, else itself.
  Expected<const Json*> referred(const Json& schema) const;
  Expected<std::optional<Shape>> merge(const Shape& a, const Shape& b);
  // Whether it is certain that nothing is valid by it.
  Expected<bool> is_impossible(const Shape& shape, int depth = 0);
  Expected<bool> is_impossible_object(const Shape& shape, int depth);
  // Whether it is certain that nothing is valid by both.
  Expected<bool> are_disjoint(const Shape& a, const Shape& b);
  Expected<bool> are_disjoint(const Shapes& a, const Shapes& b);

  const SchemaDocument& document_;
  SchemaReader& reader_;
  SchemaValidator& validator_;
  SchemaNegation& negation_;
  std::map<const Json*, Shapes> known_;
  std::set<const Json*> open_;  // that are being expanded
};

}  // namespace aerie::grammar
