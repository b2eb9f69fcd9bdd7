// A schema as it was read: where its parts are, and what they refer to.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/status.h"
#include "format/json.h"

namespace aerie::grammar {

// Schemas are told apart by their addresses within the document.
class SchemaDocument {
 public:
  // kInvalidArgument if it is no JSON; kUnsupported for other drafts than 2020-12, 7 and 6.
  static Expected<SchemaDocument> read(std::string_view text);

  const Json& root() const { return *root_; }
  // Draft 7 and before: nothing beside "$ref" counts, and "items" may be a list.
  bool is_draft7() const { return draft7_; }

  // "#/properties/a", for messages.
  std::string where(const Json& part) const;
  // A message about a keyword of a schema.
  Status error(StatusCode code, const Json& schema, std::string_view keyword,
               std::string_view what) const;

  // What the schema's "$ref" names. kUnsupported for what is outside of the document.
  Expected<const Json*> resolve(const Json& schema) const;

  // Whether the keyword says nothing about validity (of itself). The media type and encoding of
  // contents are none: draft 7 leaves it open whether they are checked.
  static bool is_annotation(std::string_view keyword);

 private:
  void index(const Json& part, const std::string& pointer, bool is_data);
  void index_names(const Json& part);
  Expected<const Json*> at_pointer(const Json& schema, std::string_view pointer) const;

  // The address stays when the document is moved.
  std::shared_ptr<const Json> root_;
  bool draft7_ = false;
  const Json* inner_id_ = nullptr;  // a part that has an "$id" of its own
  std::unordered_map<const Json*, std::string> pointers_;
  std::unordered_map<std::string, const Json*> anchors_;  // null: of several
};

// The member or nullptr.
const Json* find_key(const Json& object, std::string_view key);

// Equal as JSON Schema has it: whatever the order of members, and 1 is 1.0.
bool json_equal(const Json& a, const Json& b);

}  // namespace aerie::grammar
