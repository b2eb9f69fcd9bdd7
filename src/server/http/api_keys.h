// Who may ask.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/access/rate_limits.h"

namespace aerie::server {

// SHA-256 in lower-case hexadecimal: what a key file may hold in the place of a key.
std::string hash_key(std::string_view key);

// Only hashes are kept. Immutable once it is filled: safe to share between threads.
class ApiKeys {
 public:
  // Of one of them, without the key.
  struct Entry {
    std::string name;
    RateLimits limits;
    bool learn = true;  // its requests may be kept for training, where the server keeps any
  };

  // A line for each: a key, or "sha256:" and its hash; after spaces a name for logs and figures may
  // follow, and after that limits, as read_limit() reads them, and "learn=no". Empty lines and
  // those that begin with # count for nothing. Errors name the line, never the key.
  Status add_lines(std::string_view lines, const std::string& file);
  Status add_file(const std::string& path);
  // kInvalidArgument if it is empty or holds what no header can.
  Status add(std::string_view key, Entry entry);
  Status add(std::string_view key, std::string name = "", const RateLimits& limits = {}) {
    return add(key, Entry{std::move(name), limits});
  }

  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }

  // If it is one. Takes as long for each wrong one.
  std::optional<Entry> find(std::string_view key) const;

 private:
  using Hash = std::array<unsigned char, 32>;
  struct Key {
    Hash hash;
    Entry entry;
  };
  static Hash hash_of(std::string_view key);
  void add_hash(const Hash& hash, Entry entry);
  Status add_line(std::string_view line);

  std::vector<Key> keys_;
};

}  // namespace aerie::server
