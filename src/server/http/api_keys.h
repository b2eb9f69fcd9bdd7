// Who may ask.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie::server {

// SHA-256 in lower-case hexadecimal: what a key file may hold in the place of a key.
std::string hash_key(std::string_view key);

// Only hashes are kept. Immutable once it is filled: safe to share between threads.
class ApiKeys {
 public:
  // A line for each: a key, or "sha256:" and its hash; after a space a name for the logs may
  // follow. Empty lines and those that begin with # count for nothing. Errors name the line, never
  // what it holds.
  Status add_lines(std::string_view lines, const std::string& file);
  Status add_file(const std::string& path);
  // kInvalidArgument if it is empty or holds what no header can.
  Status add(std::string_view key, std::string name = "");

  bool empty() const { return keys_.empty(); }

  // The name of the key, if it is one. Takes as long for each wrong one.
  std::optional<std::string> find(std::string_view key) const;

 private:
  using Hash = std::array<unsigned char, 32>;
  struct Key {
    Hash hash;
    std::string name;
  };
  static Hash hash_of(std::string_view key);
  void add_hash(const Hash& hash, std::string name);

  std::vector<Key> keys_;
};

}  // namespace aerie::server
