#include "server/openai/openai_completions.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/http/http_target.h"
#include "server/openai/fields/chat_prompt.h"
#include "server/openai/fields/generation_settings.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/openai_reply.h"
#include "server/openai/prompt_input.h"

namespace aerie::server {
namespace {

constexpr std::string_view kObject = "text_completion";
constexpr int kDefaultMaxTokens = 16;

struct CompletionWords : ReplyWords {
  bool logprobs = false;
  bool show_logprobs = false;  // false: they are for best_of alone
  bool prompt_logprobs = false;
  int n = 1;
  int best_of = 1;
  std::vector<std::string> echoes;  // by prompt; empty: none
};

// What OpenAI's best_of goes by: a sum would favour short replies.
double mean_logprob(const Choice& choice) {
  double sum = 0;
  int count = 0;
  for (const EmittedToken& token : choice.tokens) {
    if (token.logprobs.empty()) continue;
    sum += finite_logprob(token.logprobs.front().logprob);
    ++count;
  }
  return count == 0 ? 0.0 : sum / count;
}

class CompletionFormat final : public ReplyFormat {
 public:
  explicit CompletionFormat(CompletionWords words) : words_(std::move(words)) {}

  std::string opening(const std::vector<Choice>& choices) override {
    for (const Choice& choice : choices) offsets_.push_back(echo_length(choice));
    std::string out;
    if (words_.echoes.empty() && !words_.return_token_ids) return out;
    for (const Choice& choice : choices) {
      Json event = chunk(choice, echo_of(choice));
      if (words_.return_token_ids) {
        event["choices"][0]["prompt_token_ids"] = prompt_of(choice);
        event["choices"][0]["token_ids"] = Json::array();
      }
      out += event_text(event);
    }
    return out;
  }

  std::string delta(const Choice& choice, const ReplyDelta& delta) override {
    const bool has_tokens = !delta.tokens.empty();
    const bool about_tokens = words_.show_logprobs || words_.return_token_ids || words_.trace;
    if (delta.text.empty() && !(has_tokens && about_tokens)) return "";
    Json event = chunk(choice, delta.text);
    Json& one = event["choices"][0];
    if (words_.show_logprobs && has_tokens) {
      one["logprobs"] = completion_logprobs(*words_.tokenizer, delta.tokens,
                                            offsets_[static_cast<size_t>(choice.index)]);
    }
    if (words_.return_token_ids) one["token_ids"] = ids_of(delta.tokens);
    if (words_.trace && has_tokens) event["trace"] = trace_of(words_, delta);
    return event_text(event);
  }

  std::string closing(const Choice& choice, const ReplyDelta& last) override {
    std::string out = delta(choice, last);
    Json event = chunk(choice, "");
    add_finish(choice, finish_reason_name(choice.end.finish), event["choices"][0]);
    if (!words_.include_usage) event["aerie"] = figures_of({choice});
    return out + event_text(event);
  }

  std::string ending(const std::vector<Choice>& choices) override {
    return stream_ending(words_, kObject, choices);
  }

  std::string failure(const ApiError& error) override { return stream_failure(error); }

  std::string whole(const std::vector<Choice>& choices) override {
    std::map<int, std::vector<const Choice*>> by_prompt;
    for (const Choice& choice : choices) by_prompt[choice.prompt].push_back(&choice);
    Json list = Json::array();
    for (auto& [prompt, replies] : by_prompt) {
      if (words_.best_of > words_.n) {
        std::ranges::stable_sort(replies, [](const Choice* a, const Choice* b) {
          return mean_logprob(*a) > mean_logprob(*b);
        });
        replies.resize(static_cast<size_t>(words_.n));
      }
      for (const Choice* reply : replies) list.push_back(whole_choice(*reply, list.size()));
    }
    Json out = envelope(words_, kObject, std::move(list));
    out["usage"] = usage_of(words_, choices);
    out["aerie"] = figures_of(choices);
    return json_text(out);
  }

 private:
  const std::vector<int32_t>& prompt_of(const Choice& choice) const {
    return words_.prompts[static_cast<size_t>(choice.prompt)];
  }
  std::string echo_of(const Choice& choice) const {
    return words_.echoes.empty() ? "" : words_.echoes[static_cast<size_t>(choice.prompt)];
  }
  size_t echo_length(const Choice& choice) const { return character_count(echo_of(choice)); }

  Json chunk(const Choice& choice, std::string_view text) const {
    Json one = {
        {"index", choice.index}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    Json out = envelope(words_, kObject, Json::array({std::move(one)}));
    if (words_.include_usage) out["usage"] = nullptr;
    return out;
  }

  Json whole_choice(const Choice& choice, size_t index) const {
    Json out = {{"index", index}, {"text", echo_of(choice) + choice.text}};
    out["logprobs"] = logprobs_of(choice);
    if (words_.prompt_logprobs) {
      out["prompt_logprobs"] = prompt_logprobs_json(*words_.tokenizer, choice.prompt_logprobs);
    }
    add_finish(choice, finish_reason_name(choice.end.finish), out);
    if (words_.return_token_ids) {
      out["prompt_token_ids"] = prompt_of(choice);
      out["token_ids"] = ids_of(choice.tokens);
    }
    return out;
  }

  // With an echo those of the prompt come first.
  Json logprobs_of(const Choice& choice) const {
    if (!words_.show_logprobs) return {};
    size_t offset = 0;
    if (words_.echoes.empty()) {
      return completion_logprobs(*words_.tokenizer, choice.tokens, offset);
    }
    std::vector<EmittedToken> tokens = as_emitted(prompt_of(choice), choice.prompt_logprobs);
    tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
    return completion_logprobs(*words_.tokenizer, tokens, offset);
  }

  const CompletionWords words_;
  std::vector<size_t> offsets_;  // of a stream's choices: where the next token begins
};

void read_logprobs(FieldReader& request, GenerationSettings& settings, CompletionWords& words) {
  const Json* logprobs = request.find("logprobs");
  // Some clients write false for none.
  if (logprobs != nullptr && *logprobs != false) {
    settings.request.sampling.logprobs = request.integer("logprobs", 0, 0, 20);
    words.logprobs = words.show_logprobs = true;
  }
  if (words.best_of > 1 && !words.logprobs) {
    settings.request.sampling.logprobs = 0;
    words.logprobs = true;
  }
}

void read_form(FieldReader& request, ApiState& state, GenerationSettings& settings,
               CompletionWords& words) {
  words.n = settings.n;
  words.best_of = request.integer("best_of", settings.n, 1, state.options.max_choices);
  if (words.best_of < words.n) request.refuse("best_of", "must not be less than n");
  if (words.best_of > words.n && settings.stream) {
    request.refuse("best_of", "greater than n cannot be streamed");
  }
  read_logprobs(request, settings, words);
  if (!request.string("suffix", "").empty()) request.refuse("suffix", "is not supported");
  if (request.boolean("echo", false) && words.show_logprobs) {
    settings.request.sampling.prompt_logprobs = settings.request.sampling.logprobs;
    if (settings.stream) request.refuse("echo", "with logprobs cannot be streamed");
  }
  words.prompt_logprobs = read_prompt_logprobs(request, settings);
  settings.grammar = read_grammar(request);
}

}  // namespace

ReplyTask read_completion(FieldReader& request, ApiState& state, const HttpRequest& from) {
  ReplyTask task;
  SettingsForm form;
  form.max_tokens = {"max_tokens", "max_completion_tokens"};
  form.default_max_tokens = kDefaultMaxTokens;
  GenerationSettings settings = read_settings(request, state, from, form);
  CompletionWords words;
  if (request.failed()) return task;
  read_form(request, state, settings, words);
  if (request.failed()) return task;
  Prompts prompts = read_prompts(request, state, "prompt", state.options.max_choices);
  const bool echo = request.boolean("echo", false);
  const size_t replies = prompts.ids.size() * static_cast<size_t>(words.best_of);
  if (replies > static_cast<size_t>(state.options.max_choices)) {
    request.refuse("n", "{} replies to one request are more than {}", replies,
                   state.options.max_choices);
  }
  for (const auto& ids : prompts.ids) check_prompt_logprobs(request, settings, ids.size());
  if (request.failed()) return task;

  words.tokenizer = &state.service.tokenizer();
  words.id = "cmpl-" + random_hex(12);
  words.model = settings.model;
  words.created = std::time(nullptr);
  words.include_usage = settings.include_usage;
  words.return_token_ids = settings.return_token_ids;
  words.trace = settings.request.trace;
  words.has_prediction = settings.has_prediction;
  if (echo) {
    for (size_t i = 0; i < prompts.ids.size(); ++i) {
      std::string& text = prompts.texts[i];
      words.echoes.push_back(text.empty() ? text_of(*words.tokenizer, prompts.ids[i]) : text);
    }
  }
  for (size_t prompt = 0; prompt < prompts.ids.size(); ++prompt) {
    for (int i = 0; i < words.best_of; ++i) {
      task.requests.push_back(settings.request);
      task.requests.back().prompt = prompts.ids[prompt];
      task.requests.back().sampling.choice = static_cast<uint32_t>(i);
      task.prompts.push_back(static_cast<int>(prompt));
    }
  }
  words.prompts = std::move(prompts.ids);
  task.grammar = std::move(settings.grammar);
  task.stream = settings.stream;
  task.keep_text = !settings.stream;
  task.format = std::make_unique<CompletionFormat>(std::move(words));
  return task;
}

}  // namespace aerie::server
