// Values against schemas: for the values that schemas list, and the names of members.
#pragma once

#include "base/status.h"
#include "grammar/schema/schema_reader.h"

namespace aerie::grammar {

// The reader must outlive it.
class SchemaValidator {
 public:
  explicit SchemaValidator(SchemaReader& reader) : reader_(reader) {}

  // Whether the value is valid, all keywords considered.
  Expected<bool> validate(const Json& value, const Json& schema, int depth = 0);
  Expected<bool> validate(const Json& value, const Goal& goal);

 private:
  Expected<bool> validate_combined(const Json& value, const Json& schema, int depth);
  Expected<bool> validate_own(const Json& value, const Shape& shape, int depth);
  Expected<bool> validate_items(const Json& value, const Shape& shape, int depth);
  Expected<bool> validate_members(const Json& value, const Shape& shape, int depth);

  SchemaReader& reader_;
};

}  // namespace aerie::grammar
