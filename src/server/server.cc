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
  Server* s = server.get();
  s->host_->server().more_metrics = [s, others = std::move(options.more_metrics)] {
    return s->gate_->metrics() + (others ? others() : "");
  };
  s->gate_ = std::make_unique<Gate>(
      std::move(options.gate),
      [s](const HttpRequest& request, const std::shared_ptr<Answer>& answer) {
        s->api_.handle(request, answer);
      });
  const auto handle = [s](HttpRequest request, std::shared_ptr<Answer> answer) {
    s->gate_->handle(std::move(request), std::move(answer));
  };
  const auto wants_body = [s](const HttpRequest& head) { return s->gate_->wants_body(head); };
  AERIE_ASSIGN_OR_RETURN(s->http_, HttpServer::start(options.http, handle, wants_body));
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

void Server::set_keys(ApiKeys keys) {
  gate_->set_keys(std::move(keys));
}

int Server::busy() const {
  return std::max(http_->busy(), host_->server().open_requests.load());
}

}  // namespace aerie::server
