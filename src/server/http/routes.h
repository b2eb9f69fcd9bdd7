// What the server answers, and where.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace aerie::server {

enum class RouteName : uint8_t {
  kChat,
  kCompletions,
  kChatRender,
  kCompletionsRender,
  kEmbeddings,
  kResponses,
  kMessages,
  kMessageTokens,
  kLlamaCompletion,
  kLlamaProps,
  kOllamaChat,
  kOllamaGenerate,
  kOllamaTags,
  kOllamaShow,
  kOllamaVersion,
  kModels,
  kModel,
  kTokenize,
  kDetokenize,
  kTokenizerInfo,
  kLoad,
  kRouterLoad,
  kHealth,
  kReady,
  kMetrics,
  kVersion,
  kDescription,
  kAdminStatus,
  kAdminLoad,
  kAdminUnload,
  kAdminCanary,
  kAdminPromote,
  kAdminRollBack,
  kAdminShadow,
  kAdminShadowEnd,
  kPage,
};

struct Route {
  std::string_view method;
  std::string_view path;  // "{model}" stands for the rest of it
  RouteName name;
};

inline constexpr std::string_view kModelPrefix = "/v1/models/";
inline constexpr std::string_view kAdminPrefix = "/admin/";  // of what wants an admin's key

std::span<const Route> routes();

struct RouteMatch {
  bool known = false;             // there is something at this path
  std::optional<RouteName> name;  // with this method
  std::string allow;              // methods of the path
};

// Route::path; one of them.
std::string_view path_of(RouteName name);

RouteMatch find_route(std::string_view method, std::string_view path);

}  // namespace aerie::server
