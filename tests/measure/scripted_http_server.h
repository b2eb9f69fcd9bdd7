// A server on a loopback port that gives the answers that a test wants.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace aerie::measure {

// An exchange for each connection, of which there may be several at a time. Until the object goes.
class HttpServer {
 public:
  struct Request {
    std::string head;  // the first line and the headers
    std::string body;
  };
  struct Answer {
    int status = 200;
    std::string body;
    std::string headers;    // more of them, each with its "\r\n"
    bool silent = false;    // the request is read, nothing is said, and the connection stays
    bool hangs_up = false;  // nothing is said
    // Sent one by one behind the body, with a pause before each; the connection's end is theirs.
    std::vector<std::string> pieces = {};
    std::chrono::milliseconds pause = {};
  };
  using Handler = std::function<Answer(const Request& request, int number)>;

  // Calls `handler` on threads of its own, one call at a time.
  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, any, size), 0);
    EXPECT_EQ(listen(listener_, 128), 0);
    EXPECT_EQ(getsockname(listener_, any, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    stop_ = true;
    thread_.join();
    for (std::thread& connection : connections_) connection.join();
    close(listener_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/v1"; }
  std::vector<Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  // Whether there is something to read; false when the server ends.
  bool wait(int fd) const {
    while (!stop_) {
      pollfd one = {fd, POLLIN, 0};
      if (poll(&one, 1, 20) > 0) return true;
    }
    return false;
  }

  void serve() {
    while (wait(listener_)) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) continue;
      connections_.emplace_back([this, fd] {
        exchange(fd);
        close(fd);
      });
    }
  }

  bool read_request(int fd, Request& out) const {
    std::string bytes;
    size_t head = std::string::npos;
    size_t length = 0;
    while (head == std::string::npos || bytes.size() < head + 4 + length) {
      char buffer[4096];
      if (!wait(fd)) return false;
      const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
      if (n <= 0) return false;
      bytes.append(buffer, static_cast<size_t>(n));
      head = bytes.find("\r\n\r\n");
      const size_t field = bytes.find("Content-Length: ");
      if (head != std::string::npos && field < head) {
        length = std::strtoul(bytes.c_str() + field + 16, nullptr, 10);
      }
    }
    out.head = bytes.substr(0, head);
    out.body = bytes.substr(head + 4);
    return true;
  }

  void exchange(int fd) {
    Request request;
    if (!read_request(fd, request)) return;
    const Answer answer = answer_to(request);
    if (answer.hangs_up) return;
    if (answer.silent) {
      wait(fd);  // until the client goes away
      return;
    }
    const std::string length = "Content-Length: " + std::to_string(answer.body.size()) + "\r\n";
    bool whole = say(fd, "HTTP/1.1 " + std::to_string(answer.status) + " X\r\n" + answer.headers +
                             "Connection: close\r\n" + (answer.pieces.empty() ? length : "") +
                             "\r\n" + answer.body);
    for (const std::string& piece : answer.pieces) {
      if (!whole || stop_) return;
      std::this_thread::sleep_for(answer.pause);
      whole = say(fd, piece);
    }
  }

  Answer answer_to(const Request& request) {
    const std::lock_guard lock(mutex_);
    const int number = static_cast<int>(requests_.size());
    requests_.push_back(request);
    return handler_(request, number);
  }

  static bool say(int fd, const std::string& bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<Request> requests_;
  std::vector<std::thread> connections_;
  std::thread thread_;
};

}  // namespace aerie::measure
