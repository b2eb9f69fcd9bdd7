#include "server/http/routes.h"

#include <algorithm>

#include "server/page/page.h"

namespace aerie::server {
namespace {

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", RouteName::kChat},
    {"POST", "/v1/completions", RouteName::kCompletions},
    {"POST", "/v1/chat/completions/render", RouteName::kChatRender},
    {"POST", "/v1/completions/render", RouteName::kCompletionsRender},
    {"POST", "/v1/embeddings", RouteName::kEmbeddings},
    {"POST", "/v1/responses", RouteName::kResponses},
    {"POST", "/v1/messages", RouteName::kMessages},
    {"POST", "/v1/messages/count_tokens", RouteName::kMessageTokens},
    {"POST", "/completion", RouteName::kLlamaCompletion},
    {"GET", "/props", RouteName::kLlamaProps},
    {"POST", "/api/chat", RouteName::kOllamaChat},
    {"POST", "/api/generate", RouteName::kOllamaGenerate},
    {"GET", "/api/tags", RouteName::kOllamaTags},
    {"POST", "/api/show", RouteName::kOllamaShow},
    {"GET", "/api/version", RouteName::kOllamaVersion},
    {"GET", "/v1/models", RouteName::kModels},
    {"GET", "/v1/models/{model}", RouteName::kModel},
    {"POST", "/tokenize", RouteName::kTokenize},
    {"POST", "/detokenize", RouteName::kDetokenize},
    {"GET", "/tokenizer_info", RouteName::kTokenizerInfo},
    {"GET", "/load", RouteName::kLoad},
    {"GET", "/get_load", RouteName::kRouterLoad},
    {"GET", "/health", RouteName::kHealth},
    {"GET", "/ready", RouteName::kReady},
    {"GET", "/metrics", RouteName::kMetrics},
    {"GET", "/version", RouteName::kVersion},
    {"GET", "/openapi.json", RouteName::kDescription},
    {"GET", "/admin/status", RouteName::kAdminStatus},
    {"POST", "/admin/models/load", RouteName::kAdminLoad},
    {"POST", "/admin/models/unload", RouteName::kAdminUnload},
    {"POST", "/admin/canary", RouteName::kAdminCanary},
    {"POST", "/admin/canary/promote", RouteName::kAdminPromote},
    {"POST", "/admin/canary/rollback", RouteName::kAdminRollBack},
    {"POST", "/admin/shadow", RouteName::kAdminShadow},
    {"POST", "/admin/shadow/end", RouteName::kAdminShadowEnd},
    {"GET", "/", RouteName::kPage},
};

bool matches(const Route& route, std::string_view path) {
  if (route.name == RouteName::kModel) {
    return path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size();
  }
  if (route.name == RouteName::kPage) return is_page_path(path);
  return route.path == path;
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

std::string_view path_of(RouteName name) {
  return std::ranges::find(kRoutes, name, &Route::name)->path;
}

RouteMatch find_route(std::string_view method, std::string_view path) {
  RouteMatch out;
  for (const Route& route : kRoutes) {
    if (!matches(route, path)) continue;
    out.known = true;
    if (route.method == method) out.name = route.name;
    if (!out.allow.empty()) out.allow += ", ";
    out.allow += route.method;
  }
  return out;
}

}  // namespace aerie::server
