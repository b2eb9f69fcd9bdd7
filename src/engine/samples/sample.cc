#include "engine/samples/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/samples/json_errors.h"
#include "format/json.h"
#include "format/text.h"

namespace aerie {
namespace {

constexpr size_t kLongestSource = 1000;  // bytes

Expected<FinishReason> parse_finish(const JsonObject& line) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view name, line.string("finish"));
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength}) {
    if (name == finish_reason_name(reason)) return reason;
  }
  return line.error(StatusCode::kInvalidData, "finish", "is neither 'stop' nor 'length'");
}

Status parse_tokens(const JsonObject& line, int vocab, Sample& sample) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens, line.integers("tokens"));
  sample.tokens.reserve(tokens.size());
  for (const int64_t token : tokens) {
    if (token < 0 || token >= vocab) {
      return line.error(StatusCode::kInvalidData, "tokens",
                        fmt::format("has {}, outside the vocabulary of {}", token, vocab));
    }
    sample.tokens.push_back(static_cast<int32_t>(token));
  }
  return {};
}

// Ascending, not empty, inside the tokens, and not from the first one on: nothing predicts it.
Status parse_replies(const JsonObject& line, Sample& sample) {
  sample.mask.assign(sample.tokens.size(), 0);
  Status wrong =
      line.error(StatusCode::kInvalidData, "replies", "is no list of ascending [begin, end)");
  const Json* replies = line.find("replies");
  if (replies == nullptr || !replies->is_array() || replies->empty()) return wrong;
  uint64_t last = 1;
  for (const Json& reply : *replies) {
    if (!reply.is_array() || reply.size() != 2 || !reply[0].is_number_unsigned() ||
        !reply[1].is_number_unsigned()) {
      return wrong;
    }
    const auto begin = reply[0].get<uint64_t>();
    const auto end = reply[1].get<uint64_t>();
    if (begin < last || end <= begin || end > sample.tokens.size()) return wrong;
    std::fill(sample.mask.begin() + static_cast<int64_t>(begin),
              sample.mask.begin() + static_cast<int64_t>(end), uint8_t{1});
    last = end;
  }
  return {};
}

Expected<int> parse_count(const JsonObject& line, const char* key) {
  AERIE_ASSIGN_OR_RETURN(const int64_t value,
                         line.integer_in(key, 0, std::numeric_limits<int>::max()));
  return static_cast<int>(value);
}

Expected<Sample> parse_line(std::string_view line, const std::string& where, int vocab) {
  AERIE_ASSIGN_OR_RETURN(const Json json, parse_json(line, where));
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(json, where));
  Sample sample;
  AERIE_ASSIGN_OR_RETURN(const std::string_view id, object.string("id"));
  AERIE_ASSIGN_OR_RETURN(sample.prompt, parse_count(object, "prompt"));
  AERIE_ASSIGN_OR_RETURN(sample.index, parse_count(object, "index"));
  sample.id = sample_id(sample.prompt, sample.index);
  if (id != sample.id) {
    return object.error(StatusCode::kInvalidData, "id",
                        fmt::format("is not '{}', which prompt and index make", sample.id));
  }
  AERIE_ASSIGN_OR_RETURN(const std::string_view source, object.string("source"));
  sample.source = printable(source, kLongestSource);
  AERIE_ASSIGN_OR_RETURN(sample.temperature, object.number("temperature"));
  AERIE_ASSIGN_OR_RETURN(sample.seed, object.unsigned_integer("seed"));
  AERIE_ASSIGN_OR_RETURN(sample.finish, parse_finish(object));
  AERIE_RETURN_IF_ERROR(parse_tokens(object, vocab, sample));
  AERIE_RETURN_IF_ERROR(parse_replies(object, sample));
  return sample;
}

}  // namespace

std::string sample_id(int prompt, int index) {
  return fmt::format("{}-{}", prompt, index);
}

int64_t generated_tokens(const Sample& sample) {
  return std::count(sample.mask.begin(), sample.mask.end(), uint8_t{1});
}

std::string to_line(const Sample& sample) {
  Json replies = Json::array();
  const auto& mask = sample.mask;
  for (size_t begin = 0; begin < mask.size();) {
    const size_t end = static_cast<size_t>(
        std::find(mask.begin() + static_cast<int64_t>(begin), mask.end(), !mask[begin]) -
        mask.begin());
    if (mask[begin] != 0) replies.push_back({begin, end});
    begin = end;
  }
  Json line;
  line["id"] = sample.id;
  line["prompt"] = sample.prompt;
  line["index"] = sample.index;
  line["source"] = sample.source;
  line["temperature"] = sample.temperature;
  line["seed"] = sample.seed;
  line["finish"] = finish_reason_name(sample.finish);
  line["replies"] = std::move(replies);
  line["tokens"] = sample.tokens;
  // A file's name may be no UTF-8.
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Expected<Sample> parse_sample(std::string_view line, const std::string& where, int vocab) {
  auto sample = parse_line(line, where, vocab);
  if (!sample.ok()) return absent_is_broken(sample.status());
  return sample;
}

}  // namespace aerie
