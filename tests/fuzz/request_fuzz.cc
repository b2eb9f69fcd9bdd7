// Whatever a request's body holds, it is answered: never an exception, a crash, or an answer that
// is no JSON.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "format/json.h"
#include "server/openai/api.h"
#include "tests/fuzz/fuzz_service.h"
#include "tests/fuzz/fuzz_target.h"

namespace aerie {
namespace {

// Takes what is sent, and checks it.
class CheckedAnswer final : public server::Answer {
 public:
  ~CheckedAnswer() override { require(complete_); }
  void send(int status, std::string_view, std::string body, server::Headers) override {
    require(!complete_ && !begun_ && status >= 200 && status < 600);
    require(parse_json(body, "answer").ok());
    complete_ = true;
  }
  void begin(int status, std::string_view type, server::Headers) override {
    require(!complete_ && !begun_ && status == 200);
    of_lines_ = type == "application/x-ndjson";
    begun_ = true;
  }
  void write(std::string piece) override {
    require(begun_ && !complete_);
    text_ += piece;
  }
  void finish() override {
    require(begun_ && !complete_);
    complete_ = true;
    if (of_lines_) return check_lines();
    size_t events = 0;
    for (size_t at = text_.find("data: "); at != std::string::npos; at = text_.find("data: ", at)) {
      const size_t end = text_.find("\n\n", at);
      require(end != std::string::npos);
      const std::string data = text_.substr(at + 6, end - at - 6);
      require(data == "[DONE]" || parse_json(data, "event").ok());
      at = end;
      ++events;
    }
    require(events > 0);
  }
  void on_gone(std::function<void()>) override {}

 private:
  void check_lines() const {
    require(text_.ends_with('\n'));
    for (size_t at = 0; at < text_.size();) {
      const size_t end = text_.find('\n', at);
      require(parse_json(text_.substr(at, end - at), "line").ok());
      at = end + 1;
    }
  }

  bool begun_ = false;
  bool of_lines_ = false;
  bool complete_ = false;
  std::string text_;
};

constexpr std::string_view kPaths[] = {"/v1/chat/completions",
                                       "/v1/completions",
                                       "/v1/responses",
                                       "/tokenize",
                                       "/detokenize",
                                       "/v1/messages",
                                       "/api/chat",
                                       "/api/generate",
                                       "/completion",
                                       "/v1/messages/count_tokens",
                                       "/api/show",
                                       "/v1/embeddings"};

}  // namespace
}  // namespace aerie

// The first byte picks the route.
AERIE_FUZZ_TARGET(request) {
  if (size == 0) return 0;
  aerie::server::HttpRequest request;
  request.method = "POST";
  request.path = aerie::kPaths[data[0] % std::size(aerie::kPaths)];
  request.body = std::string(reinterpret_cast<const char*>(data) + 1, size - 1);
  request.client = "fuzz";
  static aerie::test::FuzzService service;
  static aerie::server::ModelHost host(service, [] {
    aerie::server::ApiOptions options;
    options.allow_trace = true;
    return options;
  }());
  static aerie::server::Api api(host);
  api.handle(request, std::make_shared<aerie::CheckedAnswer>());
  service.run();
  return 0;
}
