// Reading the fields of a request.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "format/json.h"
#include "server/openai/openai_errors.h"

namespace aerie::server {

// An object of a request. The first thing that is wrong is kept; what is read after it counts for
// nothing. A key whose value is null counts as absent, unknown ones are ignored. The object and the
// error must outlive it.
class FieldReader {
 public:
  // `name`: of the object, "" for the request itself; it stands before names in errors.
  FieldReader(const Json& object, std::optional<ApiError>& error, std::string name = "");

  bool failed() const { return error_->has_value(); }
  const Json* find(std::string_view key) const;  // nullptr if absent
  const Json& json() const { return *object_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // The fallback where the key is absent or wrong.
  bool boolean(std::string_view key, bool fallback);
  int integer(std::string_view key, int fallback, int least, int most);
  double number(std::string_view key, double fallback, double least, double most);
  std::string string(std::string_view key, std::string fallback);
  // nullptr where the key is absent or wrong.
  const Json* object(std::string_view key);
  const Json* array(std::string_view key);

  // 400: "temperature: must be ...".
  void refuse(std::string_view key, std::string_view why);
  template <typename... Args>
  void refuse(std::string_view key, fmt::format_string<Args...> why,
              Args&&... args) requires(sizeof...(Args) > 0) {
    refuse(key, std::string_view(fmt::format(why, std::forward<Args>(args)...)));
  }
  void refuse(ApiError error);
  std::string name_of(std::string_view key) const;
  std::optional<ApiError>& error() { return *error_; }

 private:
  const Json* object_;
  std::optional<ApiError>* error_;
  std::string name_;
};

}  // namespace aerie::server
