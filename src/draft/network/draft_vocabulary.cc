#include "draft/network/draft_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/errors.h"
#include "format/input_file.h"
#include "format/json.h"
#include "format/safetensors/safetensors.h"
#include "format/text.h"
#include "format/torch/torch_folder.h"
#include "model/import/hugging_face_file.h"

namespace aerie {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// A list of ids while it is read: each is checked when it comes, so that a long list of nonsense
// takes no more memory than the vocabulary.
class Ids {
 public:
  explicit Ids(int vocab) : seen_(static_cast<size_t>(vocab), false) {}

  Status add(int64_t id) {
    if (id < 0 || id >= static_cast<int64_t>(seen_.size())) {
      return invalid_data("{} is not a token of the target, which has ids 0 to {}", id,
                          seen_.size() - 1);
    }
    const auto index = static_cast<size_t>(id);
    if (seen_[index]) return invalid_data("the id {} is there twice", id);
    seen_[index] = true;
    ids_.push_back(static_cast<int32_t>(id));
    return {};
  }
  std::vector<int32_t> take() { return std::move(ids_); }

 private:
  std::vector<bool> seen_;
  std::vector<int32_t> ids_;
};

Status read_tensor(const SafetensorsFile& file, Ids& ids) {
  if (file.tensors().size() != 1) {
    return invalid_data("has {} tensors; one of token ids is wanted", file.tensors().size());
  }
  AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> values, read_integers(file.tensors()[0]));
  for (size_t i = 0; i < values.size(); ++i) {
    AERIE_RETURN_IF_ERROR(ids.add(values[i]).with_context(fmt::format("element {}", i)));
  }
  return {};
}

Status read_array(std::string_view text, const std::string& path, Ids& ids) {
  AERIE_ASSIGN_OR_RETURN(const Json json, parse_json(text, path));
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string place = fmt::format("{}: element {}", path, i);
    if (!json[i].is_number_integer()) {
      return invalid_data("{}: is a {}; a token id is wanted", place, json[i].type_name());
    }
    // A number of 64 bits without a sign is no id of anything.
    const bool is_huge = json[i].is_number_unsigned() && json[i].get<uint64_t>() > INT64_MAX;
    AERIE_RETURN_IF_ERROR(ids.add(is_huge ? -1 : json[i].get<int64_t>()).with_context(place));
  }
  return {};
}

Status read_lines(std::string_view text, Ids& ids) {
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    word.remove_prefix(std::min(word.find_first_not_of(kSpace), word.size()));
    word = word.substr(0, word.find_last_not_of(kSpace) + 1);
    if (word.empty()) continue;
    int64_t id = 0;
    const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || last != word.data() + word.size()) {
      return invalid_data("line {}: '{}' is not a token id", line, printable(word, 40));
    }
    AERIE_RETURN_IF_ERROR(ids.add(id).with_context(fmt::format("line {}", line)));
  }
  return {};
}

Status read(const std::string& path, Ids& ids) {
  if (path.ends_with(".safetensors")) {
    AERIE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
    AERIE_RETURN_IF_ERROR(read_tensor(file, ids).with_context(path));
    return file.check();
  }
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  if (is_torch_path(path)) {
    return not_supported(
        "{0}: is a file of PyTorch's; convert it with: aerie inspect {0} --convert {0}.safetensors",
        printable(path, 4096));
  }
  const size_t start = text.find_first_not_of(kSpace);
  if (start != std::string_view::npos && text[start] == '[') return read_array(text, path, ids);
  return read_lines(text, ids).with_context(path);
}

}  // namespace

Expected<std::vector<int32_t>> read_draft_vocabulary(const std::string& path, int size, int vocab) {
  if (size < 0 || vocab < 1) {
    return invalid_argument("{}: {} tokens of {} are asked for", path, size, vocab);
  }
  Ids list(vocab);
  AERIE_RETURN_IF_ERROR(read(path, list));
  std::vector<int32_t> ids = list.take();
  const size_t wanted = size == 0 ? ids.size() : static_cast<size_t>(size);
  if (ids.empty() || wanted > ids.size()) {
    return invalid_argument("{}: holds {} token ids, and {} are asked for", path, ids.size(),
                            size == 0 ? "some" : std::to_string(size));
  }
  ids.resize(wanted);
  std::ranges::sort(ids);
  return ids;
}

bool are_ascending_ids(std::span<const int32_t> ids, int vocab) {
  return std::ranges::adjacent_find(ids, std::greater_equal<>()) == ids.end() &&
         (ids.empty() || (ids.front() >= 0 && ids.back() < vocab));
}

Expected<std::vector<int32_t>> read_draft_ids(std::span<const int64_t> d2t, int target_vocab,
                                              const std::string& where) {
  std::vector<int32_t> offsets, indices;
  for (size_t i = 0; i < d2t.size(); ++i) {
    const int64_t index = std::clamp<int64_t>(d2t[i], -1, target_vocab);
    indices.push_back(static_cast<int32_t>(index));
    offsets.push_back(
        static_cast<int32_t>(std::min<int64_t>(index + static_cast<int64_t>(i), target_vocab)));
  }
  const bool never_negative = std::ranges::none_of(d2t, [](int64_t v) { return v < 0; });
  if (never_negative && are_ascending_ids(offsets, target_vocab)) return offsets;
  if (are_ascending_ids(indices, target_vocab)) return indices;
  return invalid_data(
      "{}: d2t is neither ascending ids of the target's {} tokens nor offsets to such", where,
      target_vocab);
}

Expected<std::vector<int32_t>> read_draft_ids(const ModelFile& file, int vocab, int target_vocab) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<double> values, file.numbers(kDraftIdsKey));
  const auto where = [&](std::string_view key) {
    return fmt::format("{}: {}", file.name(), file.origin_of_key(key));
  };
  if (values.empty() || values.size() > static_cast<size_t>(vocab)) {
    return invalid_data("{}: has {} ids for {} rows", where(kDraftIdsKey), values.size(), vocab);
  }
  if (file.find(kDraftTargetKey) != nullptr) {
    AERIE_ASSIGN_OR_RETURN(const int64_t made_for, file.integer(kDraftTargetKey));
    if (made_for != target_vocab) {
      return invalid_argument("{} is {}, and the target has {} tokens: it drafts for another model",
                              where(kDraftTargetKey), made_for, target_vocab);
    }
  }
  std::vector<int64_t> d2t;
  d2t.reserve(values.size());
  for (const double value : values) {
    if (!(std::abs(value) < 2147483648.0) || std::trunc(value) != value) {
      return invalid_data("{}: {} is no id", where(kDraftIdsKey), value);
    }
    d2t.push_back(static_cast<int64_t>(value));
  }
  return read_draft_ids(d2t, target_vocab, file.name());
}

}  // namespace aerie
