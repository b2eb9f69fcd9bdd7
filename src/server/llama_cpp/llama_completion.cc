#include "server/llama_cpp/llama_completion.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/fields/chat_prompt.h"
#include "server/openai/fields/generation_settings.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/openai_reply.h"
#include "server/openai/prompt_input.h"

namespace aerie::server {
namespace {

struct LlamaWords {
  const Tokenizer* tokenizer = nullptr;
  std::string model;
  std::string prompt;
  bool return_tokens = false;
  bool logprobs = false;
};

double milliseconds(double seconds) {
  return seconds * 1e3;
}

double rate(double count, double seconds) {
  return seconds > 0.0 ? count / seconds : 0.0;
}

class LlamaFormat final : public ReplyFormat {
 public:
  explicit LlamaFormat(LlamaWords words) : words_(std::move(words)) {}

  std::string opening(const std::vector<Choice>&) override { return ""; }

  std::string delta(const Choice&, const ReplyDelta& delta) override {
    if (delta.text.empty() && delta.tokens.empty()) return "";
    predicted_ += static_cast<int>(delta.tokens.size());
    Json out = said(delta.text, delta.tokens);
    out["stop"] = false;
    out["tokens_predicted"] = predicted_;
    return event_text(out);
  }

  std::string closing(const Choice& choice, const ReplyDelta& last) override {
    return event_text(finished(choice, said(last.text, last.tokens)));
  }

  std::string ending(const std::vector<Choice>&) override { return ""; }

  std::string failure(const ApiError& error) override {
    return "data: " + error_body(error) + "\n\n";
  }

  std::string whole(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    return json_text(finished(choice, said(choice.text, choice.tokens)));
  }

 private:
  Json said(const std::string& text, const std::vector<EmittedToken>& tokens) const {
    Json out = {{"index", 0}, {"content", text}};
    out["tokens"] = words_.return_tokens ? ids_of(tokens) : Json::array();
    if (words_.logprobs) {
      out["completion_probabilities"] = chat_logprobs(*words_.tokenizer, tokens)["content"];
    }
    return out;
  }

  Json finished(const Choice& choice, Json out) const {
    const ReplyEnd& end = choice.end;
    const bool by_word = !end.stop_string.empty();
    out["stop"] = true;
    out["model"] = words_.model;
    out["prompt"] = words_.prompt;
    out["tokens_predicted"] = end.generated_tokens;
    out["tokens_evaluated"] = end.prompt_tokens;
    out["tokens_cached"] = end.cached_tokens;
    out["truncated"] = false;
    out["stop_type"] = end.finish == FinishReason::kLength ? "limit" : by_word ? "word" : "eos";
    out["stopping_word"] = end.stop_string;
    if (end.finish == FinishReason::kError) out["error"] = error_json(constraint_error(end.status));
    const double read = end.prompt_tokens - end.cached_tokens;
    out["timings"] = {{"prompt_n", read},
                      {"prompt_ms", milliseconds(end.prompt_seconds)},
                      {"prompt_per_second", rate(read, end.prompt_seconds)},
                      {"predicted_n", end.generated_tokens},
                      {"predicted_ms", milliseconds(end.generation_seconds)},
                      {"predicted_per_second", rate(end.generated_tokens, end.generation_seconds)},
                      {"draft_n", end.stats.drafted},
                      {"draft_n_accepted", end.stats.accepted}};
    out["aerie"] = figures_of({choice});
    return out;
  }

  const LlamaWords words_;
  int predicted_ = 0;  // of a stream
};

// The body as completions have it.
Json settings_of(FieldReader& request) {
  Json out = request.json();
  const auto rename = [&](const char* theirs, const char* ours) {
    if (!out.contains(theirs)) return;
    out[ours] = std::move(out[theirs]);
    out.erase(theirs);
  };
  rename("n_predict", "max_tokens");
  rename("repeat_penalty", "repetition_penalty");
  rename("json_schema", "guided_json");
  // Both mean that the server is to choose.
  for (const char* key : {"max_tokens", "seed"}) {
    if (out.contains(key) && out[key] == -1) out.erase(key);
  }
  if (out.contains("grammar") && out["grammar"] == "") out.erase("grammar");
  if (out.contains("logit_bias") && out["logit_bias"].is_array()) {
    constexpr size_t kMostBiases = 10'000;
    if (out["logit_bias"].size() > kMostBiases) {
      request.refuse("logit_bias", "may be at most {} pairs", kMostBiases);
      return out;
    }
    Json biases = Json::object();
    for (const Json& pair : out["logit_bias"]) {
      const bool fits = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer();
      if (!fits) {
        request.refuse("logit_bias", "must be pairs of a token's id and a number");
        return out;
      }
      // "false" forbids a token.
      biases[pair[0].dump()] = pair[1] == false ? Json(-100) : pair[1];
    }
    out["logit_bias"] = std::move(biases);
  }
  return out;
}

void read_prompt(FieldReader& request, const ApiState& state, LlamaWords& words,
                 std::vector<int32_t>& ids) {
  const Json* prompt = request.find("prompt");
  const bool is_ids =
      prompt != nullptr && prompt->is_array() && !prompt->empty() && prompt->front().is_number();
  if (is_ids) {
    ids = read_ids(request, *prompt, state, "prompt");
    if (!request.failed()) words.prompt = text_of(state.service.tokenizer(), ids);
  } else if (prompt != nullptr && prompt->is_string()) {
    words.prompt = request.string("prompt", "");
    ids = encode_text(request, state, words.prompt, {true, true}, "prompt");
  } else {
    request.refuse("prompt", "must be a text or a list of token ids");
  }
  if (!request.failed() && ids.empty()) request.refuse("prompt", "must not be empty");
  check_length(request, state, ids.size(), "prompt");
}

}  // namespace

ReplyTask read_llama_completion(FieldReader& request, ApiState& state, const HttpRequest& from) {
  if (request.failed()) return {};
  const Json body = settings_of(request);
  FieldReader fields(body, request.error());
  GenerationSettings settings = read_settings(fields, state, from, {});
  settings.grammar = read_grammar(fields);
  LlamaWords words;
  const int probabilities = fields.integer("n_probs", 0, 0, 20);
  words.logprobs = probabilities > 0;
  if (words.logprobs) settings.request.sampling.logprobs = probabilities;
  words.return_tokens = fields.boolean("return_tokens", false);
  if (settings.n != 1) fields.refuse("n", "must be 1 here");
  read_prompt(fields, state, words, settings.request.prompt);
  if (request.failed()) return {};
  words.tokenizer = &state.service.tokenizer();
  words.model = settings.model;
  return one_reply(std::move(settings), std::make_unique<LlamaFormat>(std::move(words)));
}

Json llama_props(const ApiState& state) {
  const Tokenizer& tokenizer = state.service.tokenizer();
  const auto name = [&](int32_t id) {
    return id < 0 ? std::string() : valid_text(tokenizer.piece(id));
  };
  const auto& chat = state.service.chat_template();
  return {{"default_generation_settings", {{"n_ctx", state.service.context()}}},
          {"model_path", state.service.model_name()},
          {"chat_template", chat.ok() ? chat->source() : ""},
          {"bos_token", name(tokenizer.bos())},
          {"eos_token", name(tokenizer.eos())},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"build_info", std::string("aerie ") + AERIE_VERSION}};
}

}  // namespace aerie::server
