#include "server/openai/fields/tenant_fields.h"

#include <string>

namespace aerie::server {
namespace {

constexpr size_t kMostBytes = 1024;  // of a header's tenant, and of a salt

// The value of the header; empty, with an error, if it is none.
std::string header_of(FieldReader& request, const HttpRequest& from) {
  const auto found = from.headers.find(std::string(kTenantHeader));
  const std::string value = found == from.headers.end() ? "" : found->second;
  if (value.empty() || value.size() > kMostBytes) {
    request.refuse(error_of(
        400,
        fmt::format("the header X-Aerie-Tenant must say whose request this is, in 1 to {} bytes: "
                    "the server was started with --tenant-by header",
                    kMostBytes),
        "", "tenant_missing"));
    return "";
  }
  return value;
}

}  // namespace

// The parts stand in lines, and none but the salt, which is the last, can hold the end of one.
void read_tenant(FieldReader& request, const ApiOptions& options, const HttpRequest& from,
                 Request& out) {
  std::string tenant;
  switch (options.tenant_by) {
    case TenantBy::kKey:
      tenant = from.key.empty() ? "address " + from.client : "key " + from.key;
      break;
    case TenantBy::kHeader: {
      const std::string header = header_of(request, from);
      tenant = "key " + from.key + "\nheader " + header;
      out.client += "\n" + header;
      break;
    }
    case TenantBy::kNone:
      break;
  }
  if (options.share_learning) tenant.clear();
  if (request.has("cache_salt")) {
    const std::string salt = request.string("cache_salt", "");
    if (salt.empty() || salt.size() > kMostBytes) {
      request.refuse("cache_salt", "must be a string of 1 to {} bytes", kMostBytes);
    }
    tenant += "\nsalt " + salt;
  }
  out.tenant = std::move(tenant);
}

void read_learn(FieldReader& request, const HttpRequest& from, Request& out) {
  const bool stores = request.boolean("store", true);
  out.learn = stores && from.learn && !request.has("cache_salt");
}

void read_trace(FieldReader& request, const ApiOptions& options, Request& out) {
  out.trace = request.boolean("trace", false);
  if (!out.trace || options.allow_trace) return;
  request.refuse(error_of(403,
                          "trace: this server does not show what it drafts; leave \"trace\" away, "
                          "or have it started with --allow-trace",
                          "trace", "trace_not_allowed"));
}

}  // namespace aerie::server
