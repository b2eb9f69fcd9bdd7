#include "server/http/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "server/http/http_answer.h"
#include "server/http/http_connection.h"
#include "server/openai/openai_errors.h"

namespace aerie::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

Expected<std::unique_ptr<asio::ssl::context>> make_tls(const HttpServerOptions& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return invalid_argument("TLS needs a certificate and its key: give both");
  }
  if (options.tls_certificate.empty()) return std::unique_ptr<asio::ssl::context>();
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1,
                   error);
  if (!error) tls->use_certificate_chain_file(options.tls_certificate, error);
  if (error) {
    return invalid_argument("{}: cannot be used as a certificate: {}", options.tls_certificate,
                            error.message());
  }
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error) {
    return invalid_argument("{}: cannot be used as the certificate's key: {}", options.tls_key,
                            error.message());
  }
  return tls;
}

// Of the largest size. A client may have half of them.
constexpr size_t kBodiesAtOnce = 4;

// Runs `call`, and says whether it came to its end: where memory is short, what failed has failed,
// and the thread goes on.
template <typename Call>
bool survive(const Call& call) {
  try {
    call();
    return true;
  } catch (const std::exception& error) {
    log(LogLevel::kError, fmt::format("a request was given up: {}", error.what()));
    return false;
  }
}

Status listen(Tcp::acceptor& acceptor, asio::io_context& io, const HttpServerOptions& options) {
  error_code error;
  Tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), Tcp::resolver::passive, error);
  if (error || found.empty()) {
    return invalid_argument("{}: no address to listen on: {}", options.host, error.message());
  }
  const Tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  return invalid_argument("{}:{}: cannot listen there: {}", options.host, options.port,
                          error.message());
}

}  // namespace

struct HttpServer::State {
  std::shared_ptr<ConnectionContext> context = std::make_shared<ConnectionContext>();
  std::unique_ptr<asio::ssl::context> tls;
  asio::io_context quick_handler;
  // Of the three; while they are there, threads wait for more.
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> works;
  std::unique_ptr<Tcp::acceptor> acceptor;  // on accepting's strand
  std::unique_ptr<asio::steady_timer> pause;
  std::vector<std::thread> threads;
  int port = 0;
  Handler handler;
  std::atomic<bool> stopped = false;

  std::mutex mutex;
  std::vector<std::weak_ptr<Connection>> connections;

  asio::io_context& io() const { return *context->io; }
  asio::io_context& handlers() const { return *context->handlers; }
  void add_threads(asio::io_context& queue, int count);
  void accept();
  void close_acceptor();
  void on_accept(const error_code& error, Tcp::socket socket);
  void remember(const std::shared_ptr<Connection>& connection);
  template <typename Call>
  void for_each(const Call& call);
};

void HttpServer::State::add_threads(asio::io_context& queue, int count) {
  works.emplace_back(queue.get_executor());
  for (int i = 0; i < std::max(1, count); ++i) {
    threads.emplace_back([&queue] {
      while (!survive([&queue] { queue.run(); })) {
      }
    });
  }
}

void HttpServer::State::accept() {
  acceptor->async_accept(
      asio::any_io_executor(asio::make_strand(io())),
      [this](const error_code& error, Tcp::socket socket) { on_accept(error, std::move(socket)); });
}

void HttpServer::State::close_acceptor() {
  error_code ignored;
  acceptor->close(ignored);
}

void HttpServer::State::on_accept(const error_code& error, Tcp::socket socket) {
  if (!acceptor->is_open()) return;
  // While others are answered, those who come are told that the server is ending.
  if (context->draining.load() && context->busy.load() == 0) return close_acceptor();
  if (error) {
    // Such as: too many open files. It does not help to ask again at once.
    pause->expires_after(std::chrono::milliseconds(100));
    pause->async_wait([this](const error_code& stopped_waiting) {
      if (!stopped_waiting && acceptor->is_open()) accept();
    });
    return;
  }
  error_code ignored;
  socket.set_option(Tcp::no_delay(true), ignored);
  if (context->open.load() >= context->options.max_connections) {
    const std::string body = error_body(error_of(503, "there are too many connections"));
    const std::string answer =
        answer_head(503, "application/json", "", {{"Retry-After", "1"}}) +
        fmt::format("Content-Length: {}\r\nConnection: close\r\n\r\n{}", body.size(), body);
    socket.non_blocking(true, ignored);
    // It fits what the socket buffers; if not, the client gets less.
    if (!tls) socket.write_some(asio::buffer(answer), ignored);
    socket.shutdown(Tcp::socket::shutdown_both, ignored);
  } else {
    // Without memory for one, there may be for the next.
    survive([&] {
      const auto connection = make_connection(std::move(socket), context, tls.get());
      remember(connection);
      asio::dispatch(connection->executor(), [connection] { connection->start(); });
    });
  }
  accept();
}

void HttpServer::State::remember(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex);
  // Now and then: what has gone.
  if (connections.size() >= 2 * static_cast<size_t>(context->open.load()) + 16) {
    std::erase_if(connections, [](const auto& one) { return one.expired(); });
  }
  connections.push_back(connection);
}

template <typename Call>
void HttpServer::State::for_each(const Call& call) {
  const std::lock_guard lock(mutex);
  for (const auto& weak : connections) {
    const auto connection = weak.lock();
    if (connection == nullptr) continue;
    asio::post(connection->executor(), [connection, call] { call(*connection); });
  }
}

Expected<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options,
                                                        Handler handler, BodyFilter wants_body) {
  auto state = std::make_unique<State>();
  State* s = state.get();
  s->context->options = options;
  s->context->io = std::make_shared<asio::io_context>();
  s->context->handlers = std::make_shared<asio::io_context>();
  s->context->room = std::make_shared<BodyRoom>(kBodiesAtOnce * options.max_body_bytes);
  AERIE_ASSIGN_OR_RETURN(s->tls, make_tls(options));
  s->acceptor = std::make_unique<Tcp::acceptor>(asio::make_strand(s->io()));
  s->pause = std::make_unique<asio::steady_timer>(s->acceptor->get_executor());
  AERIE_RETURN_IF_ERROR(listen(*s->acceptor, s->io(), options));
  error_code ignored;
  s->port = s->acceptor->local_endpoint(ignored).port();
  s->handler = std::move(handler);
  s->context->wants_body = std::move(wants_body);
  s->context->handle = [s](HttpRequest request, std::shared_ptr<Answer> answer) {
    asio::io_context& pool = request.method == "GET" ? s->quick_handler : s->handlers();
    asio::post(pool, [s, moved = std::move(request), to = std::move(answer)]() mutable {
      if (s->stopped) return;
      // An answer that is dropped says that the request was given up.
      survive([&] { s->handler(std::move(moved), std::move(to)); });
    });
  };
  // From here on its destructor ends what was begun.
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(state)));
  s->add_threads(s->handlers(), options.handler_threads);
  s->add_threads(s->quick_handler, 1);
  s->add_threads(s->io(), options.io_threads);
  asio::post(s->acceptor->get_executor(), [s] { s->accept(); });
  return server;
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  stop();
  // What was said to connections after that holds them, and they hold what it waits in.
  for (asio::io_context* const queue : {&state_->handlers(), &state_->io()}) {
    queue->restart();
    queue->poll();
  }
}

int HttpServer::port() const {
  return state_->port;
}

std::string HttpServer::url() const {
  const HttpServerOptions& options = state_->context->options;
  const bool is_v6 = options.host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", state_->tls ? "https" : "http", is_v6 ? "[" : "",
                     options.host, is_v6 ? "]" : "", state_->port);
}

void HttpServer::drain() {
  if (state_->stopped) return;
  state_->context->draining.store(true);
  asio::post(state_->acceptor->get_executor(), [s = state_.get()] {
    if (s->context->busy.load() == 0) s->close_acceptor();
  });
  state_->for_each([](Connection& connection) { connection.close_when_idle(); });
}

int HttpServer::busy() const {
  return state_->context->busy.load();
}

void HttpServer::stop() {
  State& s = *state_;
  if (s.stopped) return;
  drain();
  s.stopped = true;
  // After the last connection was accepted. What was posted runs; then nothing is left to wait for.
  asio::post(s.acceptor->get_executor(), [&s] {
    s.pause->cancel();
    s.close_acceptor();
    s.for_each([](Connection& connection) { connection.abandon(); });
  });
  s.works.clear();
  for (std::thread& thread : s.threads) thread.join();
}

}  // namespace aerie::server
