// The API without a transport: what is said to an answer.

#include "server/openai/api.h"

#include <gtest/gtest.h>

#include "tests/server/fake_service.h"

namespace aerie::server::api_test {

// Its client has gone before anything is said.
class GoneAnswer final : public Answer {
 public:
  void send(int, std::string_view, std::string, Headers) override { said_ = true; }
  void begin(int, std::string_view, Headers) override { said_ = true; }
  void write(std::string) override { said_ = true; }
  void finish() override { said_ = true; }
  void on_gone(std::function<void()> callback) override { callback(); }

  bool said() const { return said_; }

 private:
  std::atomic<bool> said_ = false;
};

TEST(Api, SubmitsNothingForAClientThatHasGone) {
  test::FakeService service;
  ModelHost host(service, {});
  Api api(host);
  const auto answer = std::make_shared<GoneAnswer>();
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/completions";
  // It would say nothing until it is cancelled.
  request.body = R"({"prompt": "HANG", "max_tokens": 100, "stream": true})";
  api.handle(request, answer);
  EXPECT_EQ(host.server().open_requests, 0);
  EXPECT_FALSE(answer->said());
}

}  // namespace aerie::server::api_test
