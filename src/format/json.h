// JSON files, which are hostile until they are checked, and what readers of configurations want of
// them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace aerie {

using Json = nlohmann::ordered_json;  // objects keep the file's order

inline constexpr int kMaxJsonDepth = 64;
inline constexpr int64_t kMaxJsonBytes = int64_t{256} << 20;

// The value that `bytes` spell, as RFC 8259 has it: UTF-8 without comments and without anything
// behind it; a byte order mark is skipped. Integers that fit 64 bits are integers, all other
// numbers are finite doubles. No object has a key twice.
//
// kInvalidData with `name`, and line and column (in bytes) or the key, of what is wrong:
// kMaxJsonDepth and kMaxJsonBytes are limits too. Uses up to 40 times the memory of the text (one
// of nested brackets; of a tokenizer's, about 4 times) and no recursion, takes n log n
// time; kResourceExhausted if the memory cannot be had.
//
// `max_tree_bytes`: of what the values take beside their texts, estimated; kInvalidData beyond it.
//
// Looking a key up in a Json object compares with each: go through objects of many keys in order.
Expected<Json> parse_json(std::string_view bytes, const std::string& name,
                          size_t max_tree_bytes = SIZE_MAX);

// The same of a file. kNotFound if there is none.
Expected<Json> read_json(const std::string& path);

// An object in a JSON file, with the file's name and the keys that lead to it, for messages such as
// "config.json: key 'rope_scaling.factor' is a string; a number is wanted". The Json must outlive
// it. A key whose value is null counts as absent, as it does for readers of Hugging Face's files.
//
// Getters: kNotFound if the key is absent, unless a fallback is given; kInvalidData if the value is
// of another kind or does not fit.
class JsonObject {
 public:
  // kInvalidData if `value` is not an object.
  static Expected<JsonObject> view(const Json& value, std::string file);

  const std::string& file() const { return file_; }
  const Json& json() const { return *value_; }

  const Json* find(std::string_view key) const;  // nullptr if absent
  bool has(std::string_view key) const { return find(key) != nullptr; }

  Expected<int64_t> integer(std::string_view key) const;
  Expected<double> number(std::string_view key) const;  // integers convert
  Expected<bool> boolean(std::string_view key) const;
  Expected<std::string_view> string(std::string_view key) const;
  Expected<JsonObject> object(std::string_view key) const;
  Expected<std::vector<int64_t>> integers(std::string_view key) const;
  Expected<std::vector<double>> numbers(std::string_view key) const;
  Expected<std::vector<std::string_view>> strings(std::string_view key) const;

  // What is not within the bounds does not fit.
  Expected<int64_t> integer_in(std::string_view key, int64_t least, int64_t most) const;
  Expected<double> number_in(std::string_view key, double least, double most) const;
  // Any of 64 bits.
  Expected<uint64_t> unsigned_integer(std::string_view key) const;

  Expected<int64_t> integer(std::string_view key, int64_t fallback) const;
  // A fallback may be out of the bounds.
  Expected<int64_t> integer_in(std::string_view key, int64_t least, int64_t most,
                               int64_t fallback) const;
  Expected<double> number(std::string_view key, double fallback) const;
  Expected<bool> boolean(std::string_view key, bool fallback) const;
  Expected<std::string_view> string(std::string_view key, std::string_view fallback) const;

  // "FILE: key 'a.b' " and `what`, for a value that its reader does not accept:
  // error(StatusCode::kUnsupported, "rope_type", "is 'x'; ... are known").
  Status error(StatusCode code, std::string_view key, std::string_view what) const;
  template <typename... Args>
  Status error(StatusCode code, std::string_view key, fmt::format_string<Args...> what,
               Args&&... args) const requires(sizeof...(Args) > 0) {
    return error(code, key, std::string_view(fmt::format(what, std::forward<Args>(args)...)));
  }

 private:
  JsonObject(const Json* value, std::string file, std::string path)
      : value_(value), file_(std::move(file)), path_(std::move(path)) {}

  Expected<const Json*> get(std::string_view key) const;
  Status wrong_kind(std::string_view key, const Json& value, std::string_view wanted) const;
  std::string full(std::string_view key) const;
  template <typename T>
  Expected<T> within(std::string_view key, T value, T least, T most) const;
  template <typename T, typename Convert>
  Expected<std::vector<T>> array(std::string_view key, std::string_view wanted,
                                 const Convert& convert) const;

  const Json* value_;
  std::string file_;
  std::string path_;  // "rope_scaling."; empty at the top
};

}  // namespace aerie
