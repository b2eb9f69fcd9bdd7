#include "hub/hub_name.h"

#include <algorithm>
#include <array>

namespace aerie {
namespace {

constexpr size_t kMaxPart = 96;
constexpr size_t kMaxName = 1024;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_repo_part(std::string_view part) {
  const auto fits = [](char c) { return is_word(c) || c == '-' || c == '.'; };
  return !part.empty() && part.size() <= kMaxPart && std::ranges::all_of(part, fits) &&
         is_word(part.front()) && is_word(part.back()) &&
         part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos;
}

bool is_revision(std::string_view revision) {
  const auto fits = [](char c) { return is_word(c) || c == '-' || c == '.' || c == '/'; };
  return std::ranges::all_of(revision, fits) && is_safe_file_name(revision) &&
         !revision.starts_with('-');
}

}  // namespace

std::optional<HubName> parse_hub_name(std::string_view text) {
  HubName name;
  std::string_view rest = text;
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    name.pick = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_safe_file_name(name.pick)) return std::nullopt;
  }
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    name.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!is_revision(name.revision)) return std::nullopt;
  }
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos || !is_repo_part(rest.substr(0, slash)) ||
      !is_repo_part(rest.substr(slash + 1)) || is_weights_file(rest)) {
    return std::nullopt;
  }
  name.repo = rest;
  return name;
}

std::string to_string(const HubName& name) {
  std::string text = name.repo;
  if (name.revision != "main") text += "@" + name.revision;
  if (!name.pick.empty()) text += ":" + name.pick;
  return text;
}

bool is_safe_file_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxName) return false;
  const auto steers = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F || c == '\\';
  };
  if (std::ranges::any_of(name, steers)) return false;
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_commit(std::string_view revision) {
  return is_hex(revision, 40);
}

bool is_weights_file(std::string_view name) {
  constexpr std::array<std::string_view, 5> kEndings = {".gguf", ".safetensors", ".bin", ".pt",
                                                        ".pth"};
  return std::ranges::any_of(kEndings, [&](auto ending) { return name.ends_with(ending); });
}

}  // namespace aerie
