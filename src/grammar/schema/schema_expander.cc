#include "grammar/schema/schema_expander.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace aerie::grammar {
namespace {

constexpr size_t kMaxShapes = 256;
constexpr size_t kMaxOpen = 200;
constexpr int kMaxDepthOfProof = 3;

// Integers beyond 64 bits were rounded when they were read.
bool is_written_exactly(const Json& value) {
  constexpr double kLargest = 9007199254740992;
  if (value.is_number_float()) return std::abs(value.get<double>()) < kLargest;
  return std::all_of(value.begin(), value.end(), [](const Json& part) {
    return !part.is_structured() && !part.is_number_float() ? true : is_written_exactly(part);
  });
}

}  // namespace

Expected<Shapes> SchemaExpander::expand(const Goal& goal) {
  Shapes shapes(1);
  for (const Json* schema : goal) {
    AERIE_ASSIGN_OR_RETURN(const Shapes next, expand_schema(*schema));
    AERIE_ASSIGN_OR_RETURN(shapes, product(*schema, shapes, next));
  }
  return shapes;
}

Expected<Shapes> SchemaExpander::product(const Json& schema, const Shapes& a, const Shapes& b) {
  Shapes result;
  std::set<std::vector<const Json*>> known;
  for (const Shape& one : a) {
    for (const Shape& other : b) {
      std::vector<const Json*> sources = united_sources(one, other);
      reader_.budget().spend(one.bytes() + other.bytes(),
                             1 + one.sources.size() * other.sources.size() / 8 +
                                 one.required.size() * other.required.size() / 8);
      AERIE_RETURN_IF_ERROR(reader_.budget().status());
      std::sort(sources.begin(), sources.end());
      if (!known.insert(std::move(sources)).second) continue;
      AERIE_ASSIGN_OR_RETURN(std::optional<Shape> both, merge(one, other));
      if (both) result.push_back(std::move(*both));
      if (result.size() > kMaxShapes) {
        return Status(StatusCode::kResourceExhausted,
                      fmt::format("{}: its alternatives combine in more than {} ways",
                                  document_.where(schema), kMaxShapes));
      }
    }
  }
  return result;
}

Expected<Shapes> SchemaExpander::expand_schema(const Json& schema) {
  const auto known = known_.find(&schema);
  if (known != known_.end()) return known->second;
  if (schema.is_boolean()) return schema.get<bool>() ? Shapes(1) : Shapes();
  AERIE_RETURN_IF_ERROR(reader_.check_schema(schema));
  if (open_.size() > kMaxOpen) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("{}: more than {} references in a row", document_.where(schema), kMaxOpen));
  }
  if (!open_.insert(&schema).second) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: the schema refers to itself without anything in between",
                              document_.where(schema)));
  }
  Expected<Shapes> shapes = expand_object(schema);
  open_.erase(&schema);
  if (shapes.ok()) known_.emplace(&schema, *shapes);
  return shapes;
}

Expected<Shapes> SchemaExpander::expand_object(const Json& schema) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<const Json*> targets, document_.references(schema));
  if (document_.refers_alone(schema)) {
    AERIE_ASSIGN_OR_RETURN(Shapes shapes, expand_schema(*targets[0]));
    if (find_key(schema, "silent") != nullptr) silence(shapes);
    for (Shape& shape : shapes) shape.partial |= document_.is_partial(schema);
    return shapes;
  }
  if (find_key(schema, "enum") != nullptr || find_key(schema, "const") != nullptr) {
    return expand_values(schema);
  }
  AERIE_RETURN_IF_ERROR(reader_.check_keywords(schema));
  AERIE_ASSIGN_OR_RETURN(const Shape* own, reader_.own_shape(schema));
  Shapes shapes;
  if (own->types != 0) shapes.push_back(*own);
  for (const Json* target : targets) {
    AERIE_ASSIGN_OR_RETURN(const Shapes more, expand_schema(*target));
    AERIE_ASSIGN_OR_RETURN(shapes, product(schema, shapes, more));
  }
  for (const char* keyword : {"allOf", "anyOf"}) {
    if (find_key(schema, keyword) == nullptr) continue;
    AERIE_ASSIGN_OR_RETURN(const Shapes more, expand_list(schema, keyword));
    AERIE_ASSIGN_OR_RETURN(shapes, product(schema, shapes, more));
  }
  AERIE_ASSIGN_OR_RETURN(shapes, expand_rewritten(schema, std::move(shapes)));
  if (find_key(schema, "oneOf") != nullptr) {
    AERIE_ASSIGN_OR_RETURN(shapes, expand_one_of(schema, shapes));
  }
  add_unevaluated(schema, shapes);
  AERIE_RETURN_IF_ERROR(reader_.budget().status());
  const Json* excluded = find_key(schema, "not");
  return excluded == nullptr ? Expected<Shapes>(std::move(shapes))
                             : without(schema, *excluded, shapes);
}

Expected<Shapes> SchemaExpander::expand_rewritten(const Json& schema, Shapes shapes) {
  AERIE_ASSIGN_OR_RETURN(std::vector<const Json*> rewritten, negation_.dependencies(schema));
  const bool conditional =
      find_key(schema, "then") != nullptr || find_key(schema, "else") != nullptr;
  if (conditional && find_key(schema, "if") != nullptr) {
    AERIE_ASSIGN_OR_RETURN(const Json* condition, negation_.conditional(schema));
    rewritten.push_back(condition);
  }
  for (const Json* part : rewritten) {
    AERIE_ASSIGN_OR_RETURN(const Shapes more, expand_schema(*part));
    AERIE_ASSIGN_OR_RETURN(shapes, product(schema, shapes, more));
  }
  return shapes;
}

Expected<Shapes> SchemaExpander::without(const Json& schema, const Json& excluded,
                                         const Shapes& shapes) {
  AERIE_ASSIGN_OR_RETURN(const Json* others, negation_.negated(excluded));
  if (others == nullptr) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{}: it cannot be told what is not valid by this", document_.where(excluded)));
  }
  AERIE_ASSIGN_OR_RETURN(const Shapes more, expand_schema(*others));
  return product(schema, shapes, more);
}

// All other keywords say which of the values are left.
Expected<Shapes> SchemaExpander::expand_values(const Json& schema) {
  Shape shape;
  shape.sources = {&schema};
  std::vector<Json> values;
  const Json* list = find_key(schema, "enum");
  if (list != nullptr && !list->is_array()) {
    return document_.error(StatusCode::kInvalidArgument, schema, "enum", "a list is wanted");
  }
  const Json* constant = find_key(schema, "const");
  const Json one = constant != nullptr ? Json::array({*constant}) : Json::array();
  const Json& candidates = constant == nullptr && list != nullptr ? *list : one;
  for (const Json& value : candidates) {
    AERIE_ASSIGN_OR_RETURN(const bool valid, validator_.validate(value, schema));
    if (valid && !is_written_exactly(value)) {
      return document_.error(StatusCode::kUnsupported, schema,
                             constant != nullptr ? "const" : "enum",
                             "a number that is too large to be written exactly");
    }
    if (valid) values.push_back(value);
  }
  if (values.empty()) return Shapes();
  shape.values = std::move(values);
  return Shapes{std::move(shape)};
}

Expected<Shapes> SchemaExpander::expand_list(const Json& schema, const char* keyword) {
  const Json* list = find_key(schema, keyword);
  if (!list->is_array() || list->empty()) {
    return document_.error(StatusCode::kInvalidArgument, schema, keyword,
                           "a list of schemas is wanted");
  }
  const bool all = std::string_view(keyword) == "allOf";
  Shapes shapes(all ? 1 : 0);
  std::set<const Json*> known;
  for (const Json& part : *list) {
    AERIE_ASSIGN_OR_RETURN(const Json* referred, this->referred(part));
    // What is said twice is said.
    if (!known.insert(referred).second) continue;
    AERIE_ASSIGN_OR_RETURN(const Shapes more, expand_schema(part));
    if (all) {
      AERIE_ASSIGN_OR_RETURN(shapes, product(part, shapes, more));
    } else {
      shapes.insert(shapes.end(), more.begin(), more.end());
    }
  }
  return shapes;
}

Expected<const Json*> SchemaExpander::referred(const Json& schema) const {
  const Json* at = &schema;
  for (size_t i = 0; i < kMaxOpen && find_key(*at, "$ref") != nullptr; ++i) {
    const bool alone = at->size() == 1 || document_.ref_stands_alone();
    if (!alone || find_key(*at, "silent") != nullptr) break;
    AERIE_ASSIGN_OR_RETURN(const std::vector<const Json*> targets, document_.references(*at));
    at = targets[0];
  }
  return at;
}

Expected<Shapes> SchemaExpander::expand_one_of(const Json& schema, const Shapes& base) {
  const Json* list = find_key(schema, "oneOf");
  if (!list->is_array() || list->empty()) {
    return document_.error(StatusCode::kInvalidArgument, schema, "oneOf",
                           "a list of schemas is wanted");
  }
  std::vector<Shapes> branches;
  for (const Json& part : *list) {
    AERIE_ASSIGN_OR_RETURN(const Shapes more, expand_schema(part));
    AERIE_ASSIGN_OR_RETURN(Shapes branch, product(part, base, more));
    branches.push_back(std::move(branch));
  }
  Shapes result;
  for (size_t i = 0; i < branches.size(); ++i) {
    Shapes alone = branches[i];
    for (size_t j = 0; j < branches.size(); ++j) {
      if (i == j) continue;
      AERIE_ASSIGN_OR_RETURN(const bool disjoint, are_disjoint(branches[i], branches[j]));
      if (disjoint) continue;
      auto others = without(schema, (*list)[j], alone);
      if (!others.ok() && others.status().code() == StatusCode::kUnsupported) {
        return document_.error(
            StatusCode::kUnsupported, schema, "oneOf",
            fmt::format("the schemas {} and {} may hold at once; anyOf does not ask for one",
                        std::min(i, j), std::max(i, j)));
      }
      AERIE_ASSIGN_OR_RETURN(alone, std::move(others));
    }
    result.insert(result.end(), alone.begin(), alone.end());
  }
  return result;
}

Expected<bool> SchemaExpander::are_disjoint(const Shapes& a, const Shapes& b) {
  for (const Shape& one : a) {
    for (const Shape& other : b) {
      AERIE_ASSIGN_OR_RETURN(const bool disjoint, are_disjoint(one, other));
      if (!disjoint) return false;
    }
  }
  return true;
}

Expected<std::optional<Shape>> SchemaExpander::merge(const Shape& a, const Shape& b) {
  if (!a.values && !b.values) return intersection(a, b);
  // The values are valid by the sources of their own side.
  const Shape& listed = a.values ? a : b;
  const Shape& other = a.values ? b : a;
  Shape both;
  both.sources = united_sources(a, b);
  both.partial = a.partial || b.partial;
  both.values.emplace();
  for (const Json& value : *listed.values) {
    AERIE_ASSIGN_OR_RETURN(const bool valid, validator_.validate(value, other.sources));
    if (valid) both.values->push_back(value);
  }
  if (both.values->empty()) return std::optional<Shape>();
  return std::optional<Shape>(std::move(both));
}

Expected<bool> SchemaExpander::is_impossible_object(const Shape& shape, int depth) {
  if (shape.max_properties != kUnbounded &&
      std::max(shape.min_properties, static_cast<int64_t>(shape.required.size())) >
          shape.max_properties) {
    return true;
  }
  for (const std::string& name : shape.required) {
    Goal goal;
    for (const auto& part : shape.objects) add_to(goal, part->goal_of(name));
    AERIE_ASSIGN_OR_RETURN(const Shapes shapes, expand(goal));
    bool possible = false;
    for (const Shape& inner : shapes) {
      AERIE_ASSIGN_OR_RETURN(const bool impossible, is_impossible(inner, depth + 1));
      possible = possible || !impossible;
    }
    if (!possible) return true;
  }
  return false;
}

Expected<bool> SchemaExpander::is_impossible(const Shape& shape, int depth) {
  if (depth > kMaxDepthOfProof) return false;
  if (shape.values) return shape.values->empty();
  if ((shape.types & (kNullBit | kBooleanBit)) != 0) return false;
  NumberRange range = shape.numbers;
  range.integer = (shape.types & kFractionBit) == 0;
  if ((shape.types & (kIntegerBit | kFractionBit)) != 0 && !is_empty(range)) return false;
  if ((shape.types & kStringBit) != 0) {
    if (!shape.has_string_limits()) return false;
    AERIE_ASSIGN_OR_RETURN(const StringAutomaton strings, strings_of(shape, reader_.budget()));
    if (!strings.empty()) return false;
  }
  const bool no_length = shape.max_items != kUnbounded && shape.min_items > shape.max_items;
  if ((shape.types & kArrayBit) != 0 && !no_length) return false;
  if ((shape.types & kObjectBit) == 0) return true;
  return is_impossible_object(shape, depth);
}

Expected<bool> SchemaExpander::are_disjoint(const Shape& a, const Shape& b) {
  if (a.partial || b.partial) return false;
  reader_.budget().spend(a.bytes() + b.bytes());
  AERIE_RETURN_IF_ERROR(reader_.budget().status());
  AERIE_ASSIGN_OR_RETURN(const std::optional<Shape> both, merge(a, b));
  if (!both) return true;
  return is_impossible(*both);
}

}  // namespace aerie::grammar
