// The server: HTTP, keys and API over a Service.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "engine/service.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"
#include "server/openai/api.h"

namespace aerie::server {

struct ServerOptions {
  HttpServerOptions http;
  ApiOptions api;
  GateOptions gate;
};

// Serves from start() to the destructor. One thread at a time.
class Server {
 public:
  // The service must outlive it. Errors are HttpServer::start()'s.
  static Expected<std::unique_ptr<Server>> start(Service& service, ServerOptions options);
  // Ends what is not finished.
  ~Server();

  int port() const { return http_->port(); }
  std::string url() const { return http_->url(); }

  // Takes no more; what was taken goes on.
  void drain();
  // The keys from now on, where the gate's options had some. From any thread.
  void set_keys(ApiKeys keys);
  // After drain(): requests that are not answered to the last byte.
  int busy() const;

 private:
  explicit Server(Service& service) : service_(service) {}

  Service& service_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace aerie::server
