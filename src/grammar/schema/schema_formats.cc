#include "grammar/schema/schema_formats.h"

namespace aerie::grammar {
namespace {

// Years 1000 to 2999; the 29th of February in leap years alone.
std::string date() {
  const std::string leap_year = "([12][0-9](0[48]|[2468][048]|[13579][26])|(12|16|20|24|28)00)";
  return "(" + leap_year +
         "-02-29|[12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
         "|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])))";
}

// Without leap seconds.
std::string time() {
  const std::string clock = "([01][0-9]|2[0-3]):[0-5][0-9]";
  return clock + ":[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]" + clock + ")";
}

std::string whole(const std::string& pattern) {
  return "^" + pattern + "$";
}

}  // namespace

std::optional<std::string> format_pattern(std::string_view format) {
  const std::string label = "[A-Za-z0-9]{1,20}";
  if (format == "date") return whole(date());
  if (format == "time") return whole(time());
  if (format == "date-time") return whole(date() + "T" + time());
  if (format == "uuid") return whole("[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}");
  if (format == "ipv4") {
    const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    return whole("(" + byte + "\\.){3}" + byte);
  }
  if (format == "email") {
    return whole(label + "([._+-]" + label + ")?@" + label + "(\\.[A-Za-z]{2,10}){1,2}");
  }
  if (format == "hostname") return whole("[A-Za-z]{1,20}(\\.[A-Za-z]{1,20}){0,5}");
  if (format == "uri") {
    return whole("https?://" + label + "(\\." + label + "){0,5}(/[A-Za-z0-9._~-]{1,64}){0,8}/?");
  }
  return std::nullopt;
}

}  // namespace aerie::grammar
