#include "server/models/api_state.h"

#include <algorithm>
#include <utility>

namespace aerie::server {
namespace {

size_t longest_piece_of(const Tokenizer& tokenizer) {
  size_t most = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    most = std::max(most, tokenizer.piece(id).size());
  }
  return most;
}

// Names that are not known were refused where the options were read.
chat::Dialect dialect_of(const Service& service, const ApiOptions& options) {
  chat::Dialect dialect;
  const auto& chat = service.chat_template();
  if (chat.ok()) dialect = chat::detect_dialect(chat->source());
  (void)chat::choose_calls(options.tool_call_parser, dialect);
  (void)chat::choose_reasoning(options.reasoning_parser, dialect);
  return dialect;
}

}  // namespace

ApiState::ApiState(Service& service_to_ask, ApiOptions api_options, std::vector<std::string> names,
                   ServerState& of_server, ModelRecord& record, Rollout::Log log)
    : service(service_to_ask),
      options(std::move(api_options)),
      model_names(std::move(names)),
      server(of_server),
      control_names(service.tokenizer()),
      dialect(dialect_of(service, options)),
      longest_piece(longest_piece_of(service.tokenizer())),
      grammars(std::make_shared<GrammarCache>()),
      metrics(record.metrics),
      holdback(record.holdback),
      rollout(service, std::move(log)) {}

int ApiState::max_prompt_tokens() const {
  const int most = service.context() - 1;
  return options.max_prompt_tokens > 0 ? std::min(most, options.max_prompt_tokens) : most;
}

}  // namespace aerie::server
