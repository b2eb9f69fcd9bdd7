#include "grammar/schema/schema_validator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace aerie::grammar {
namespace {

size_t length_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

uint8_t type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNullBit;
    case Json::value_t::boolean:
      return kBooleanBit;
    case Json::value_t::string:
      return kStringBit;
    case Json::value_t::array:
      return kArrayBit;
    case Json::value_t::object:
      return kObjectBit;
    default: {
      const double number = value.get<double>();
      return number == std::floor(number) ? kIntegerBit : kFractionBit;
    }
  }
}

bool number_fits(const Json& value, const NumberRange& range) {
  const std::optional<Decimal> decimal = parse_decimal(value.dump());
  if (!decimal) return !range.min && !range.max && range.multiple_of == 0;
  if ((range.min && *decimal < *range.min) || (range.max && *decimal > *range.max)) return false;
  if (range.multiple_of == 0) return true;
  // Beyond these digits binary floating point is all that is known.
  constexpr double kLargest = 1e21;
  if (std::abs(value.get<double>()) < kLargest) return *decimal % range.multiple_of == 0;
  return std::fmod(value.get<double>(), static_cast<double>(range.multiple_of) * 1e-15) == 0;
}

// The list's own values are in it without a search, which would cost the square of its length.
bool is_one_of(const Json& value, const Json& list, Budget& budget) {
  const std::less<const Json*> before;
  const bool own = list.is_array() && !list.empty() && !before(&value, &list.front()) &&
                   !before(&list.back(), &value);
  if (own) return true;
  budget.spend(0, list.size());
  return std::any_of(list.begin(), list.end(),
                     [&](const Json& other) { return json_equal(value, other); });
}

bool has_twins(const Json& list, Budget& budget) {
  for (size_t i = 0; i < list.size() && budget.spend(0, i); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (json_equal(list[i], list[j])) return true;
    }
  }
  return false;
}

}  // namespace

Expected<bool> SchemaValidator::validate(const Json& value, const Goal& goal) {
  for (const Json* schema : goal) {
    AERIE_ASSIGN_OR_RETURN(const bool valid, validate(value, *schema));
    if (!valid) return false;
  }
  return true;
}

Expected<bool> SchemaValidator::validate(const Json& value, const Json& schema) {
  known_.clear();
  names_.clear();
  return validate(value, schema, 0);
}

Expected<bool> SchemaValidator::validate(const Json& value, const Json& schema, int depth) {
  if (schema.is_boolean()) return schema.get<bool>();
  const auto known = known_.find({&value, &schema});
  if (known != known_.end()) return known->second;
  AERIE_ASSIGN_OR_RETURN(const bool valid, validate_object(value, schema, depth));
  known_.emplace(std::pair(&value, &schema), valid);
  return valid;
}

Expected<bool> SchemaValidator::validate_object(const Json& value, const Json& schema, int depth) {
  AERIE_RETURN_IF_ERROR(reader_.check_schema(schema));
  reader_.budget().spend(0, 1 + schema.size());
  AERIE_RETURN_IF_ERROR(reader_.budget().status());
  if (depth > kMaxReferences) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{}: more than {} references in a row",
                              reader_.document().where(schema), kMaxReferences));
  }
  AERIE_ASSIGN_OR_RETURN(const std::vector<const Json*> targets,
                         reader_.document().references(schema));
  for (const Json* target : targets) {
    AERIE_ASSIGN_OR_RETURN(const bool valid, validate(value, *target, depth + 1));
    if (!valid || reader_.document().refers_alone(schema)) return valid;
  }
  AERIE_RETURN_IF_ERROR(reader_.check_keywords(schema));
  const Json* list = find_key(schema, "enum");
  if (list != nullptr && !is_one_of(value, *list, reader_.budget())) return false;
  const Json* constant = find_key(schema, "const");
  if (constant != nullptr && !json_equal(value, *constant)) return false;
  AERIE_ASSIGN_OR_RETURN(const bool combined, validate_combined(value, schema, depth));
  if (!combined) return false;
  AERIE_ASSIGN_OR_RETURN(const Shape* shape, reader_.own_shape(schema));
  AERIE_ASSIGN_OR_RETURN(const bool valid, validate_own(value, *shape, depth));
  return valid ? validate_unevaluated(value, schema, depth) : Expected<bool>(false);
}

Expected<bool> SchemaValidator::validate_combined(const Json& value, const Json& schema,
                                                  int depth) {
  for (const std::string keyword : {"allOf", "anyOf", "oneOf"}) {
    const Json* list = find_key(schema, keyword);
    if (list == nullptr) continue;
    size_t count = 0;
    for (const Json& part : *list) {
      AERIE_ASSIGN_OR_RETURN(const bool valid, validate(value, part, depth + 1));
      count += valid ? 1 : 0;
    }
    const size_t wanted = keyword == "allOf" ? list->size() : 1;
    if (keyword == "anyOf" ? count == 0 : count != wanted) return false;
  }
  if (const Json* excluded = find_key(schema, "not")) {
    AERIE_ASSIGN_OR_RETURN(const bool valid, validate(value, *excluded, depth + 1));
    if (valid) return false;
  }
  if (const Json* condition = find_key(schema, "if")) {
    AERIE_ASSIGN_OR_RETURN(const bool met, validate(value, *condition, depth + 1));
    const Json* then = find_key(schema, met ? "then" : "else");
    if (then != nullptr) {
      AERIE_ASSIGN_OR_RETURN(const bool valid, validate(value, *then, depth + 1));
      if (!valid) return false;
    }
  }
  return value.is_object() ? validate_dependencies(value, schema, depth) : Expected<bool>(true);
}

Expected<bool> SchemaValidator::validate_dependencies(const Json& value, const Json& schema,
                                                      int depth) {
  for (const char* keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    const Json* dependencies = find_key(schema, keyword);
    if (dependencies == nullptr || !dependencies->is_object()) continue;
    for (const auto& [name, what] : dependencies->items()) {
      if (find_key(value, name) == nullptr) continue;
      if (what.is_array()) {
        for (const Json& other : what) {
          if (other.is_string() && find_key(value, other.get<std::string>()) == nullptr)
            return false;
        }
        continue;
      }
      AERIE_ASSIGN_OR_RETURN(const bool valid, validate(value, what, depth + 1));
      if (!valid) return false;
    }
  }
  return true;
}

Expected<bool> SchemaValidator::validate_own(const Json& value, const Shape& shape, int depth) {
  const uint8_t type = type_of(value);
  if ((shape.types & type) == 0) return false;
  if (value.is_number()) return number_fits(value, shape.numbers);
  const auto within = [](size_t size, int64_t min, int64_t max) {
    const auto signed_size = static_cast<int64_t>(size);
    return signed_size >= min && (max == kUnbounded || signed_size <= max);
  };
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return within(length_of(text), shape.min_length, shape.max_length) &&
           std::all_of(shape.strings.begin(), shape.strings.end(),
                       [&](const StringSet& set) { return set->contains(text); });
  }
  if (value.is_array()) {
    if (!within(value.size(), shape.min_items, shape.max_items)) return false;
    if (shape.unique_items != nullptr && has_twins(value, reader_.budget())) return false;
    return validate_items(value, shape, depth);
  }
  if (!value.is_object()) return true;
  if (!within(value.size(), shape.min_properties, shape.max_properties)) return false;
  for (const std::string& name : shape.required) {
    if (find_key(value, name) == nullptr) return false;
  }
  return validate_members(value, shape, depth);
}

Expected<bool> SchemaValidator::validate_items(const Json& value, const Shape& shape, int depth) {
  for (const auto& part : shape.arrays) {
    for (size_t i = 0; i < value.size(); ++i) {
      for (const Json* schema : i < part->prefix.size() ? part->prefix[i] : part->rest) {
        AERIE_ASSIGN_OR_RETURN(const bool valid, validate(value[i], *schema, depth + 1));
        if (!valid) return false;
      }
    }
  }
  for (const ContainsPart& part : shape.contains) {
    int64_t count = 0;
    for (const Json& item : value) {
      AERIE_ASSIGN_OR_RETURN(const bool valid, validate(item, *part.schema, depth + 1));
      count += valid ? 1 : 0;
    }
    if (count < part.min || (part.max != kUnbounded && count > part.max)) return false;
  }
  return true;
}

Expected<bool> SchemaValidator::validate_members(const Json& value, const Shape& shape, int depth) {
  for (const auto& [name, member] : value.items()) {
    for (const auto& part : shape.objects) {
      for (const Json* schema : part->goal_of(name)) {
        AERIE_ASSIGN_OR_RETURN(const bool valid, validate(member, *schema, depth + 1));
        if (!valid) return false;
      }
    }
    for (const Json* schema : shape.property_names) {
      AERIE_ASSIGN_OR_RETURN(const bool valid,
                             validate(names_.emplace_back(name), *schema, depth + 1));
      if (!valid) return false;
    }
  }
  return true;
}

}  // namespace aerie::grammar
