// "unevaluatedProperties" and "unevaluatedItems": what no schema beside them has looked at.
#include <algorithm>

#include "grammar/schema/schema_expander.h"

namespace aerie::grammar {
namespace {

// Names that a part of the shape evaluates may have any value as far as this is concerned.
std::shared_ptr<const ObjectPart> other_members(const Json& value, const Shape& shape) {
  ObjectPart others;
  others.additional = {&value};
  for (const auto& part : shape.objects) {
    if (!part->evaluates) continue;
    if (!part->additional.empty()) return nullptr;
    for (const auto& [name, goal] : part->properties) others.properties.emplace_back(name, Goal());
    for (const ObjectPart::Pattern& pattern : part->patterns)
      others.patterns.push_back({pattern.names, {}});
  }
  return std::make_shared<const ObjectPart>(std::move(others));
}

}  // namespace

// An item that is contained counts as evaluated.
Goal SchemaExpander::unevaluated_items(const Json& schema, const Json& value, const Shape& shape) {
  std::vector<const Json*> ways{&value};
  for (const ContainsPart& part : shape.contains) {
    if (part.evaluates) ways.push_back(part.schema);
  }
  return {ways.size() == 1 ? &value : negation_.either(ways, schema)};
}

void SchemaExpander::add_unevaluated(const Json& schema, Shapes& shapes) {
  const Json* members = find_key(schema, "unevaluatedProperties");
  const Json* items = find_key(schema, "unevaluatedItems");
  if (members == nullptr && items == nullptr) return;
  for (Shape& shape : shapes) {
    // Values were held to the whole schema.
    if (shape.values) continue;
    shape.partial |= shapes.size() > 1;
    if (members != nullptr) {
      if (auto others = other_members(*members, shape)) shape.objects.push_back(std::move(others));
    }
    if (items != nullptr) {
      ArrayPart others;
      size_t prefix = 0;
      bool all = false;
      for (const auto& part : shape.arrays) {
        if (!part->evaluates) continue;
        prefix = std::max(prefix, part->prefix.size());
        all |= !part->rest.empty();
      }
      others.prefix.resize(prefix);
      others.rest = unevaluated_items(schema, *items, shape);
      if (!all) shape.arrays.push_back(std::make_shared<const ArrayPart>(std::move(others)));
    }
    reader_.budget().spend(shape.bytes());
  }
}

void SchemaExpander::silence(Shapes& shapes) {
  if (!document_.asks_for_unevaluated()) return;
  const auto silent = [](const auto& part) {
    auto copy = *part;
    copy.evaluates = false;
    return std::make_shared<const decltype(copy)>(std::move(copy));
  };
  for (Shape& shape : shapes) {
    for (auto& part : shape.objects) part = silent(part);
    for (auto& part : shape.arrays) part = silent(part);
    for (ContainsPart& part : shape.contains) part.evaluates = false;
    reader_.budget().spend(shape.bytes());
  }
}

Status SchemaValidator::evaluate(const Json& value, const Json& schema, int depth,
                                 std::vector<bool>& evaluated) {
  if (!schema.is_object() || depth > kMaxReferences) return {};
  const char* rest = value.is_array() ? "unevaluatedItems" : "unevaluatedProperties";
  if (find_key(schema, rest) == nullptr) return evaluate_beside(value, schema, depth, evaluated);
  evaluated.assign(evaluated.size(), true);
  return {};
}

Status SchemaValidator::evaluate_beside(const Json& value, const Json& schema, int depth,
                                        std::vector<bool>& evaluated) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<const Json*> targets,
                         reader_.document().references(schema));
  for (const Json* target : targets)
    AERIE_RETURN_IF_ERROR(evaluate(value, *target, depth + 1, evaluated));
  if (reader_.document().refers_alone(schema)) return {};
  std::vector<const Json*> parts;
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    const Json* list = find_key(schema, keyword);
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& part : *list) parts.push_back(&part);
  }
  const auto add = [&](const Json* part) {
    if (part != nullptr) parts.push_back(part);
  };
  if (const Json* condition = find_key(schema, "if")) {
    AERIE_ASSIGN_OR_RETURN(const bool met, validate(value, *condition, depth + 1));
    add(condition);
    add(find_key(schema, met ? "then" : "else"));
  }
  for (const char* keyword : {"dependentSchemas", "dependencies"}) {
    const Json* dependent = find_key(schema, keyword);
    if (dependent == nullptr || !dependent->is_object() || !value.is_object()) continue;
    for (const auto& [name, part] : dependent->items()) {
      if (!part.is_array() && find_key(value, name) != nullptr) add(&part);
    }
  }
  for (const Json* part : parts) {
    AERIE_ASSIGN_OR_RETURN(const bool valid, validate(value, *part, depth + 1));
    if (valid) AERIE_RETURN_IF_ERROR(evaluate(value, *part, depth + 1, evaluated));
  }
  return evaluate_own(value, schema, depth, evaluated);
}

Status SchemaValidator::evaluate_own(const Json& value, const Json& schema, int depth,
                                     std::vector<bool>& evaluated) {
  AERIE_ASSIGN_OR_RETURN(const Shape* shape, reader_.own_shape(schema));
  if (value.is_object()) {
    size_t at = 0;
    for (const auto& [name, member] : value.items()) {
      for (const auto& part : shape->objects) {
        if (part->evaluates && part->describes(name)) evaluated[at] = true;
      }
      ++at;
    }
    return {};
  }
  for (const auto& part : shape->arrays) {
    const size_t end = part->rest.empty() ? part->prefix.size() : value.size();
    for (size_t i = 0; i < std::min(end, value.size()); ++i) evaluated[i] = true;
  }
  for (const ContainsPart& part : shape->contains) {
    for (size_t i = 0; i < value.size() && part.evaluates; ++i) {
      AERIE_ASSIGN_OR_RETURN(const bool contained, validate(value[i], *part.schema, depth + 1));
      if (contained) evaluated[i] = true;
    }
  }
  return {};
}

Expected<bool> SchemaValidator::validate_unevaluated(const Json& value, const Json& schema,
                                                     int depth) {
  const char* keyword = value.is_array() ? "unevaluatedItems" : "unevaluatedProperties";
  const Json* rest = find_key(schema, keyword);
  if (rest == nullptr || !value.is_structured()) return true;
  std::vector<bool> evaluated(value.size());
  AERIE_RETURN_IF_ERROR(evaluate_beside(value, schema, depth, evaluated));
  size_t at = 0;
  for (const Json& part : value) {
    if (evaluated[at++]) continue;
    AERIE_ASSIGN_OR_RETURN(const bool valid, validate(part, *rest, depth + 1));
    if (!valid) return false;
  }
  return true;
}

}  // namespace aerie::grammar
