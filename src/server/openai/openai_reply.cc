#include "server/openai/openai_reply.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/counts.h"
#include "decode/sequence.h"
#include "server/openai/fields/json_text.h"
#include "tokenizer/detokenizer.h"

namespace aerie::server {
namespace {

std::string_view bytes_of(const Tokenizer& tokenizer, int32_t id) {
  return id >= 0 && id < tokenizer.vocab_size() ? tokenizer.piece(id) : std::string_view();
}

Json one_logprob(const Tokenizer& tokenizer, const TokenLogprob& logprob) {
  Json bytes = Json::array();
  for (const char c : bytes_of(tokenizer, logprob.token)) {
    bytes.push_back(static_cast<unsigned char>(c));
  }
  return {{"token", token_text(tokenizer, logprob.token)},
          {"logprob", finite_logprob(logprob.logprob)},
          {"bytes", std::move(bytes)}};
}

double milliseconds(double seconds) {
  return std::round(seconds * 1e6) / 1e3;
}

}  // namespace

double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  return valid_text(bytes_of(tokenizer, id));
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  Detokenizer detokenizer(tokenizer, true, DetokenizeFrom::kBeginning);
  for (const int32_t id : ids) detokenizer.push(id, text);
  detokenizer.finish(text);
  return text;
}

Json envelope(const ReplyWords& words, std::string_view object, Json choices) {
  return {{"id", words.id},
          {"object", object},
          {"created", words.created},
          {"model", words.model},
          {"choices", std::move(choices)}};
}

Json usage_of(const ReplyWords& words, const std::vector<Choice>& choices, int reasoning_tokens) {
  int64_t prompt = 0;
  int64_t completion = 0;
  int64_t cached = 0;
  int64_t accepted = 0;
  int64_t drafted = 0;
  std::set<int> counted;
  for (const Choice& choice : choices) {
    completion += choice.end.generated_tokens;
    accepted += choice.end.stats.accepted;
    drafted += choice.end.stats.drafted;
    if (!counted.insert(choice.prompt).second) continue;
    prompt += choice.end.prompt_tokens;
    cached += choice.end.cached_tokens;
  }
  Json usage = {{"prompt_tokens", prompt},
                {"completion_tokens", completion},
                {"total_tokens", prompt + completion},
                {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  Json details = Json::object();
  if (reasoning_tokens > 0) details["reasoning_tokens"] = reasoning_tokens;
  if (words.has_prediction) {
    details["accepted_prediction_tokens"] = accepted;
    details["rejected_prediction_tokens"] = drafted - accepted;
  }
  if (!details.empty()) usage["completion_tokens_details"] = std::move(details);
  return usage;
}

void add_finish(const Choice& choice, std::string_view reason, Json& out) {
  out["finish_reason"] = reason;
  if (choice.end.finish != FinishReason::kError) return;
  out["error"] = error_json(constraint_error(choice.end.status));
}

Json figures_of(const std::vector<Choice>& choices) {
  SequenceStats all;
  double queue = 0;
  double prompt = 0;
  double generation = 0;
  int64_t cached = 0;
  std::vector<int64_t> at;
  for (const Choice& choice : choices) {
    const ReplyEnd& end = choice.end;
    all.rounds += end.stats.rounds;
    all.round_tokens += end.stats.round_tokens;
    all.drafted += end.stats.drafted;
    all.accepted += end.stats.accepted;
    add_counts(end.stats.accepted_at, at);
    queue = std::max(queue, end.queue_seconds);
    prompt = std::max(prompt, end.prompt_seconds);
    generation = std::max(generation, end.generation_seconds);
    cached += end.cached_tokens;
  }
  while (!at.empty() && at.back() == 0) at.pop_back();
  return {{"rounds", all.rounds},
          {"drafted", all.drafted},
          {"accepted", all.accepted},
          {"accepted_length", all.mean_accepted_length()},
          {"accepted_at", at},
          {"queue_ms", milliseconds(queue)},
          {"prompt_ms", milliseconds(prompt)},
          {"generation_ms", milliseconds(generation)},
          {"cached_tokens", cached}};
}

Json trace_of(const ReplyWords& words, const ReplyDelta& delta) {
  const Tokenizer& tokenizer = *words.tokenizer;
  Json tokens = Json::array();
  for (const EmittedToken& token : delta.tokens) {
    const bool is_text = token.id < tokenizer.vocab_size() && !tokenizer.is_control(token.id);
    tokens.push_back({{"id", token.id},
                      {"text", is_text ? token_text(tokenizer, token.id) : ""},
                      {"origin", token_origin_name(token.origin)}});
  }
  Json tree = Json::array();
  for (const TracedNode& node : delta.tree) {
    const double probability = std::isfinite(node.probability) ? node.probability : 0.0;
    tree.push_back({{"token", node.token},
                    {"text", token_text(tokenizer, node.token)},
                    {"parent", node.parent},
                    {"probability", std::clamp(probability, 0.0, 1.0)},
                    {"accepted", node.accepted}});
  }
  return {{"tokens", std::move(tokens)}, {"tree", std::move(tree)}};
}

Json ids_of(const std::vector<EmittedToken>& tokens) {
  Json ids = Json::array();
  for (const EmittedToken& token : tokens) ids.push_back(token.id);
  return ids;
}

Json chat_logprobs(const Tokenizer& tokenizer, const std::vector<EmittedToken>& tokens) {
  Json content = Json::array();
  for (const EmittedToken& token : tokens) {
    if (token.logprobs.empty()) continue;
    Json one = one_logprob(tokenizer, token.logprobs.front());
    Json top = Json::array();
    for (size_t i = 1; i < token.logprobs.size(); ++i) {
      top.push_back(one_logprob(tokenizer, token.logprobs[i]));
    }
    one["top_logprobs"] = std::move(top);
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const Tokenizer& tokenizer, const std::vector<EmittedToken>& tokens,
                         size_t& offset) {
  Json texts = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const EmittedToken& token : tokens) {
    const std::string text = token_text(tokenizer, token.id);
    texts.push_back(text);
    offsets.push_back(offset);
    offset += character_count(text);
    if (token.logprobs.empty()) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(finite_logprob(token.logprobs.front().logprob));
    Json top = Json::object();
    // The likeliest first; the token itself is among them, as with vLLM.
    for (size_t i = 1; i <= token.logprobs.size(); ++i) {
      const TokenLogprob& one = token.logprobs[i % token.logprobs.size()];
      const std::string name = token_text(tokenizer, one.token);
      if (!top.contains(name)) top[name] = finite_logprob(one.logprob);
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json prompt_logprobs_json(const Tokenizer& tokenizer,
                          const std::vector<std::vector<TokenLogprob>>& logprobs) {
  Json out = Json::array();
  for (const auto& of_token : logprobs) {
    Json one;
    for (const TokenLogprob& logprob : of_token) {
      one[std::to_string(logprob.token)] = {
          {"logprob", finite_logprob(logprob.logprob)},
          {"decoded_token", token_text(tokenizer, logprob.token)}};
    }
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<EmittedToken> as_emitted(const std::vector<int32_t>& prompt,
                                     const std::vector<std::vector<TokenLogprob>>& logprobs) {
  std::vector<EmittedToken> out;
  for (size_t i = 0; i < prompt.size(); ++i) {
    out.push_back({prompt[i], TokenOrigin::kTarget,
                   i < logprobs.size() ? logprobs[i] : std::vector<TokenLogprob>()});
  }
  return out;
}

std::string stream_ending(const ReplyWords& words, std::string_view object,
                          const std::vector<Choice>& choices, int reasoning_tokens) {
  std::string out;
  for (const Choice& choice : choices) {
    if (choice.end.finish != FinishReason::kError) continue;
    return stream_failure(constraint_error(choice.end.status));
  }
  if (words.include_usage) {
    Json last = envelope(words, object, Json::array());
    last["usage"] = usage_of(words, choices, reasoning_tokens);
    last["aerie"] = figures_of(choices);
    out = event_text(last);
  }
  return out + "data: [DONE]\n\n";
}

std::string stream_failure(const ApiError& error) {
  return "data: " + error_body(error) + "\n\ndata: [DONE]\n\n";
}

}  // namespace aerie::server
