#include "grammar/schema/schema_uri.h"

#include <algorithm>
#include <vector>

namespace aerie::grammar {
namespace {

// Behind the scheme's colon; 0: there is none.
size_t scheme_end(std::string_view uri) {
  const size_t colon = uri.find(':');
  const auto in_scheme = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '-' || c == '.';
  };
  if (colon == std::string_view::npos || colon == 0) return 0;
  return std::all_of(uri.begin(), uri.begin() + static_cast<std::ptrdiff_t>(colon), in_scheme)
             ? colon + 1
             : 0;
}

// Where the path begins.
size_t path_begin(std::string_view uri) {
  const size_t at = scheme_end(uri);
  if (!uri.substr(at).starts_with("//")) return at;
  return std::min(uri.find('/', at + 2), uri.size());
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> kept;
  const bool rooted = path.starts_with('/');
  bool folder = false;
  for (std::string_view rest = rooted ? path.substr(1) : path;;) {
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    folder = part == "." || part == "..";
    if (part == ".." && !kept.empty()) kept.pop_back();
    if (!folder) kept.push_back(part);
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  std::string text;
  for (const std::string_view part : kept) {
    if (rooted || !text.empty()) text += '/';
    text += part;
  }
  return folder ? text + "/" : text;
}

}  // namespace

std::string join_uri(std::string_view base, std::string_view reference) {
  base = base.substr(0, base.find('#'));
  if (scheme_end(reference) > 0) return std::string(reference);
  if (reference.empty() || reference.starts_with('#'))
    return std::string(base) + std::string(reference);
  if (reference.starts_with("//"))
    return std::string(base.substr(0, scheme_end(base))) + std::string(reference);
  const size_t fragment = std::min(reference.find('#'), reference.size());
  const std::string_view path = reference.substr(0, fragment);
  const size_t begin = path_begin(base);
  std::string joined;
  if (!path.starts_with('/')) {
    const size_t last = base.rfind('/');
    if (last != std::string_view::npos && last >= begin) {
      joined = base.substr(begin, last + 1 - begin);
    } else if (begin > 0) {
      joined = '/';
    }
  }
  joined += path;
  std::string uri(base.substr(0, begin));
  uri += without_dots(joined);
  uri += reference.substr(fragment);
  return uri;
}

}  // namespace aerie::grammar
