// A request over HTTP and the answer to it: where the transport (server/http/http_server.h) and
// what is said over it (server/openai/api.h) meet. No HTTP library in sight.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aerie::server {

class RequestAccount;  // server/access/request_account.h

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;                          // "POST"
  std::string path;                            // "/v1/models", decoded, without the query
  std::map<std::string, std::string> query;    // decoded
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::shared_ptr<const void> room;  // what the body takes of that for all; given back with it
  std::string id;      // x-request-id if there was a valid one, else made up; is sent back
  std::string client;  // who asks: a name for the API key, or the address; for fair turns
  std::string key;     // the API key's hash; empty: it has none, or none is wanted
  bool learn = true;   // what comes of it may be kept for training, where anything is
  std::shared_ptr<RequestAccount> account;  // set by the gate; null without one
};

// The answer. From any thread, one call at a time; nothing blocks. What is sent after the client
// has gone is dropped.
class Answer {
 public:
  virtual ~Answer() = default;

  // All of it. Content-Length, Connection, Date and x-request-id are the transport's.
  virtual void send(int status, std::string_view content_type, std::string body,
                    Headers headers = {}) = 0;

  // Or piece by piece: begin() once, write() as often as one likes, then finish(). A client that
  // reads too slowly is dropped once too much has piled up.
  virtual void begin(int status, std::string_view content_type, Headers headers = {}) = 0;
  virtual void write(std::string piece) = 0;
  virtual void finish() = 0;

  // Called once, on the transport's thread, if the client goes away, is dropped or is timed out
  // before the answer is complete; at once if that has happened. Must be set before the answer
  // begins; dropped once it is complete.
  virtual void on_gone(std::function<void()> callback) = 0;

  // Runs `work`, what takes long about making an answer, on a thread that calls handlers; at once
  // where there is none.
  virtual void run(std::function<void()> work) { work(); }
};

// Answers a request, now or later; the answer lives as long as somebody holds it. An answer that
// nobody holds and that is not complete is ended with status 500. Called on the transport's
// threads.
using Handler = std::function<void(HttpRequest request, std::shared_ptr<Answer> answer)>;

// Asked about a request before its body is read, which it has not yet. For those it says false of,
// the handler is called without the body, and the connection ends with the answer. On the
// transport's threads; returns at once. Null: all bodies are wanted.
using BodyFilter = std::function<bool(const HttpRequest& head)>;

}  // namespace aerie::server
