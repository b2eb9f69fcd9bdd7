#include "server/http/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace aerie::server {
namespace {

constexpr std::string_view kPrefix = "sha256:";

std::string hex_of(const unsigned char* bytes, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Taken from the front of the text; empty at its end.
std::string_view next_word(std::string_view& text) {
  text = trimmed(text);
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool read_hash(std::string_view hex, std::array<unsigned char, 32>& out) {
  if (hex.size() != 2 * out.size()) return false;
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = hex_value(hex[2 * i]);
    const int low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return true;
}

}  // namespace

ApiKeys::Hash ApiKeys::hash_of(std::string_view key) {
  Hash hash = {};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

std::string hash_key(std::string_view key) {
  std::array<unsigned char, 32> hash = {};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hex_of(hash.data(), hash.size());
}

void ApiKeys::add_hash(const Hash& hash, Entry entry) {
  if (entry.name.empty()) entry.name = "key-" + hex_of(hash.data(), 4);
  keys_.push_back({hash, std::move(entry)});
}

Status ApiKeys::add(std::string_view key, Entry entry) {
  const bool fits =
      !key.empty() && std::ranges::all_of(key, [](char c) { return c > ' ' && c <= '~'; });
  if (!fits) {
    return invalid_argument("an API key is one or more printable ASCII characters without spaces");
  }
  add_hash(hash_of(key), std::move(entry));
  return {};
}

Status ApiKeys::add_line(std::string_view line) {
  const std::string_view key = next_word(line);
  Entry entry;
  for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
    // A limit with an error in it is no part of a name.
    if (word.starts_with("learn=")) {
      if (word != "learn=yes" && word != "learn=no") {
        return invalid_argument("learn= is followed by yes or no");
      }
      entry.learn = word == "learn=yes";
    } else if (word.find('=') != std::string_view::npos) {
      AERIE_RETURN_IF_ERROR(read_limit(word, entry.limits));
    } else if (entry.limits.any()) {
      return invalid_argument("a key's name stands before its limits");
    } else {
      entry.name += (entry.name.empty() ? "" : " ") + std::string(word);
    }
  }
  if (!key.starts_with(kPrefix)) return add(key, std::move(entry));
  Hash hash = {};
  if (!read_hash(key.substr(kPrefix.size()), hash)) {
    return invalid_argument("sha256: is followed by 64 hex digits");
  }
  add_hash(hash, std::move(entry));
  return {};
}

Status ApiKeys::add_lines(std::string_view lines, const std::string& file) {
  for (int number = 1; !lines.empty(); ++number) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = trimmed(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.empty() || line.front() == '#') continue;
    const Status status = add_line(line);
    if (!status.ok()) return status.with_context(fmt::format("{}, line {}", file, number));
  }
  return {};
}

Status ApiKeys::add_file(const std::string& path) {
  if (is_folder(path)) return invalid_argument("{}: this is a folder, not a file with keys", path);
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.is_open() || text.bad()) return invalid_argument("{}: the file cannot be read", path);
  const size_t before = keys_.size();
  AERIE_RETURN_IF_ERROR(add_lines(text.str(), path));
  // Without this a file that was emptied by mistake would open the server to all.
  if (keys_.size() == before) return invalid_argument("{}: there is no key in it", path);
  return {};
}

std::optional<ApiKeys::Entry> ApiKeys::find(std::string_view key) const {
  const Hash hash = hash_of(key);
  const Key* found = nullptr;
  for (const Key& one : keys_) {
    if (CRYPTO_memcmp(one.hash.data(), hash.data(), hash.size()) == 0) found = &one;
  }
  if (found == nullptr) return std::nullopt;
  return found->entry;
}

}  // namespace aerie::server
