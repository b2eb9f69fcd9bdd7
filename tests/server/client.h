// A client of HTTP/1.1 over a plain socket, which can misbehave.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "format/json.h"

namespace aerie::test {

struct Response {
  int status = 0;  // 0: none came
  std::string head;
  std::string body;  // unchunked

  Json json() const {
    auto value = parse_json(body, "answer");
    EXPECT_TRUE(value.ok()) << body;
    return value.ok() ? *value : Json::object();
  }
  std::string header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t from = at + name.size() + 4;
    return head.substr(from, head.find("\r\n", from) - from);
  }
  // The data of a stream's events; "[DONE]" is left out, but must be there.
  std::vector<Json> events(bool has_done = true) const {
    std::vector<Json> out;
    bool done = false;
    for (size_t at = body.find("data: "); at != std::string::npos; at = body.find("data: ", at)) {
      const size_t end = body.find("\n\n", at);
      EXPECT_NE(end, std::string::npos) << body;
      const std::string data = body.substr(at + 6, end - at - 6);
      at = end;
      if (data == "[DONE]") {
        done = true;
        continue;
      }
      auto value = parse_json(data, "event");
      EXPECT_TRUE(value.ok()) << data;
      if (value.ok()) out.push_back(std::move(*value));
    }
    EXPECT_EQ(done, has_done) << body;
    return out;
  }
};

class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { hang_up(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void hang_up() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void half_close() { shutdown(fd_, SHUT_WR); }

  bool send_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void send_request(std::string_view method, std::string_view path, std::string_view body,
                    std::string_view headers = "") {
    std::string bytes(method);
    bytes.append(" ").append(path).append(" HTTP/1.1\r\nHost: x\r\n").append(headers);
    if (method != "GET") bytes += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    send_bytes(bytes.append("\r\n").append(body));
  }

  // More bytes; false at the end of the connection, or when it takes too long.
  bool receive(int milliseconds = 60000) {
    pollfd one = {fd_, POLLIN, 0};
    if (poll(&one, 1, milliseconds) <= 0) return false;
    char buffer[16384];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n <= 0) return false;
    bytes_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  // Until the text has arrived.
  bool wait_for(std::string_view text) {
    while (bytes_.find(text) == std::string::npos) {
      if (!receive()) return false;
    }
    return true;
  }
  bool is_ended(int milliseconds = 60000) {
    while (receive(milliseconds)) {
    }
    pollfd one = {fd_, POLLIN, 0};
    return poll(&one, 1, 0) > 0;
  }

  // The next answer of the connection.
  Response read_response(bool has_body = true) {
    Response out;
    while (bytes_.find("\r\n\r\n") == std::string::npos) {
      if (!receive()) return out;
    }
    const size_t head = bytes_.find("\r\n\r\n");
    out.head = bytes_.substr(0, head + 2);
    bytes_.erase(0, head + 4);
    out.status = std::atoi(out.head.c_str() + 9);
    if (out.status == 100) return read_response(has_body);
    if (!has_body) return out;
    if (out.header("Transfer-Encoding") == "chunked") {
      read_chunks(out.body);
    } else if (!out.header("Content-Length").empty()) {
      const size_t length = std::strtoul(out.header("Content-Length").c_str(), nullptr, 10);
      while (bytes_.size() < length && receive()) {
      }
      out.body = bytes_.substr(0, length);
      bytes_.erase(0, length);
    } else if (out.status != 204) {
      while (receive()) {
      }
      out.body = std::exchange(bytes_, "");
    }
    return out;
  }

 private:
  void read_chunks(std::string& body) {
    for (;;) {
      if (!wait_for("\r\n")) return;
      const size_t line = bytes_.find("\r\n");
      const size_t size = std::strtoul(bytes_.c_str(), nullptr, 16);
      bytes_.erase(0, line + 2);
      while (bytes_.size() < size + 2) {
        if (!receive()) return;
      }
      body += bytes_.substr(0, size);
      bytes_.erase(0, size + 2);
      if (size == 0) return;
    }
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string bytes_;
};

inline Response exchange(int port, std::string_view method, std::string_view path,
                         std::string_view body = "", std::string_view headers = "") {
  Client client(port);
  client.send_request(method, path, body, headers);
  return client.read_response(method != "HEAD");
}

// Whether it comes true within a minute, which is long for a busy machine and a build with a
// sanitizer.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 12000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace aerie::test
