// Whose text a request is, and what it may see of how it was drafted.
#pragma once

#include <string_view>

#include "aerie/request.h"
#include "server/http/exchange.h"
#include "server/openai/api_options.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

// As it is found in HttpRequest::headers. Whoever can set it can be any tenant of the key: it is a
// proxy's to set, for every request, in the place of what the client sent.
inline constexpr std::string_view kTenantHeader = "x-aerie-tenant";

// Request::tenant, by ApiOptions::tenant_by and vLLM's "cache_salt", which narrows it; where a
// header says who asks, Request::client is told apart by it, too. 400 for a header that is missing.
void read_tenant(FieldReader& request, const ApiOptions& options, const HttpRequest& from,
                 Request& out);

// Request::learn, by the key and OpenAI's "store". A request with a salt wants that nothing of it
// reaches others, and is left out, too. Behind read_tenant().
void read_learn(FieldReader& request, const HttpRequest& from, Request& out);

// Request::trace; 403 where it is not allowed.
void read_trace(FieldReader& request, const ApiOptions& options, Request& out);

}  // namespace aerie::server
