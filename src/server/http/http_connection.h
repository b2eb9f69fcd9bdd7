// One connection of an HttpServer. For http_server.cc alone.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "server/http/body_room.h"
#include "server/http/exchange.h"
#include "server/http/http_options.h"

namespace aerie::server {

// What all connections share. Outlives them.
struct ConnectionContext {
  HttpServerOptions options;
  std::function<void(HttpRequest, std::shared_ptr<Answer>)> handle;  // returns at once
  BodyFilter wants_body;
  std::shared_ptr<boost::asio::io_context> io;
  std::shared_ptr<boost::asio::io_context> handlers;  // where requests are handled
  std::shared_ptr<BodyRoom> room;
  std::atomic<int> open = 0;
  std::atomic<int> busy = 0;
  std::atomic<bool> draining = false;
};

// All methods but executor() within the executor, which is a strand.
class Connection {
 public:
  virtual ~Connection() = default;

  virtual boost::asio::any_io_executor executor() = 0;
  virtual void start() = 0;
  // No request will follow: ends it now if it waits for one.
  virtual void close_when_idle() = 0;
  // Ends it now.
  virtual void abandon() = 0;

  // Answers to request `number`; those to another one than the current are ignored.
  virtual void send(uint64_t number, int status, std::string head, std::string body) = 0;
  virtual void begin(uint64_t number, std::string head) = 0;
  virtual void write(uint64_t number, std::string piece) = 0;
  virtual void finish(uint64_t number) = 0;
  virtual void set_gone(uint64_t number, std::function<void()> callback) = 0;
  virtual void drop_answer(uint64_t number) = 0;  // nobody holds it any more
};

// `tls`: null for plain TCP; else it must outlive the connection.
std::shared_ptr<Connection> make_connection(boost::asio::ip::tcp::socket socket,
                                            std::shared_ptr<ConnectionContext> context,
                                            boost::asio::ssl::context* tls);

}  // namespace aerie::server
