#include "server/openai/fields/generation_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "server/openai/fields/speculation_field.h"
#include "server/openai/fields/tenant_fields.h"

namespace aerie::server {
namespace {

// Of all together: each byte takes memory for as long as the request runs.
constexpr size_t kMostStopBytes = size_t{64} << 10;

void read_stop(FieldReader& request, std::vector<std::string>& out) {
  const Json* stop = request.find("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    out.push_back(stop->get<std::string>());
  } else if (stop->is_array()) {
    for (const Json& one : *stop) {
      if (!one.is_string()) return request.refuse("stop", "must be a string or a list of strings");
      out.push_back(one.get<std::string>());
    }
  } else {
    return request.refuse("stop", "must be a string or a list of strings");
  }
  size_t bytes = 0;
  for (const std::string& text : out) {
    if (text.empty()) return request.refuse("stop", "must not be empty");
    bytes += text.size();
  }
  if (bytes > kMostStopBytes) {
    request.refuse("stop", "must have at most {} bytes, all together", kMostStopBytes);
  }
}

void read_seed(FieldReader& request, SamplingParams& out) {
  const Json* seed = request.find("seed");
  if (seed == nullptr) {
    std::random_device device;
    out.seed = (uint64_t{device()} << 32) | device();
  } else if (seed->is_number_unsigned()) {
    out.seed = seed->get<uint64_t>();
  } else if (seed->is_number_integer()) {
    out.seed = static_cast<uint64_t>(seed->get<int64_t>());
  } else {
    request.refuse("seed", "must be an integer of 64 bits");
  }
}

void read_logit_bias(FieldReader& request, const ApiState& state, SamplingParams& out) {
  const Json* biases = request.object("logit_bias");
  if (biases == nullptr) return;
  const int vocab = state.service.tokenizer().vocab_size();
  for (const auto& [key, value] : biases->items()) {
    int32_t id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || id < 0 ||
        id >= vocab) {
      return request.refuse("logit_bias", "names must be token ids from 0 to {}", vocab - 1);
    }
    const double bias = value.is_number() ? value.get<double>() : std::nan("");
    if (!(bias >= -100 && bias <= 100)) {
      return request.refuse("logit_bias", "must be numbers between -100 and 100");
    }
    out.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

void read_sampling(FieldReader& request, const ApiState& state, SamplingParams& out) {
  constexpr int kMost = std::numeric_limits<int>::max();
  out.temperature = 1.0;
  out.penalty_window = -1;  // OpenAI's count "the text so far"
  state.options.sampling.apply_to(out);
  out.temperature = request.number("temperature", out.temperature, 0.0, 2.0);
  out.top_p = request.number("top_p", out.top_p, std::numeric_limits<double>::min(), 1.0);
  out.top_k = std::max(0, request.integer("top_k", out.top_k, -1, kMost));
  out.min_p = request.number("min_p", out.min_p, 0.0, 1.0);
  out.repetition_penalty =
      request.number("repetition_penalty", out.repetition_penalty, 0.01, 100.0);
  out.frequency_penalty = request.number("frequency_penalty", 0.0, -2.0, 2.0);
  out.presence_penalty = request.number("presence_penalty", 0.0, -2.0, 2.0);
  out.penalty_window = request.integer("repeat_last_n", out.penalty_window, -1, kMost);
  read_seed(request, out);
  read_logit_bias(request, state, out);
}

void read_prediction(FieldReader& request, const ApiState& state, GenerationSettings& out) {
  const Json* prediction = request.object("prediction");
  if (prediction == nullptr) return;
  FieldReader reader(*prediction, request.error(), "prediction");
  if (reader.string("type", "content") != "content") {
    return reader.refuse("type", "must be \"content\"");
  }
  std::string text;
  const Json* content = reader.find("content");
  if (content != nullptr && content->is_array()) {
    for (const Json& part : *content) {
      FieldReader inner(part, request.error(), reader.name_of("content"));
      text += inner.string("text", "");
    }
  } else {
    text = reader.string("content", "");
  }
  const Status encoded =
      state.service.tokenizer().encode(text, {false, false}, out.request.prediction);
  if (!encoded.ok()) request.refuse(error_of(encoded, "prediction"));
  out.has_prediction = true;
}

void read_stream(FieldReader& request, GenerationSettings& out) {
  out.stream = request.boolean("stream", false);
  const Json* options = request.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return request.refuse("stream_options", "is only for \"stream\": true");
  FieldReader reader(*options, request.error(), "stream_options");
  out.include_usage = reader.boolean("include_usage", false);
}

// What would be misleading to ignore.
void refuse_unsupported(FieldReader& request) {
  if (request.integer("min_tokens", 0, 0, std::numeric_limits<int>::max()) > 0) {
    request.refuse("min_tokens", "is not supported");
  }
  for (const char* key : {"use_beam_search", "audio", "functions", "function_call"}) {
    const Json* value = request.find(key);
    if (value != nullptr && *value != false) request.refuse(key, "is not supported");
  }
}

}  // namespace

std::string read_model(FieldReader& request, const ApiState& state) {
  const auto& names = state.model_names;
  std::string model = request.string("model", names.front());
  if (!request.failed() && std::ranges::find(names, model) == names.end()) {
    request.refuse(
        error_of(404, fmt::format("there is no such model; there is {}", fmt::join(names, ", ")),
                 "model", "model_not_found"));
  }
  return model;
}

GenerationSettings read_settings(FieldReader& request, const ApiState& state,
                                 const HttpRequest& from, const SettingsForm& form) {
  GenerationSettings out;
  out.model = read_model(request, state);
  // Only a name that is served: what else is said there is a text like others.
  if (from.account && !request.failed()) from.account->set_model(out.model);
  out.n = request.integer("n", 1, 1, state.options.max_choices);
  read_stream(request, out);
  read_sampling(request, state, out.request.sampling);
  out.request.max_tokens = form.default_max_tokens;
  bool found = false;
  for (const char* key : form.max_tokens) {
    const int tokens = request.integer(key, 0, 1, std::numeric_limits<int>::max());
    if (request.has(key) && !std::exchange(found, true)) out.request.max_tokens = tokens;
  }
  read_stop(request, out.request.stop);
  out.request.ignore_eos = request.boolean("ignore_eos", false);
  constexpr int kMostPriority = 1 << 30;
  out.request.priority = request.integer("priority", 0, -kMostPriority, kMostPriority);
  if (out.request.priority != 0 && !state.options.priorities) {
    request.refuse("priority", "is for servers that go by it: --scheduling-policy priority");
  }
  request.string("user", "");
  out.request.client = from.client;
  read_tenant(request, state.options, from, out.request);
  read_learn(request, from, out.request);
  read_trace(request, state.options, out.request);
  out.return_token_ids = request.boolean("return_token_ids", false);
  read_speculation(request, state.service.speculations(), out.request);
  read_prediction(request, state, out);
  refuse_unsupported(request);
  if (state.options.max_seconds > 0) {
    out.request.deadline = std::chrono::steady_clock::now() +
                           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                               std::chrono::duration<double>(state.options.max_seconds));
  }
  return out;
}

ReplyTask one_reply(GenerationSettings settings, std::unique_ptr<ReplyFormat> format) {
  ReplyTask task;
  task.grammar = std::move(settings.grammar);
  task.stream = settings.stream;
  task.keep_text = !task.stream;
  task.requests.push_back(std::move(settings.request));
  task.format = std::move(format);
  return task;
}

bool read_prompt_logprobs(FieldReader& request, GenerationSettings& settings) {
  if (!request.has("prompt_logprobs")) return false;
  int& count = settings.request.sampling.prompt_logprobs;
  count = std::max(count, request.integer("prompt_logprobs", 0, 0, 20));
  if (settings.stream) request.refuse("prompt_logprobs", "cannot be streamed");
  return true;
}

void check_prompt_logprobs(FieldReader& request, const GenerationSettings& settings,
                           size_t tokens) {
  constexpr size_t kMost = 400'000;
  const int count = settings.request.sampling.prompt_logprobs;
  if (count < 0 || tokens * static_cast<size_t>(count + 1) <= kMost) return;
  request.refuse("prompt_logprobs", "of {} tokens are too many for one answer: ask for fewer",
                 tokens);
}

}  // namespace aerie::server
