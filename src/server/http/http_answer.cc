#include "server/http/http_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "server/http/http_target.h"

namespace aerie::server {
namespace {

class ConnectionAnswer final : public Answer {
 public:
  ConnectionAnswer(std::shared_ptr<ConnectionContext> context,
                   std::shared_ptr<Connection> connection, uint64_t number, std::string id)
      : context_(std::move(context)),
        connection_(std::move(connection)),
        number_(number),
        id_(std::move(id)) {}

  ~ConnectionAnswer() override {
    if (!complete_) post([](Connection& to, uint64_t number) { to.drop_answer(number); });
  }

  void send(int status, std::string_view content_type, std::string body, Headers headers) override {
    complete_ = true;
    post([status, head = answer_head(status, content_type, id_, headers), text = std::move(body)](
             Connection& to, uint64_t number) mutable {
      to.send(number, status, std::move(head), std::move(text));
    });
  }
  void begin(int status, std::string_view content_type, Headers headers) override {
    post([head = answer_head(status, content_type, id_, headers)](
             Connection& to, uint64_t number) mutable { to.begin(number, std::move(head)); });
  }
  void write(std::string piece) override {
    post([text = std::move(piece)](Connection& to, uint64_t number) mutable {
      to.write(number, std::move(text));
    });
  }
  void finish() override {
    complete_ = true;
    post([](Connection& to, uint64_t number) { to.finish(number); });
  }
  void on_gone(std::function<void()> callback) override {
    post([call = std::move(callback)](Connection& to, uint64_t number) mutable {
      to.set_gone(number, std::move(call));
    });
  }
  void run(std::function<void()> work) override {
    boost::asio::io_context& handlers = *context_->handlers;
    if (handlers.stopped()) return work();
    boost::asio::post(handlers, std::move(work));
  }

 private:
  template <typename Call>
  void post(Call call) {
    boost::asio::post(connection_->executor(),
                      [to = connection_, number = number_, run = std::move(call)]() mutable {
                        run(*to, number);
                      });
  }

  // Before the connection, whose socket needs its I/O to the last.
  std::shared_ptr<ConnectionContext> context_;
  std::shared_ptr<Connection> connection_;
  uint64_t number_;
  std::string id_;
  bool complete_ = false;
};

// What could end a header, or is no text, has no place in one.
std::string clean(std::string_view value) {
  std::string out(value);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return (c >= 0 && c < ' ') || c == 127; }, ' ');
  return out;
}

}  // namespace

std::shared_ptr<Answer> make_answer(std::shared_ptr<ConnectionContext> context,
                                    std::shared_ptr<Connection> connection, uint64_t number,
                                    std::string request_id) {
  return std::make_shared<ConnectionAnswer>(std::move(context), std::move(connection), number,
                                            std::move(request_id));
}

std::string answer_head(int status, std::string_view content_type, std::string_view request_id,
                        const Headers& headers) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, reason_phrase(status), http_date());
  if (!content_type.empty()) head += fmt::format("Content-Type: {}\r\n", content_type);
  if (!request_id.empty()) head += fmt::format("x-request-id: {}\r\n", request_id);
  for (const auto& [name, value] : headers) {
    head += fmt::format("{}: {}\r\n", name, clean(value));
  }
  return head;
}

}  // namespace aerie::server
