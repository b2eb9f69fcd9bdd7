#include "hub/hub_settings.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "format/input_file.h"

namespace aerie {
namespace {

constexpr int64_t kMaxTokenBytes = 4096;

std::atomic<bool> offline_by_flag{false};
std::function<void(const std::string&)> hub_listener;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The first of the variables that says something.
template <typename... Names>
std::string first_of(Names... names) {
  std::string value;
  ((value.empty() ? void(value = variable(names)) : void()), ...);
  return value;
}

bool is_set(const char* name) {
  std::string value = variable(name);
  std::ranges::transform(value, value.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// With the home in the place of a leading "~".
std::string expanded(std::string path) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, variable("HOME"));
  return path;
}

std::string hugging_face_home() {
  const std::string own = variable("HF_HOME");
  if (!own.empty()) return expanded(own);
  const std::string caches = variable("XDG_CACHE_HOME");
  if (!caches.empty()) return expanded(caches) + "/huggingface";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface";
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) - begin + 1));
}

std::string find_token(const std::string& home) {
  std::string own = trimmed(first_of("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"));
  if (!own.empty()) return own;
  std::string path = expanded(variable("HF_TOKEN_PATH"));
  if (path.empty() && !home.empty()) path = home + "/token";
  if (path.empty()) return "";
  const Expected<std::string> text = read_file(path, kMaxTokenBytes);
  return text.ok() ? trimmed(*text) : "";
}

}  // namespace

HubSettings hub_settings() {
  HubSettings settings;
  const std::string home = hugging_face_home();
  settings.cache = expanded(first_of("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"));
  if (settings.cache.empty() && !home.empty()) settings.cache = home + "/hub";
  const std::string endpoint = variable("HF_ENDPOINT");
  if (!endpoint.empty()) settings.endpoint = endpoint;
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  settings.token = find_token(home);
  settings.offline = offline_by_flag || is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
  return settings;
}

void set_offline() {
  offline_by_flag = true;
}

void set_hub_listener(std::function<void(const std::string&)> listener) {
  hub_listener = std::move(listener);
}

void tell_hub_listener(const std::string& line) {
  if (hub_listener) hub_listener(line);
}

}  // namespace aerie
