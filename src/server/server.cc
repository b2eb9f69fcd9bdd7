#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace aerie::server {

Expected<std::unique_ptr<Server>> Server::start(Service& service, ServerOptions options) {
  auto host = std::make_unique<ModelHost>(service, options.api);
  return start(std::move(host), std::move(options));
}

Expected<std::unique_ptr<Server>> Server::start(std::unique_ptr<ModelHost> host,
                                                ServerOptions options) {
  std::unique_ptr<Server> server(new Server(std::move(host)));
  BodyFilter wants_body = make_body_filter(options.gate);
  Handler handler = make_gate(
      std::move(options.gate),
      [api = &server->api_](const HttpRequest& request, const std::shared_ptr<Answer>& answer) {
        api->handle(request, answer);
      });
  AERIE_ASSIGN_OR_RETURN(
      server->http_, HttpServer::start(options.http, std::move(handler), std::move(wants_body)));
  return server;
}

Server::~Server() {
  if (http_ == nullptr) return;
  http_->stop();
  // Replies that were cancelled with their connections, until the service has said so.
  for (int i = 0; i < 1000 && host_->server().open_requests > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Server::drain() {
  host_->drain();
  http_->drain();
}

int Server::busy() const {
  return std::max(http_->busy(), host_->server().open_requests.load());
}

}  // namespace aerie::server
