// The API without a transport: what is said to an answer.

#include "server/openai/api.h"

#include <gtest/gtest.h>

#include "tests/server/client.h"
#include "tests/server/running_server.h"

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

// Keeps the work that is not for the service's thread.
class BusyAnswer final : public Answer {
 public:
  void send(int status, std::string_view, std::string body, Headers) override {
    status_ = status;
    body_ = std::move(body);
  }
  void begin(int, std::string_view, Headers) override {}
  void write(std::string) override {}
  void finish() override {}
  void on_gone(std::function<void()> callback) override { gone_ = std::move(callback); }
  void run(std::function<void()> work) override {
    work_ = std::move(work);
    asked_ = true;
  }

  void go() { gone_(); }
  bool asked() const { return asked_; }
  void work() { std::exchange(work_, nullptr)(); }
  int status() const { return status_; }
  const std::string& body() const { return body_; }

 private:
  std::function<void()> gone_, work_;
  std::atomic<bool> asked_ = false;
  std::atomic<int> status_ = 0;
  std::string body_;
};

// While an answer in one piece is made, other replies go on.
TEST(Api, TheServicesThreadMakesNoWholeAnswers) {
  test::FakeService service(test::says("a text"));
  ModelHost host(service, {});
  Api api(host);
  const auto ask = [&](std::string body) {
    const auto answer = std::make_shared<BusyAnswer>();
    HttpRequest request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = std::move(body);
    api.handle(request, answer);
    return answer;
  };
  const auto first = ask(R"({"prompt": "x", "n": 2})");
  const auto second = ask(R"({"prompt": "y"})");
  ASSERT_TRUE(test::eventually([&] { return first->asked() && second->asked(); }));
  ASSERT_TRUE(test::eventually([&] { return service.running() == 0; }));
  EXPECT_EQ(first->status(), 0);
  EXPECT_EQ(second->status(), 0);
  first->work();
  EXPECT_EQ(first->status(), 200);
  EXPECT_NE(first->body().find("\"a text\""), std::string::npos);
  // For nobody nothing is made.
  second->go();
  second->work();
  EXPECT_EQ(second->status(), 0);
  // The service's thread lets go of a request a moment after it has left.
  EXPECT_TRUE(test::eventually([&] { return host.server().open_requests == 0; }));
}

}  // namespace aerie::server::api_test
