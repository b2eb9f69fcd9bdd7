// Values against schemas: for the values that schemas list, and the names of members.
#pragma once

#include <deque>
#include <map>
#include <utility>

#include "base/status.h"
#include "grammar/schema/schema_reader.h"

namespace aerie::grammar {

// The reader must outlive it.
class SchemaValidator {
 public:
  explicit SchemaValidator(SchemaReader& reader) : reader_(reader) {}

  // Whether the value is valid, all keywords considered.
  Expected<bool> validate(const Json& value, const Json& schema);
  Expected<bool> validate(const Json& value, const Goal& goal);

 private:
  // What was answered once is not looked for again, or references would double the work at each of
  // their levels.
  Expected<bool> validate(const Json& value, const Json& schema, int depth);
  Expected<bool> validate_object(const Json& value, const Json& schema, int depth);
  Expected<bool> validate_combined(const Json& value, const Json& schema, int depth);
  Expected<bool> validate_dependencies(const Json& value, const Json& schema, int depth);
  Expected<bool> validate_own(const Json& value, const Shape& shape, int depth);
  Expected<bool> validate_items(const Json& value, const Shape& shape, int depth);
  Expected<bool> validate_members(const Json& value, const Shape& shape, int depth);
  Expected<bool> validate_unevaluated(const Json& value, const Json& schema, int depth);
  // Marks which members or items of a value the schema, by which it is valid, evaluates.
  Status evaluate(const Json& value, const Json& schema, int depth, std::vector<bool>& evaluated);
  // Without what its "unevaluated..." does.
  Status evaluate_beside(const Json& value, const Json& schema, int depth,
                         std::vector<bool>& evaluated);
  Status evaluate_own(const Json& value, const Json& schema, int depth,
                      std::vector<bool>& evaluated);

  static constexpr int kMaxReferences = 100;

  SchemaReader& reader_;
  std::map<std::pair<const Json*, const Json*>, bool> known_;  // parts of one value, and schemas
  std::deque<Json> names_;  // of its members; they stay where they are
};

}  // namespace aerie::grammar
