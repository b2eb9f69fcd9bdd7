#include "measure/load/made/server_tokens.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "format/json.h"
#include "format/text.h"

namespace aerie::measure {
namespace {

constexpr int64_t kBytesOfToken = 4;

// vLLM's and Aerie's keys, and llama.cpp's.
Json of_text(const std::string& text, bool with_front) {
  return {{"prompt", text},
          {"content", text},
          {"add_special_tokens", with_front},
          {"add_special", with_front}};
}

int64_t estimate(const std::string& text) {
  return (std::ssize(text) + kBytesOfToken - 1) / kBytesOfToken;
}

}  // namespace

ServerTokens::ServerTokens(HttpClient& client, const ServeTarget& target)
    : client_(&client), url_(target.root() + "/tokenize"), model_(target.model) {}

Expected<ServerTokens> ServerTokens::ask(HttpClient& client, const ServeTarget& target) {
  ServerTokens tokens(client, target);
  const std::string text = " one";
  AERIE_ASSIGN_OR_RETURN(const auto alone, tokens.post(of_text(text, false), tokens.counts_));
  if (!tokens.counts_) return tokens;
  AERIE_ASSIGN_OR_RETURN(auto whole, tokens.post(of_text(text, true), tokens.counts_));
  const auto behind = std::ssize(whole) - std::ssize(alone);
  if (behind > 0 && std::equal(alone.begin(), alone.end(), whole.begin() + behind)) {
    whole.resize(static_cast<size_t>(behind));
    tokens.front_ = std::move(whole);
  }
  return tokens;
}

Expected<std::vector<int32_t>> ServerTokens::post(Json body, bool& known) {
  if (!model_.empty()) body["model"] = model_;
  AERIE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      client_->post(url_, body.dump(-1, ' ', false, Json::error_handler_t::replace)));
  known = response.status == 200;
  if (response.status == 401 || response.status == 403) {
    return invalid_argument("{}: HTTP status {}: give the server's key with --api-key-file", url_,
                            response.status);
  }
  if (!known) return std::vector<int32_t>();
  AERIE_ASSIGN_OR_RETURN(const Json answer, parse_json(response.body, url_));
  std::vector<int32_t> ids;
  const bool has_list =
      answer.is_object() && answer.contains("tokens") && answer["tokens"].is_array();
  for (const Json& id : has_list ? answer["tokens"] : Json::array()) {
    if (!id.is_number_integer()) return invalid_data("{}: its tokens are no whole numbers", url_);
    ids.push_back(id.get<int32_t>());
  }
  if (!has_list) return invalid_data("{}: its answer has no tokens", url_);
  return ids;
}

Expected<std::vector<int32_t>> ServerTokens::ids(const std::string& text) {
  bool known = false;
  AERIE_ASSIGN_OR_RETURN(auto ids, post(of_text(text, false), known));
  if (known) return ids;
  return invalid_data("{}: it makes no tokens of '{}'", url_, printable(text, 40));
}

Expected<int64_t> ServerTokens::count(const std::string& text) {
  if (!counts_) return estimate(text);
  AERIE_ASSIGN_OR_RETURN(const auto own, ids(text));
  return std::ssize(own) + std::ssize(front_);
}

Expected<int64_t> ServerTokens::count_message(const std::string& text) {
  if (counts_ && counts_messages_) {
    const Json body = {{"messages", {{{"role", "user"}, {"content", text}}}}};
    AERIE_ASSIGN_OR_RETURN(const auto ids, post(body, counts_messages_));
    if (counts_messages_) return std::ssize(ids);
  }
  return count(text);
}

}  // namespace aerie::measure
