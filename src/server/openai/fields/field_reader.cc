#include "server/openai/fields/field_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "format/text.h"

namespace aerie::server {

FieldReader::FieldReader(const Json& object, std::optional<ApiError>& error, std::string name)
    : object_(&object), error_(&error), name_(std::move(name)) {
  if (!object.is_object()) {
    refuse(error_of(400,
                    fmt::format("{} must be a JSON object, not of type {}",
                                name_.empty() ? "the request" : name_, object.type_name()),
                    name_));
  }
}

const Json* FieldReader::find(std::string_view key) const {
  if (!object_->is_object()) return nullptr;
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

std::string FieldReader::name_of(std::string_view key) const {
  std::string out = name_;
  if (!out.empty() && !key.empty()) out += '.';
  return out + printable(key, 60);
}

void FieldReader::refuse(ApiError error) {
  if (!failed()) *error_ = std::move(error);
}

void FieldReader::refuse(std::string_view key, std::string_view why) {
  std::string name = name_of(key);
  refuse(error_of(400, fmt::format("{}: {}", name, why), name));
}

bool FieldReader::boolean(std::string_view key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, "must be true or false, not of type {}", value->type_name());
  return fallback;
}

int FieldReader::integer(std::string_view key, int fallback, int least, int most) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  // Some clients write whole numbers as 1.0.
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (number == std::floor(number) && number >= least && number <= most) {
    return static_cast<int>(number);
  }
  refuse(key, "must be an integer between {} and {}, not {}", least, most,
         value->is_number() ? value->dump() : value->type_name());
  return fallback;
}

double FieldReader::number(std::string_view key, double fallback, double least, double most) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (number >= least && number <= most) return number;
  refuse(key, "must be a number between {} and {}, not {}", least, most,
         value->is_number() ? value->dump() : value->type_name());
  return fallback;
}

std::string FieldReader::string(std::string_view key, std::string fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  refuse(key, "must be a string, not of type {}", value->type_name());
  return fallback;
}

const Json* FieldReader::object(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  refuse(key, "must be an object, not of type {}", value->type_name());
  return nullptr;
}

const Json* FieldReader::array(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr || value->is_array()) return value;
  refuse(key, "must be an array, not of type {}", value->type_name());
  return nullptr;
}

}  // namespace aerie::server
