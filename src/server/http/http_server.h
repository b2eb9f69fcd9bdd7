// HTTP/1.1 over TCP, with TLS or without: connections, limits, keep-alive. What is answered is a
// Handler's affair (server/http/exchange.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/http/exchange.h"

namespace aerie::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address, or a name
  int port = 0;                    // 0: any that is free
  std::string tls_certificate;     // PEM files, both or none; the chain, the server's first
  std::string tls_key;

  int io_threads = 1;       // move bytes
  int handler_threads = 2;  // call the handler; GET has one more of its own, since it is quick
  int max_connections = 1024;
  size_t max_header_bytes = size_t{32} << 10;
  size_t max_body_bytes = size_t{16} << 20;
  size_t max_unsent_bytes = size_t{4} << 20;  // of a stream whose client does not read

  double read_seconds = 30.0;   // for a request to arrive whole
  double idle_seconds = 75.0;   // between requests
  double write_seconds = 60.0;  // without the client taking a byte of what there is for it
};

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

  // Takes no more connections, ends idle ones and each other one after its answer.
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
