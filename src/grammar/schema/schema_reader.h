// From schemas as JSON to shapes: the keywords that say something by themselves.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_shape.h"

namespace aerie::grammar {

// The document and the budget must outlive it. Errors name keyword and place.
class SchemaReader {
 public:
  SchemaReader(const SchemaDocument& document, Budget& budget)
      : document_(document), budget_(budget) {}

  const SchemaDocument& document() const { return document_; }
  Budget& budget() const { return budget_; }

  // kInvalidArgument for what is no object.
  Status check_schema(const Json& schema) const;
  // kUnsupported for keywords that say what cannot be enforced.
  Status check_keywords(const Json& schema) const;
  // Of all keywords that need no other schema but "not". Read once for each schema; it stays where
  // it is.
  Expected<const Shape*> own_shape(const Json& schema);

 private:
  Expected<Shape> read_shape(const Json& schema);
  Status read_types(const Json& schema, Shape& shape) const;
  Status read_exclusive(const Json& schema, const char* keyword, int direction,
                        std::optional<Decimal>& limit) const;
  Status read_numbers(const Json& schema, Shape& shape) const;
  Status read_strings(const Json& schema, Shape& shape);
  Status read_excluded(const Json& schema, Shape& shape);
  Status read_arrays(const Json& schema, Shape& shape) const;
  Status read_contains(const Json& schema, Shape& shape) const;
  Status read_objects(const Json& schema, Shape& shape);
  Expected<int64_t> count(const Json& schema, const char* keyword, int64_t fallback) const;
  Expected<std::optional<Decimal>> bound(const Json& schema, const char* keyword) const;
  Expected<StringSet> pattern(const Json& schema, std::string_view keyword,
                              const std::string& text);

  const SchemaDocument& document_;
  Budget& budget_;
  std::unordered_map<const Json*, Shape> shapes_;
  std::map<std::string, StringSet> patterns_;
};

}  // namespace aerie::grammar
