// Parts of answers that chat and completions have in common.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "format/json.h"
#include "server/openai/reply_task.h"
#include "tokenizer/tokenizer.h"

namespace aerie::server {

// What is said of a request beside its text.
struct ReplyWords {
  const Tokenizer* tokenizer = nullptr;
  std::string id;  // "chatcmpl-..."
  std::string model;
  std::time_t created = 0;
  bool include_usage = false;  // in a stream
  bool return_token_ids = false;
  bool trace = false;
  bool has_prediction = false;
  std::vector<std::vector<int32_t>> prompts;
};

// {"id", "object", "created", "model", "choices"}
Json envelope(const ReplyWords& words, std::string_view object, Json choices);

// `reasoning_tokens`: of the completion's, all replies together.
Json usage_of(const ReplyWords& words, const std::vector<Choice>& choices,
              int reasoning_tokens = 0);
// The keys "finish_reason" and, where the reply could not go on, "error" of a choice.
void add_finish(const Choice& choice, std::string_view reason, Json& out);
// The key "aerie": figures of speculation and time; of several choices the sums, or the longest.
Json figures_of(const std::vector<Choice>& choices);
Json trace_of(const ReplyWords& words, const ReplyDelta& delta);
Json ids_of(const std::vector<EmittedToken>& tokens);

// A token's text; bytes that are no UTF-8 become U+FFFD.
std::string token_text(const Tokenizer& tokenizer, int32_t id);

// The text of a prompt, control tokens by name.
std::string text_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids);

// The forms of chat and of completions. `offset`: of the first token, in characters; moves on.
Json chat_logprobs(const Tokenizer& tokenizer, const std::vector<EmittedToken>& tokens);
Json completion_logprobs(const Tokenizer& tokenizer, const std::vector<EmittedToken>& tokens,
                         size_t& offset);

// vLLM's form: null for the first token, then {"id": {"logprob", "decoded_token"}} for each.
Json prompt_logprobs_json(const Tokenizer& tokenizer,
                          const std::vector<std::vector<TokenLogprob>>& logprobs);
// `prompt` as tokens that were emitted, with their log-probabilities.
std::vector<EmittedToken> as_emitted(const std::vector<int32_t>& prompt,
                                     const std::vector<std::vector<TokenLogprob>>& logprobs);

// JSON knows no infinity.
double finite_logprob(float logprob);

// The last events of a stream: usage and figures if asked for, or the error with which a reply
// ended, and "[DONE]".
std::string stream_ending(const ReplyWords& words, std::string_view object,
                          const std::vector<Choice>& choices, int reasoning_tokens = 0);
// An error within a stream.
std::string stream_failure(const ApiError& error);

}  // namespace aerie::server
