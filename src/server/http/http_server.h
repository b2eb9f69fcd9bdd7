// HTTP/1.1 over TCP, with TLS or without: connections, limits, keep-alive. What is answered is a
// Handler's affair (server/http/exchange.h).
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "server/http/exchange.h"
#include "server/http/http_options.h"

namespace aerie::server {

// Runs on threads of its own from start() to the destructor.
class HttpServer {
 public:
  // kInvalidArgument for an address that cannot be had, or a certificate or key that cannot be
  // used.
  static Expected<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options,
                                                     Handler handler, BodyFilter wants_body = {});
  // stop()
  ~HttpServer();

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8000"

  // Ends idle connections, and each other one after its answer. New ones are taken for one request
  // as long as busy(), and do not count for it; then no more.
  void drain();
  // Requests that are being read or answered, unsent bytes counted.
  int busy() const;
  // Ends all connections, telling those that answer (Answer::on_gone()), and the threads. May be
  // called again.
  void stop();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace aerie::server
