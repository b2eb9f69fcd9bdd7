// An answer made of one or several replies of the service.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/access/request_account.h"
#include "server/http/exchange.h"
#include "server/models/api_state.h"
#include "server/openai/openai_errors.h"

namespace aerie::server {

// A reply so far.
struct Choice {
  int index = 0;   // in the answer
  int prompt = 0;  // the index of the prompt that it answers
  std::string text;
  std::vector<EmittedToken> tokens;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;  // ReplyDelta's, of a whole answer
  bool ended = false;
  ReplyEnd end;  // once ended
};

// How replies are said. Called by one thread at a time, the service's but for whole().
class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;

  // Of a stream.
  virtual std::string_view stream_type() const { return "text/event-stream; charset=utf-8"; }

  // Of a stream: what goes out before anything else, with new text and tokens (which `choice` has
  // already), when a choice has ended (`last`: what is new with that), when all have, and when it
  // has failed.
  virtual std::string opening(const std::vector<Choice>& choices) = 0;
  virtual std::string delta(const Choice& choice, const ReplyDelta& delta) = 0;
  virtual std::string closing(const Choice& choice, const ReplyDelta& last) = 0;
  virtual std::string ending(const std::vector<Choice>& choices) = 0;
  virtual std::string failure(const ApiError& error) = 0;

  // All of it, for an answer that is no stream: by a thread that holds up nobody's reply.
  virtual std::string whole(const std::vector<Choice>& choices) = 0;
};

struct ReplyTask {
  std::vector<Request> requests;        // one for each choice, without their grammar
  std::optional<NamedGrammar> grammar;  // of all of them
  std::vector<int> prompts;             // Choice::prompt of each; empty: all 0
  std::unique_ptr<ReplyFormat> format;
  std::shared_ptr<RequestAccount> account = {};  // may be null
  std::string traffic_class = {};                // Holdback::Group's
  bool stream = false;
  bool keep_text = true;  // Choice::text and tokens are wanted; else only figures
};

// Compiles the grammar, by the service's pool if that takes long; submits the requests, answers
// with what comes of them, and ends all of that if the client goes. Of several, one that fails ends
// all.
void run_task(std::shared_ptr<ApiState> state, ReplyTask task, std::shared_ptr<Answer> answer);

}  // namespace aerie::server
