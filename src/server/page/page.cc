#include "server/page/page.h"

#include <string>

#include "server/page/embedded_files.h"

namespace aerie::server {
namespace {

constexpr std::string_view kDescription = "openapi.json";
constexpr std::string_view kWithoutPage =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Aerie</title></head>\n"
    "<body><h1>Aerie</h1><p>The API is at <code>/v1</code>; "
    "<a href=\"openapi.json\">openapi.json</a> describes it.</p></body></html>\n";

const EmbeddedFile* find(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string_view type_of(std::string_view name) {
  const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
  if (ends(".html")) return "text/html; charset=utf-8";
  if (ends(".css")) return "text/css; charset=utf-8";
  if (ends(".js")) return "text/javascript; charset=utf-8";
  if (ends(".svg")) return "image/svg+xml";
  if (ends(".png")) return "image/png";
  if (ends(".ico")) return "image/x-icon";
  if (ends(".woff2")) return "font/woff2";
  if (ends(".json")) return "application/json";
  return "application/octet-stream";
}

}  // namespace

bool is_page_path(std::string_view path) {
  if (path == "/") return true;
  if (!path.starts_with('/')) return false;
  path.remove_prefix(1);
  return path != kDescription && find(path) != nullptr;
}

void send_page(std::string_view path, Answer& answer) {
  const std::string_view name = path == "/" ? "index.html" : path.substr(1);
  const EmbeddedFile* file = find(name);
  answer.send(200, type_of(name), std::string(file != nullptr ? file->bytes : kWithoutPage),
              {{"Content-Security-Policy",
                "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                "object-src 'none'"},
               {"X-Content-Type-Options", "nosniff"},
               {"X-Frame-Options", "DENY"},
               {"Referrer-Policy", "no-referrer"},
               {"Cache-Control", "no-cache"}});
}

std::string_view openapi_text() {
  return find(kDescription)->bytes;
}

}  // namespace aerie::server
