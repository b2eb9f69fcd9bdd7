// A schema as it was read: where its parts are, and what they refer to.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace aerie::grammar {

// Schemas are told apart by their addresses within the document.
class SchemaDocument {
 public:
  // kInvalidArgument if it is no JSON; kUnsupported for draft 3 and, if it is to be strict, for a
  // "$schema" that is not known.
  static Expected<SchemaDocument> read(std::string_view text, bool strict);

  const Json& root() const { return *root_; }
  // Whether keywords and formats that are not known are errors.
  bool is_strict() const { return strict_; }
  // Draft 7 and before: nothing beside "$ref" counts.
  bool ref_stands_alone() const { return draft_ <= 7; }
  int draft() const { return draft_; }  // 4, 6, 7, 2019 or 2020
  // Whether "unevaluatedProperties" or "unevaluatedItems" is anywhere.
  bool asks_for_unevaluated() const { return asks_for_unevaluated_; }

  // "#/properties/a", for messages.
  std::string where(const Json& part) const;
  // A message about a keyword of a schema.
  Status error(StatusCode code, const Json& schema, std::string_view keyword,
               std::string_view what) const;

  // What "$ref", "$dynamicRef" and "$recursiveRef" of the schema name. kUnsupported for what is
  // outside of the document, and for what depends on the way that led to the schema.
  Expected<std::vector<const Json*>> references(const Json& schema) const;
  // Whether the schema is nothing but a reference.
  bool refers_alone(const Json& schema) const;

  // Schemas that are written here, besides the client's. They may use keywords that no client can:
  // "not enum" and "not pattern" of strings, the type "fraction", a number that is no integer, and
  // "silent" beside "$ref": what that evaluates counts as not evaluated. What refers in them has
  // what reference() says. `origin` is what messages name; partial: what is not valid by it may be
  // valid all the same.
  const Json& add(Json schema, const Json& origin, bool partial);
  bool is_own(const Json& schema) const { return own_.contains(&schema); }
  bool is_partial(const Json& schema) const { return partial_.contains(&schema); }
  std::string reference(const Json& schema) const;

  // Whether the keyword says nothing about validity (of itself). The media type and encoding of
  // contents are none for the strict: draft 7 leaves it open whether they are checked.
  static bool is_annotation(std::string_view keyword);

 private:
  void index_own(const Json& part, const std::string& pointer, bool partial);
  // `base`: the place among the bases of what stands around it.
  void index(const Json& part, const std::string& pointer, size_t base, bool is_data);
  // The base for what it holds.
  size_t index_names(const Json& part, size_t base);
  void index_dynamic(const Json& part, size_t base);
  // "$id", or what draft 4 calls it.
  const Json* id_of(const Json& part) const;
  Expected<const Json*> resolve(const Json& schema, const char* keyword) const;
  // Of what a reference that is looked up along the way would name if it were a plain one.
  Expected<const Json*> resolve_dynamic(const Json& schema, const char* keyword,
                                        const Json& target) const;
  Expected<const Json*> at_pointer(const Json& schema, const Json& from,
                                   std::string_view pointer) const;

  // The address stays when the document is moved.
  std::shared_ptr<const Json> root_;
  bool strict_ = false;
  int draft_ = 2020;
  bool asks_for_unevaluated_ = false;
  std::unordered_map<const Json*, std::string> pointers_;
  std::deque<Json> added_;
  std::unordered_set<const Json*> own_, partial_;       // with all parts
  std::vector<std::string> bases_;                      // identifiers that references begin from
  std::unordered_map<const Json*, size_t> base_of_;     // of what refers
  std::unordered_map<std::string, const Json*> named_;  // by identifier or anchor; null: of several
  // Dynamic anchors by name, "" for "$recursiveAnchor".
  std::unordered_map<std::string, std::vector<const Json*>> dynamic_;
  size_t root_base_ = 0;
  std::unordered_set<const Json*> outermost_;  // of the dynamic anchors, those of the root
};

// The member or nullptr.
const Json* find_key(const Json& object, std::string_view key);

// Equal as JSON Schema has it: whatever the order of members, and 1 is 1.0.
bool json_equal(const Json& a, const Json& b);

}  // namespace aerie::grammar
