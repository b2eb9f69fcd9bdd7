// The server: HTTP, keys and API over models.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/service.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"
#include "server/models/model_host.h"
#include "server/openai/api.h"

namespace aerie::server {

struct ServerOptions {
  HttpServerOptions http;
  ApiOptions api;  // of one model; where there are several, each has its own
  GateOptions gate;
  std::function<std::string()> more_metrics;  // what /metrics has at its end; may be null
};

// Serves from start() to the destructor. One thread at a time.
class Server {
 public:
  // Errors are HttpServer::start()'s. The service must outlive it.
  static Expected<std::unique_ptr<Server>> start(Service& service, ServerOptions options);
  static Expected<std::unique_ptr<Server>> start(std::unique_ptr<ModelHost> host,
                                                 ServerOptions options);
  // Ends what is not finished.
  ~Server();

  int port() const { return http_->port(); }
  std::string url() const { return http_->url(); }
  ModelHost& models() { return *host_; }

  // Takes no more; what was taken goes on.
  void drain();
  // The keys from now on, where the gate's options had some. From any thread.
  void set_keys(ApiKeys keys);
  // After drain(): requests that are not answered to the last byte.
  int busy() const;

 private:
  explicit Server(std::unique_ptr<ModelHost> host) : host_(std::move(host)), api_(*host_) {}

  std::unique_ptr<ModelHost> host_;
  Api api_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace aerie::server
