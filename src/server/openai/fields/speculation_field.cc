#include "server/openai/fields/speculation_field.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace aerie::server {
namespace {

constexpr const char* kField = "speculation";

void pick(FieldReader& request, const std::string& method, const std::vector<std::string>& offered,
          Request& out) {
  if (method == "off" || method == "none") {
    out.speculate = false;
    return;
  }
  for (size_t i = 0; i < offered.size(); ++i) {
    if (offered[i].empty() || offered[i] != method) continue;
    out.speculation = static_cast<int>(i);
    return;
  }
  for (size_t i = 0; i < offered.size(); ++i) {
    if (offered[i].empty()) continue;  // it has gone
    if (offered[i].substr(0, offered[i].find(':')) != method) continue;
    out.speculation = static_cast<int>(i);
    return;
  }
  request.refuse(kField, "there is no such method here; there are: off, {}",
                 fmt::join(offered, "; "));
}

}  // namespace

void read_speculation(FieldReader& request, const std::vector<std::string>& offered, Request& out) {
  const Json* value = request.find(kField);
  if (value == nullptr) return;
  if (value->is_boolean()) {
    out.speculate = value->get<bool>();
  } else if (value->is_string()) {
    pick(request, value->get<std::string>(), offered, out);
  } else if (value->is_object()) {
    FieldReader reader(*value, request.error(), kField);
    const std::string method = reader.string("method", "");
    if (!method.empty()) pick(request, method, offered, out);
    out.max_draft_depth = reader.integer("depth", 0, 0, 1 << 16);
    if (!reader.boolean("enabled", true)) out.speculate = false;
  } else {
    request.refuse(kField, "must be an object, a method or \"off\"");
  }
}

}  // namespace aerie::server
