#include "server/http/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <optional>
#include <type_traits>
#include <utility>

#include "server/http/http_answer.h"
#include "server/http/http_target.h"
#include "server/http/request_head.h"
#include "server/openai/openai_errors.h"

namespace aerie::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using TlsStream = asio::ssl::stream<Tcp::socket>;
using Head = http::request_header<>;

constexpr double kLingerSeconds = 2.0;
constexpr size_t kReadBytes = 4096;
// What of a body has been received and not parsed yet: the library asks for no more at once.
constexpr size_t kMostUnparsed = 65536;
// After which it is asked whether a client that sends no more is still there; then after twice
// that.
constexpr double kProbeSeconds = 1.0;

int status_of(const error_code& error) {
  if (error == http::error::body_limit) return 413;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::bad_version) return 505;
  if (error == boost::system::errc::not_enough_memory) return 503;
  return 400;
}

// One request after another. While one is answered, the next bytes are read: that is how it shows
// that the client has gone.
template <typename Stream>
class StreamConnection final : public Connection,
                               public std::enable_shared_from_this<StreamConnection<Stream>> {
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

 public:
  template <typename... Args>
  explicit StreamConnection(std::shared_ptr<ConnectionContext> context, Args&&... args)
      : context_(std::move(context)),
        options_(context_->options),
        stream_(std::forward<Args>(args)...),
        timer_(stream_.get_executor()),
        probe_(stream_.get_executor()),
        buffer_(std::max(options_.max_header_bytes, kMostUnparsed) + 2 * kReadBytes),
        late_(context_->draining.load()) {
    context_->open.fetch_add(1);
    error_code ignored;
    const auto peer = socket().remote_endpoint(ignored);
    if (!ignored) peer_ = peer.address().to_string();
  }
  ~StreamConnection() override {
    set_busy(false);
    context_->open.fetch_sub(1);
  }

  asio::any_io_executor executor() override { return stream_.get_executor(); }

  void start() override {
    arm(options_.read_seconds);
    if constexpr (kTls) {
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = this->shared_from_this()](const error_code& error) {
                                if (error) return self->abandon();
                                self->read_head();
                              });
    } else {
      read_head();
    }
  }

  void close_when_idle() override {
    if (alive_ && state_ == State::kIdle) abandon();
  }

  void abandon() override {
    if (!alive_) return;
    alive_ = false;
    error_code ignored;
    timer_.cancel();
    probe_.cancel();
    socket().close(ignored);
    set_busy(false);
    const auto gone = std::exchange(gone_, nullptr);
    const bool was_answering = std::exchange(answering_, false);
    if (was_answering && gone) gone();
  }

  void send(uint64_t number, int status, std::string head, std::string body) override {
    if (!is_current(number) || begun_) return;
    // What has no body has no length either.
    if (status != 204 && status != 304) {
      head += fmt::format("Content-Length: {}\r\n", body.size());
    }
    append(finished_head(std::move(head)));
    if (!head_only_) append(std::move(body));
    complete();
  }

  void begin(uint64_t number, std::string head) override {
    if (!is_current(number) || begun_) return;
    begun_ = true;
    if (chunked_) {
      head += "Transfer-Encoding: chunked\r\n";
    } else {
      keep_alive_ = false;
    }
    append(finished_head(std::move(head)));
    flush();
  }

  void write(uint64_t number, std::string piece) override {
    if (!is_current(number) || !begun_ || head_only_ || piece.empty()) return;
    if (chunked_) append(fmt::format("{:x}\r\n", piece.size()));
    append(std::move(piece));
    if (chunked_) append("\r\n");
    if (unsent_.size() + sending_.size() - sent_ > options_.max_unsent_bytes) return abandon();
    flush();
  }

  void finish(uint64_t number) override {
    if (!is_current(number) || !begun_) return;
    if (chunked_ && !head_only_) append("0\r\n\r\n");
    complete();
  }

  void set_gone(uint64_t number, std::function<void()> callback) override {
    if (is_current(number)) {
      gone_ = std::move(callback);
    } else if (number > completed_) {
      callback();
    }
  }

  void drop_answer(uint64_t number) override {
    if (!is_current(number)) return;
    // What was begun cannot become an error any more; that it is not complete, the client sees.
    if (begun_) return abandon();
    keep_alive_ = false;
    refuse(500, "the request was given up");
  }

 private:
  enum class State : uint8_t { kIdle, kReading, kAnswering, kLingering };

  Tcp::socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  bool is_current(uint64_t number) const { return alive_ && answering_ && number == number_; }

  void set_busy(bool busy) {
    // The end does not wait for those that came after it had begun.
    if (busy_ == busy || late_) return;
    busy_ = busy;
    context_->busy.fetch_add(busy ? 1 : -1);
  }

  void arm(double seconds) {
    timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds)));
    timer_.async_wait([weak = this->weak_from_this()](const error_code& error) {
      const auto self = weak.lock();
      if (!error && self) self->on_timeout();
    });
  }

  // A handler that waits to run must find that there is nothing to wait for.
  void disarm() { timer_.expires_at(std::chrono::steady_clock::time_point::max()); }

  void on_timeout() {
    // The timer may have been set anew after it had fired.
    if (!alive_ || timer_.expiry() > std::chrono::steady_clock::now()) return;
    if (state_ == State::kReading && (buffer_.size() > 0 || parser_)) {
      error_code ignored;
      socket().cancel(ignored);  // of what is being read
      return refuse(408, "the request did not arrive in time");
    }
    abandon();
  }

  // ---- Reading ----

  void read_head() {
    state_ = State::kReading;
    head_only_ = false;
    id_ = random_hex(12);
    scan_ = {};
    arm(options_.read_seconds);
    look_for_head();
  }

  void look_for_head() {
    if (!alive_ || state_ != State::kReading) return;
    const auto bytes = buffer_.data();
    switch (scan_.look({static_cast<const char*>(bytes.data()), bytes.size()})) {
      case HeadScan::Found::kFault:
        return refuse(400, std::string("the request's head has ") + scan_.fault());
      case HeadScan::Found::kEnd:
        return scan_.size() > options_.max_header_bytes ? refuse_long_head() : parse_head();
      case HeadScan::Found::kNothing:
        if (bytes.size() > options_.max_header_bytes) return refuse_long_head();
        break;
    }
    stream_.async_read_some(buffer_.prepare(kReadBytes),
                            [self = this->shared_from_this()](const error_code& error, size_t n) {
                              if (error) return self->on_bad_request(error);
                              self->buffer_.commit(n);
                              self->look_for_head();
                            });
  }

  void refuse_long_head() {
    refuse(431,
           fmt::format("the request's head is longer than {} bytes", options_.max_header_bytes));
  }

  void parse_head() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(options_.max_header_bytes));
    parser_->body_limit(options_.max_body_bytes);
    parser_->on_chunk_header(check_chunk_);
    error_code error;
    const size_t parsed = parser_->put(buffer_.data(), error);
    buffer_.consume(parsed);
    if (error) return on_bad_request(error);
    const auto& head = parser_->get().base();
    if (const auto fault = find_fault(head)) return refuse(fault->status, fault->why);
    read_body();
  }

  void read_body() {
    set_busy(true);
    auto request = request_of(parser_->get().base());
    if (!request) return;
    // Of those whom nothing is to be kept for, nothing is.
    if (context_->wants_body && !context_->wants_body(*request)) {
      return on_request(std::move(*request), parser_->is_done());
    }
    const auto expect = parser_->get()[http::field::expect];
    if (boost::beast::iequals(expect, "100-continue")) {
      append("HTTP/1.1 100 Continue\r\n\r\n");
      flush();
    }
    parser_->eager(true);
    request->room = share_ = context_->room->share(request->client);
    read_more(std::move(*request));
  }

  void read_more(HttpRequest head) {
    if (parser_->is_done()) return on_request(std::move(head), true);
    if (!share_->grow(parser_->get().body().capacity())) {
      forget_body();
      return refuse(429, "too many large bodies are arriving at once");
    }
    http::async_read_some(stream_, buffer_, *parser_,
                          [self = this->shared_from_this(), moved = std::move(head)](
                              const error_code& error, size_t) mutable {
                            if (error) return self->on_bad_request(error);
                            self->read_more(std::move(moved));
                          });
  }

  // Nothing reads into it.
  void forget_body() {
    parser_.reset();
    share_.reset();
  }

  void on_bad_request(const error_code& error) {
    if (!alive_ || state_ != State::kReading) return;
    // Only what the parser says is the client's to correct; the rest is a connection that broke.
    static const auto& category = http::make_error_code(http::error::bad_method).category();
    const int status = status_of(error);
    if (error == http::error::end_of_stream || error == http::error::partial_message ||
        (error.category() != category && status != 503)) {
      return abandon();
    }
    forget_body();
    refuse(status, message_of(error, status));
  }

  std::string message_of(const error_code& error, int status) const {
    if (status == 413) {
      return fmt::format("the body is larger than {} bytes", options_.max_body_bytes);
    }
    return status == 503 ? "there is not enough memory for the body: try again later"
                         : error.message();
  }

  // Of the transport's own, before there is an answer or instead of one.
  void refuse(int status, const std::string& why) {
    state_ = State::kAnswering;
    answering_ = true;
    begun_ = false;
    keep_alive_ = false;
    set_busy(true);
    const ApiError error = error_of(status, why);
    send(number_, status, answer_head(status, "application/json", id_, {}), error_body(error));
  }

  // All but the body. Without a value: refused.
  std::optional<HttpRequest> request_of(const Head& head) {
    HttpRequest request;
    for (const auto& field : head) {
      std::string name(field.name_string());
      std::transform(name.begin(), name.end(), name.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
      request.headers[std::move(name)] = std::string(field.value());
    }
    const auto id = request.headers.find("x-request-id");
    if (id != request.headers.end() && is_request_id(id->second)) id_ = id->second;
    auto target = parse_target({head.target().data(), head.target().size()});
    if (!target) {
      refuse(400, "the request's target is no path");
      return std::nullopt;
    }
    request.method = head.method() == http::verb::head ? "GET" : std::string(head.method_string());
    request.path = std::move(target->path);
    request.query = std::move(target->query);
    request.id = id_;
    const auto forwarded = request.headers.find("x-forwarded-for");
    request.client = forwarded == request.headers.end()
                         ? peer_
                         : options_.proxies.client_of(peer_, forwarded->second);
    return request;
  }

  // `complete`: the body has been read.
  void on_request(HttpRequest request, bool complete) {
    if (!alive_) return;
    auto message = parser_->release();
    forget_body();
    ++number_;
    state_ = State::kAnswering;
    answering_ = true;
    begun_ = false;
    head_only_ = message.method() == http::verb::head;
    chunked_ = message.version() >= 11;
    keep_alive_ = complete && message.keep_alive();
    disarm();
    request.body = std::move(message.body());
    watch();
    context_->handle(std::move(request),
                     make_answer(context_, this->shared_from_this(), number_, id_));
  }

  // Reads on while a request is answered, and for the next one.
  void watch() {
    if (watching_ || half_closed_ || !alive_) return;
    // A request sent ahead: what follows it waits in the socket.
    if (state_ == State::kAnswering && buffer_.size() > 0) return;
    watching_ = true;
    stream_.async_read_some(buffer_.prepare(kReadBytes),
                            [self = this->shared_from_this()](const error_code& error, size_t n) {
                              self->on_watched(error, n);
                            });
  }

  void on_watched(const error_code& error, size_t n) {
    watching_ = false;
    if (!alive_) return;
    if (state_ == State::kLingering) {
      buffer_.clear();
      return error ? abandon() : watch();
    }
    if (error == asio::error::eof && state_ == State::kAnswering) return on_half_closed();
    if (error) return abandon();
    buffer_.commit(n);
    if (state_ == State::kIdle) return read_head();
    watch();
  }

  // No more requests will come. Whether the client waits for the answer or has gone, only its
  // system says, when it is sent something.
  void on_half_closed() {
    half_closed_ = true;
    keep_alive_ = false;
    socket().async_wait(Tcp::socket::wait_error,
                        [self = this->shared_from_this()](const error_code&) { self->abandon(); });
    probe_after(kProbeSeconds);
  }

  void probe_after(double seconds) {
    probe_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds)));
    probe_.async_wait([weak = this->weak_from_this(), seconds](const error_code& error) {
      const auto self = weak.lock();
      if (!error && self) self->probe(seconds);
    });
  }

  // What is sent must mean nothing: an interim answer, which HTTP/1.0 does not know. A stream that
  // has begun needs none, since it flows.
  void probe(double seconds) {
    if (!alive_ || !answering_ || begun_ || !chunked_) return;
    append("HTTP/1.1 100 Continue\r\n\r\n");
    flush();
    probe_after(2 * seconds);
  }

  // ---- Writing ----

  std::string finished_head(std::string head) {
    if (context_->draining.load()) keep_alive_ = false;
    head += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return head;
  }

  void append(std::string bytes) {
    if (unsent_.empty()) {
      unsent_ = std::move(bytes);
    } else {
      unsent_ += bytes;
    }
  }

  void complete() {
    answering_ = false;
    completed_ = number_;
    gone_ = nullptr;
    flush();
  }

  void flush() {
    if (writing_ || !alive_) return;
    if (sent_ == sending_.size()) {
      sending_.clear();
      sent_ = 0;
      sending_.swap(unsent_);
    }
    if (sending_.empty()) {
      if (state_ != State::kAnswering) return;
      disarm();
      if (!answering_) on_answered();
      return;
    }
    writing_ = true;
    // While a request arrives ("100 Continue"), the time for that runs on.
    if (state_ != State::kReading) arm(options_.write_seconds);
    stream_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                             [self = this->shared_from_this()](const error_code& error, size_t n) {
                               self->writing_ = false;
                               if (error) return self->abandon();
                               self->sent_ += n;
                               self->flush();
                             });
  }

  void on_answered() {
    set_busy(false);
    if (!keep_alive_ || half_closed_) return linger();
    state_ = State::kIdle;
    if (context_->draining.load()) return abandon();
    if (buffer_.size() > 0) return read_head();
    arm(options_.idle_seconds);
    watch();
  }

  // Closing a socket with bytes unread resets the connection, and the answer may be lost.
  void linger() {
    state_ = State::kLingering;
    arm(kLingerSeconds);
    if constexpr (kTls) {
      stream_.async_shutdown(
          [self = this->shared_from_this()](const error_code&) { self->abandon(); });
    } else {
      if (half_closed_) return abandon();
      error_code ignored;
      socket().shutdown(Tcp::socket::shutdown_send, ignored);
      buffer_.clear();
      watch();
    }
  }

  std::shared_ptr<ConnectionContext> context_;
  const HttpServerOptions& options_;
  Stream stream_;
  asio::steady_timer timer_;
  asio::steady_timer probe_;
  boost::beast::flat_buffer buffer_;
  HeadScan scan_;
  std::function<void(uint64_t, boost::beast::string_view, error_code&)> check_chunk_ =
      [](uint64_t, boost::beast::string_view extension, error_code& error) {
        if (!is_chunk_extension(extension)) error = http::error::bad_chunk_extension;
      };
  std::optional<http::request_parser<ArrivingBody>> parser_;
  std::shared_ptr<BodyRoom::Share> share_;  // of the body that arrives
  std::string peer_;
  std::string id_;

  State state_ = State::kIdle;
  bool alive_ = true;
  bool busy_ = false;
  bool watching_ = false;
  bool half_closed_ = false;
  const bool late_;

  // The answer.
  uint64_t number_ = 0;
  uint64_t completed_ = 0;
  bool answering_ = false;
  bool begun_ = false;
  bool chunked_ = true;
  bool head_only_ = false;
  bool keep_alive_ = true;
  std::function<void()> gone_;

  bool writing_ = false;
  std::string unsent_;   // after what is being sent
  std::string sending_;  // the first sent_ bytes of it have gone
  size_t sent_ = 0;
};

}  // namespace

std::shared_ptr<Connection> make_connection(Tcp::socket socket,
                                            std::shared_ptr<ConnectionContext> context,
                                            asio::ssl::context* tls) {
  if (tls == nullptr) {
    return std::make_shared<StreamConnection<Tcp::socket>>(std::move(context), std::move(socket));
  }
  return std::make_shared<StreamConnection<TlsStream>>(std::move(context), std::move(socket), *tls);
}

}  // namespace aerie::server
