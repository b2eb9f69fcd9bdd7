#include "format/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "format/input_file.h"
#include "format/name_index.h"
#include "format/text.h"

namespace aerie {
namespace {

// The library's message without its own number and place.
std::string_view reason_in(std::string_view what) {
  const auto drop_through = [&what](std::string_view mark) {
    const size_t at = what.find(mark);
    if (at != std::string_view::npos) what.remove_prefix(at + mark.size());
  };
  if (what.starts_with('[')) drop_through("] ");
  if (what.starts_with("parse error")) drop_through(": ");
  return what;
}

std::string place_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::ranges::count(before, '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", line, before.size() - line_start + 1);
}

// Builds the value bottom-up: an array or object is made when it ends, from the values on a stack,
// with exactly the room that it needs. (The library's own builder searches an ordered object at
// each key, and its growing vectors copy what is below them.)
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, size_t max_tree_bytes)
      : text_(text), max_tree_bytes_(max_tree_bytes), left_(max_tree_bytes) {}

  bool null() override { return push(nullptr); }
  bool boolean(bool value) override { return push(value); }
  bool number_integer(number_integer_t value) override { return push(value); }
  bool number_unsigned(number_unsigned_t value) override { return push(value); }
  bool number_float(number_float_t value, const string_t&) override { return push(value); }
  bool string(string_t& value) override { return push(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override {
    if (!spend(kKeyBytes)) return false;
    keys_.push_back(std::move(value));
    return true;
  }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }

  bool end_array() override {
    const auto first = values_.begin() + static_cast<ptrdiff_t>(levels_.back().values);
    Json::array_t array(std::make_move_iterator(first), std::make_move_iterator(values_.end()));
    return close(std::move(array));
  }

  bool end_object() override {
    const Level level = levels_.back();
    const size_t count = values_.size() - level.values;
    Json::object_t object;
    object.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      object.emplace_back(std::move(keys_[level.keys + i]), std::move(values_[level.values + i]));
    }
    if (const auto twin = find_twin(object)) {
      status_ = invalid_data("key '{}{}' occurs twice", path(), printable(*twin));
      return false;
    }
    return close(std::move(object));
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const size_t offset = std::min(position > 0 ? position - 1 : 0, text_.size());
    status_ =
        invalid_data("{}: {}", place_of(text_, offset), printable(reason_in(error.what()), 200));
    return false;
  }

  const Status& status() const { return status_; }
  Json take() { return std::move(values_.front()); }

 private:
  // In the stack and in what it becomes a part of.
  static constexpr size_t kValueBytes = 2 * sizeof(Json);
  static constexpr size_t kKeyBytes = 2 * sizeof(std::string);
  static constexpr size_t kLevelBytes = 64;

  // Where the parts of an unfinished array or object start.
  struct Level {
    size_t values;
    size_t keys;
  };

  bool spend(size_t bytes) {
    if (bytes > left_) {
      status_ =
          invalid_data("has so many values that they take more than {} MiB", max_tree_bytes_ >> 20);
      return false;
    }
    left_ -= bytes;
    return true;
  }

  template <typename T>
  bool push(T&& value) {
    if (!spend(kValueBytes)) return false;
    values_.emplace_back(std::forward<T>(value));
    return true;
  }

  bool open() {
    if (levels_.size() == kMaxJsonDepth) {
      status_ = invalid_data("arrays and objects are nested more than {} deep", kMaxJsonDepth);
      return false;
    }
    levels_.push_back({values_.size(), keys_.size()});
    return spend(kLevelBytes);
  }

  template <typename T>
  bool close(T&& value) {
    values_.resize(levels_.back().values);
    keys_.resize(levels_.back().keys);
    levels_.pop_back();
    return push(std::forward<T>(value));
  }

  static std::optional<std::string_view> find_twin(const Json::object_t& object) {
    if (object.size() < 2) return std::nullopt;
    NameIndex index;
    return index.build(static_cast<uint32_t>(object.size()),
                       [&](uint32_t i) { return std::string_view((object.begin() + i)->first); });
  }

  // "model.vocab.": the keys that lead to the innermost object.
  std::string path() const {
    std::string out;
    for (size_t i = 1; i < levels_.size(); ++i) {
      if (levels_[i].keys > levels_[i - 1].keys) out += printable(keys_[levels_[i].keys - 1]) + ".";
    }
    return out;
  }

  std::string_view text_;
  const size_t max_tree_bytes_;
  size_t left_;
  // Deques: their growth moves nothing and leaves little over.
  std::deque<Json> values_;
  std::deque<std::string> keys_;
  std::vector<Level> levels_;
  Status status_;
};

Expected<Json> build(std::string_view bytes, size_t max_tree_bytes) {
  if (bytes.empty()) return invalid_data("is empty, not JSON");
  if (is_git_lfs_pointer(bytes)) {
    return invalid_data("is not JSON but a Git LFS pointer to it; fetch it with: git lfs pull");
  }
  if (bytes.size() > kMaxJsonBytes) {
    return invalid_data("is {} bytes of JSON; at most {} are read", bytes.size(), kMaxJsonBytes);
  }
  // The library takes a NUL for the end of the text.
  if (const size_t at = bytes.find('\0'); at != std::string_view::npos) {
    return invalid_data("{}: a NUL byte", place_of(bytes, at));
  }
  Builder builder(bytes, max_tree_bytes);
  const bool whole = Json::sax_parse(bytes.begin(), bytes.end(), &builder);
  if (!whole) return builder.status();
  return builder.take();
}

std::optional<int64_t> to_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (!value.is_number_integer()) return std::nullopt;
  return value.get<int64_t>();
}

std::optional<double> to_number(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

std::optional<std::string_view> to_text(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  return std::string_view(value.get_ref<const std::string&>());
}

}  // namespace

Expected<Json> parse_json(std::string_view bytes, const std::string& name, size_t max_tree_bytes) {
  try {
    return in_context(build(bytes, max_tree_bytes), name);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("{}: there is no memory for {} bytes of JSON", name, bytes.size());
  }
}

Expected<Json> read_json(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxJsonBytes));
  return parse_json(text, path);
}

Expected<JsonObject> JsonObject::view(const Json& value, std::string file) {
  if (!value.is_object()) {
    return invalid_data("{}: holds JSON of type {}; an object is wanted", file, value.type_name());
  }
  return JsonObject(&value, std::move(file), "");
}

std::string JsonObject::full(std::string_view key) const {
  return path_ + printable(key);
}

const Json* JsonObject::find(std::string_view key) const {
  const auto it = value_->find(key);
  return it == value_->end() || it->is_null() ? nullptr : &*it;
}

Expected<const Json*> JsonObject::get(std::string_view key) const {
  if (const Json* value = find(key)) return value;
  return not_found("{}: there is no key '{}'", file_, full(key));
}

Status JsonObject::error(StatusCode code, std::string_view key, std::string_view what) const {
  return {code, fmt::format("{}: key '{}' {}", file_, full(key), what)};
}

Status JsonObject::wrong_kind(std::string_view key, const Json& value,
                              std::string_view wanted) const {
  const std::string_view kind = value.type_name();
  const std::string_view article = value.is_array() || value.is_object() ? "an" : "a";
  const std::string is = value.is_number() ? value.dump() : fmt::format("{} {}", article, kind);
  return error(StatusCode::kInvalidData, key, fmt::format("is {}; {} is wanted", is, wanted));
}

Expected<int64_t> JsonObject::integer(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const Json* value, get(key));
  if (const auto number = to_integer(*value)) return *number;
  return wrong_kind(key, *value, "an integer of 64 bits");
}

Expected<double> JsonObject::number(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const Json* value, get(key));
  if (const auto number = to_number(*value)) return *number;
  return wrong_kind(key, *value, "a number");
}

Expected<bool> JsonObject::boolean(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const Json* value, get(key));
  if (value->is_boolean()) return value->get<bool>();
  return wrong_kind(key, *value, "true or false");
}

Expected<std::string_view> JsonObject::string(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const Json* value, get(key));
  if (const auto text = to_text(*value)) return *text;
  return wrong_kind(key, *value, "a string");
}

Expected<JsonObject> JsonObject::object(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const Json* value, get(key));
  if (value->is_object()) return JsonObject(value, file_, full(key) + ".");
  return wrong_kind(key, *value, "an object");
}

template <typename T, typename Convert>
Expected<std::vector<T>> JsonObject::array(std::string_view key, std::string_view wanted,
                                           const Convert& convert) const {
  AERIE_ASSIGN_OR_RETURN(const Json* value, get(key));
  if (!value->is_array()) return wrong_kind(key, *value, fmt::format("an array of {}s", wanted));
  std::vector<T> out;
  out.reserve(value->size());
  for (const Json& element : *value) {
    const std::optional<T> converted = convert(element);
    if (!converted) {
      return wrong_kind(fmt::format("{}[{}]", key, out.size()), element,
                        fmt::format("an array of {}s", wanted));
    }
    out.push_back(*converted);
  }
  return out;
}

Expected<std::vector<int64_t>> JsonObject::integers(std::string_view key) const {
  return array<int64_t>(key, "integer", to_integer);
}
Expected<std::vector<double>> JsonObject::numbers(std::string_view key) const {
  return array<double>(key, "number", to_number);
}
Expected<std::vector<std::string_view>> JsonObject::strings(std::string_view key) const {
  return array<std::string_view>(key, "string", to_text);
}

template <typename T>
Expected<T> JsonObject::within(std::string_view key, T value, T least, T most) const {
  if (value >= least && value <= most) return value;
  return error(StatusCode::kInvalidData, key,
               fmt::format("is {}, not between {} and {}", value, least, most));
}

Expected<int64_t> JsonObject::integer_in(std::string_view key, int64_t least, int64_t most) const {
  AERIE_ASSIGN_OR_RETURN(const int64_t value, integer(key));
  return within(key, value, least, most);
}
Expected<double> JsonObject::number_in(std::string_view key, double least, double most) const {
  AERIE_ASSIGN_OR_RETURN(const double value, number(key));
  return within(key, value, least, most);
}
Expected<uint64_t> JsonObject::unsigned_integer(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const Json* value, get(key));
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  return wrong_kind(key, *value, "a whole number of 64 bits");
}

Expected<int64_t> JsonObject::integer(std::string_view key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}
Expected<int64_t> JsonObject::integer_in(std::string_view key, int64_t least, int64_t most,
                                         int64_t fallback) const {
  return has(key) ? integer_in(key, least, most) : fallback;
}
Expected<double> JsonObject::number(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}
Expected<bool> JsonObject::boolean(std::string_view key, bool fallback) const {
  return has(key) ? boolean(key) : fallback;
}
Expected<std::string_view> JsonObject::string(std::string_view key,
                                              std::string_view fallback) const {
  return has(key) ? string(key) : fallback;
}

}  // namespace aerie
