#include "engine/recording/record.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "format/fingerprint.h"
#include "format/json.h"
#include "format/text.h"
#include "grammar/grammar.h"

namespace aerie {
namespace {

// 1 had no time and no grammar, and always a text.
constexpr int kRecordVersion = 2;
constexpr int kOldestVersion = 1;
constexpr const char* kVersionKey = "aerie_record";
constexpr int64_t kMostPositions = int64_t{1} << 26;
constexpr int64_t kMostSeconds = int64_t{1} << 40;
constexpr int64_t kMostInt = std::numeric_limits<int32_t>::max();
constexpr auto kInfinity = std::numeric_limits<float>::infinity();

// JSON has no infinity, which is what bans a token.
Json bias_json(const SamplingParams& sampling) {
  Json list = Json::array();
  for (const auto& [id, bias] : sampling.logit_bias) {
    list.push_back(Json::array({id, bias == -kInfinity ? Json("-inf") : Json(bias)}));
  }
  return list;
}

constexpr std::array kGrammarKinds = {GrammarKind::kJsonObject, GrammarKind::kJsonSchema,
                                      GrammarKind::kGrammar, GrammarKind::kRegex,
                                      GrammarKind::kChoice};

std::string_view kind_name(GrammarKind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"json_object", "json_schema", "grammar",
                                                      "regex", "choice"};
  return kNames[static_cast<size_t>(kind)];
}

Json grammar_json(const GrammarSpec& grammar) {
  Json out = {{"kind", kind_name(grammar.kind)}};
  if (grammar.kind == GrammarKind::kChoice) {
    out["choices"] = grammar.choices;
  } else if (grammar.kind != GrammarKind::kJsonObject) {
    out["text"] = grammar.text;
  }
  out["strict"] = grammar.strict;
  return out;
}

Status invalid(const JsonObject& line, std::string_view key, std::string_view what) {
  return line.error(StatusCode::kInvalidData, key, what);
}

Expected<int> int_in(const JsonObject& line, std::string_view key, int64_t least,
                     int64_t most = kMostInt) {
  AERIE_ASSIGN_OR_RETURN(const int64_t value, line.integer_in(key, least, most));
  return static_cast<int>(value);
}

Expected<std::vector<int32_t>> ids_of(const JsonObject& line, std::string_view key) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> values, line.integers(key));
  std::vector<int32_t> ids;
  ids.reserve(values.size());
  for (const int64_t value : values) {
    if (value < 0 || value > kMostInt) {
      return invalid(line, key, fmt::format("holds {}, which is no token id", value));
    }
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

// The one of `all` whose name is the key's value.
template <typename All, typename NameOf>
auto named(const JsonObject& line, std::string_view key, const All& all, const NameOf& name_of)
    -> Expected<std::remove_cvref_t<decltype(all[0])>> {
  AERIE_ASSIGN_OR_RETURN(const std::string_view name, line.string(key));
  for (const auto one : all) {
    if (name == name_of(one)) return one;
  }
  return invalid(line, key, fmt::format("is '{}', which is not known", printable(name)));
}

Expected<std::string> text_of(const JsonObject& line, std::string_view key) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view text, line.string(key));
  return std::string(text);
}

Status read_engine(const JsonObject& line, RecordedEngine& out) {
  AERIE_ASSIGN_OR_RETURN(out.model, text_of(line, "model"));
  AERIE_ASSIGN_OR_RETURN(const std::string_view print, line.string("fingerprint", ""));
  out.fingerprint = print;
  if (line.has("weight_type")) {
    AERIE_ASSIGN_OR_RETURN(const std::string_view type, line.string("weight_type"));
    out.weight_type = dtype_from_name(type);
    if (!out.weight_type) {
      return invalid(line, "weight_type",
                     fmt::format("is '{}', which is not known", printable(type)));
    }
  }
  AERIE_ASSIGN_OR_RETURN(out.cache_type,
                         named(line, "cache_type", kernels::kAllKvTypes, kernels::kv_type_name));
  AERIE_ASSIGN_OR_RETURN(out.isa, named(line, "isa", kernels::kEveryIsa, kernels::isa_name));
  AERIE_ASSIGN_OR_RETURN(const std::string_view device, line.string("device", "cpu"));
  const Expected<std::string> known = parse_device(device);
  if (!known.ok()) return invalid(line, "device", known.status().message());
  out.device = *known;
  if (line.has("device_layers")) {
    AERIE_ASSIGN_OR_RETURN(out.device_layers, int_in(line, "device_layers", 0));
  }
  AERIE_ASSIGN_OR_RETURN(out.context, int_in(line, "context", 2, kMostPositions));
  AERIE_ASSIGN_OR_RETURN(out.threads, int_in(line, "threads", 1));
  AERIE_ASSIGN_OR_RETURN(out.speculate, text_of(line, "speculate"));
  AERIE_ASSIGN_OR_RETURN(out.rule, named(line, "verify", kVerifyRules, verify_rule_name));
  return {};
}

Status read_bias(const JsonObject& line, SamplingParams& out) {
  const Json* list = line.find("logit_bias");
  if (list == nullptr) return {};
  Status wrong = invalid(line, "logit_bias", "is no list of [token id, number or \"-inf\"]");
  if (!list->is_array()) return wrong;
  for (const Json& pair : *list) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned()) return wrong;
    const auto id = pair[0].get<uint64_t>();
    const bool bans = pair[1].is_string() && pair[1] == "-inf";
    if (id > static_cast<uint64_t>(kMostInt) || !(bans || pair[1].is_number())) return wrong;
    const double bias = bans ? 0.0 : pair[1].get<double>();
    if (std::abs(bias) > std::numeric_limits<float>::max()) return wrong;
    out.logit_bias.emplace_back(static_cast<int32_t>(id),
                                bans ? -kInfinity : static_cast<float>(bias));
  }
  return {};
}

Status read_sampling(const JsonObject& line, SamplingParams& out) {
  AERIE_ASSIGN_OR_RETURN(out.seed, line.unsigned_integer("seed"));
  AERIE_ASSIGN_OR_RETURN(const int64_t choice,
                         line.integer_in("choice", 0, std::numeric_limits<uint32_t>::max()));
  out.choice = static_cast<uint32_t>(choice);
  AERIE_ASSIGN_OR_RETURN(out.temperature, line.number("temperature"));
  AERIE_ASSIGN_OR_RETURN(out.top_k, int_in(line, "top_k", 0));
  AERIE_ASSIGN_OR_RETURN(out.top_p, line.number("top_p"));
  AERIE_ASSIGN_OR_RETURN(out.min_p, line.number("min_p"));
  AERIE_ASSIGN_OR_RETURN(out.repetition_penalty, line.number("repetition_penalty"));
  AERIE_ASSIGN_OR_RETURN(out.frequency_penalty, line.number("frequency_penalty"));
  AERIE_ASSIGN_OR_RETURN(out.presence_penalty, line.number("presence_penalty"));
  AERIE_ASSIGN_OR_RETURN(out.penalty_window, int_in(line, "penalty_window", -1));
  return read_bias(line, out);
}

Status read_grammar(const JsonObject& line, Record& out) {
  if (!line.has("grammar")) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, line.object("grammar"));
  GrammarSpec& grammar = out.grammar.emplace();
  AERIE_ASSIGN_OR_RETURN(grammar.kind, named(object, "kind", kGrammarKinds, kind_name));
  AERIE_ASSIGN_OR_RETURN(grammar.strict, object.boolean("strict"));
  if (grammar.kind == GrammarKind::kChoice) {
    AERIE_ASSIGN_OR_RETURN(const auto choices, object.strings("choices"));
    grammar.choices.assign(choices.begin(), choices.end());
  } else if (grammar.kind != GrammarKind::kJsonObject) {
    AERIE_ASSIGN_OR_RETURN(grammar.text, text_of(object, "text"));
  }
  return {};
}

Status read_request(const JsonObject& line, Record& out) {
  AERIE_ASSIGN_OR_RETURN(out.prompt, ids_of(line, "prompt_ids"));
  if (out.prompt.empty()) return invalid(line, "prompt_ids", "is empty");
  if (line.has("prompt")) {
    AERIE_ASSIGN_OR_RETURN(out.prompt_text, text_of(line, "prompt"));
  }
  AERIE_RETURN_IF_ERROR(read_sampling(line, out.sampling));
  AERIE_ASSIGN_OR_RETURN(out.max_tokens, int_in(line, "max_tokens", 0, kMostPositions));
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string_view> stop, line.strings("stop"));
  out.stop.assign(stop.begin(), stop.end());
  AERIE_ASSIGN_OR_RETURN(out.ignore_eos, line.boolean("ignore_eos"));
  return read_grammar(line, out);
}

Status read_reply(const JsonObject& line, bool has_text, Record& out) {
  constexpr std::array kReasons = {FinishReason::kNone, FinishReason::kStop, FinishReason::kLength,
                                   FinishReason::kError};
  AERIE_ASSIGN_OR_RETURN(out.tokens, ids_of(line, "token_ids"));
  if (has_text) {
    AERIE_ASSIGN_OR_RETURN(out.text, text_of(line, "text"));
  }
  AERIE_ASSIGN_OR_RETURN(out.finish, named(line, "finish_reason", kReasons, finish_reason_name));
  if (out.tokens.empty() && out.finish != FinishReason::kNone) {
    return invalid(line, "token_ids", "is empty, though the reply was not interrupted");
  }
  if (out.max_tokens > 0 && out.tokens.size() > static_cast<size_t>(out.max_tokens)) {
    return invalid(line, "token_ids",
                   fmt::format("holds {} ids, more than 'max_tokens', which is {}",
                               out.tokens.size(), out.max_tokens));
  }
  // As many as the context gives room for: positions, and one token that none follows.
  if (out.prompt.size() + out.tokens.size() > static_cast<size_t>(out.engine.context) + 1) {
    return invalid(line, "context",
                   fmt::format("is {}: too small for {} tokens of prompt and {} of reply",
                               out.engine.context, out.prompt.size(), out.tokens.size()));
  }
  return {};
}

}  // namespace

RecordedEngine recorded_engine(const OpenedModel& opened) {
  const EngineOptions& options = opened.options;
  RecordedEngine out;
  out.model = options.model;
  if (const auto print = content_fingerprint(opened.file())) {
    out.fingerprint = fmt::format("{:016x}", *print);
  }
  out.weight_type = options.weight_type;
  out.cache_type = options.cache_type;
  out.isa = options.isa;
  out.device = options.device;
  if (opened.device && opened.device->first_layer > 0) {
    out.device_layers = options.device_layers.value_or(0);
  }
  out.context = options.context;
  out.threads = options.threads;
  out.speculate = to_string(options.speculation);
  out.rule = options.rule;
  return out;
}

Record make_record(const RecordedEngine& engine, const Request& request) {
  Record out;
  out.engine = engine;
  if (!request.speculate) out.engine.speculate = "none";
  out.prompt = request.prompt;
  out.sampling = request.sampling;
  out.sampling.logprobs = -1;
  out.max_tokens = request.max_tokens;
  out.stop = request.stop;
  out.ignore_eos = request.ignore_eos;
  if (request.grammar != nullptr) out.grammar = grammar_spec(*request.grammar);
  return out;
}

FinishReason recorded_finish(FinishReason finish) {
  return finish == FinishReason::kError ? FinishReason::kNone : finish;
}

Record make_record(const RecordedEngine& engine, const Request& request,
                   const std::string& prompt_text, const Generation& generation) {
  Record out = make_record(engine, request);
  if (is_valid_utf8(prompt_text)) out.prompt_text = prompt_text;
  out.tokens = generation.tokens;
  out.text = generation.text;
  out.finish = recorded_finish(generation.finish);
  out.time = std::time(nullptr);
  return out;
}

std::string to_line(const Record& record) {
  const RecordedEngine& engine = record.engine;
  const SamplingParams& sampling = record.sampling;
  Json out;
  out[kVersionKey] = kRecordVersion;
  out["model"] = engine.model;
  out["fingerprint"] = engine.fingerprint;
  out["weight_type"] = engine.weight_type ? Json(dtype_info(*engine.weight_type).name) : Json();
  out["cache_type"] = kernels::kv_type_name(engine.cache_type);
  out["isa"] = kernels::isa_name(engine.isa);
  out["device"] = engine.device;
  if (engine.device_layers > 0) out["device_layers"] = engine.device_layers;
  out["context"] = engine.context;
  out["threads"] = engine.threads;
  out["speculate"] = engine.speculate;
  out["verify"] = verify_rule_name(engine.rule);
  out["prompt_ids"] = record.prompt;
  out["prompt"] = record.prompt_text ? Json(*record.prompt_text) : Json();
  out["seed"] = sampling.seed;
  out["choice"] = sampling.choice;
  out["temperature"] = sampling.temperature;
  out["top_k"] = sampling.top_k;
  out["top_p"] = sampling.top_p;
  out["min_p"] = sampling.min_p;
  out["repetition_penalty"] = sampling.repetition_penalty;
  out["frequency_penalty"] = sampling.frequency_penalty;
  out["presence_penalty"] = sampling.presence_penalty;
  out["penalty_window"] = sampling.penalty_window;
  out["logit_bias"] = bias_json(sampling);
  out["max_tokens"] = record.max_tokens;
  out["stop"] = record.stop;
  out["ignore_eos"] = record.ignore_eos;
  out["grammar"] = record.grammar ? grammar_json(*record.grammar) : Json();
  out["token_ids"] = record.tokens;
  out["text"] = record.text ? Json(*record.text) : Json();
  out["finish_reason"] = finish_reason_name(record.finish);
  out["time"] = record.time;
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Expected<Record> parse_record(std::string_view bytes, const std::string& where) {
  AERIE_ASSIGN_OR_RETURN(const Json json, parse_json(bytes, where));
  AERIE_ASSIGN_OR_RETURN(const JsonObject line, JsonObject::view(json, where));
  if (!line.has(kVersionKey)) {
    return invalid(line, kVersionKey, "is not there: this is no record of `aerie run --record`");
  }
  AERIE_ASSIGN_OR_RETURN(const int64_t version, line.integer(kVersionKey));
  if (version < kOldestVersion || version > kRecordVersion) {
    return line.error(StatusCode::kUnsupported, kVersionKey,
                      "is {}: this program reads records of version {} to {}", version,
                      kOldestVersion, kRecordVersion);
  }
  Record out;
  AERIE_RETURN_IF_ERROR(read_engine(line, out.engine));
  AERIE_RETURN_IF_ERROR(read_request(line, out));
  AERIE_RETURN_IF_ERROR(read_reply(line, version == kOldestVersion || line.has("text"), out));
  if (version > kOldestVersion) {
    AERIE_ASSIGN_OR_RETURN(out.time, line.integer_in("time", 0, kMostSeconds));
  }
  return out;
}

}  // namespace aerie
