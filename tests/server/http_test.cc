// The transport and what passes before the API: connections, limits, keys, clients that misbehave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/http/api_keys.h"
#include "tests/server/running_server.h"

namespace aerie::http_test {

using test::Client;
using test::eventually;
using test::Response;
using test::RunningServer;
using test::says;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kHang = R"({"prompt":"HANG"})";

test::FakeService::Options endless(int microseconds = 200) {
  test::FakeService::Options options = says(std::string(1 << 20, 'x'));
  options.pause = std::chrono::microseconds(microseconds);
  return options;
}

TEST(Http, KeepsConnections) {
  RunningServer server(says("abc"));
  Client client(server.port());
  for (int i = 0; i < 5; ++i) {
    client.send_request("POST", "/v1/completions", R"({"prompt":"x"})");
    const Response response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.header("Connection"), "keep-alive");
  }
  client.send_request("GET", "/health", "", "Connection: close\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(client.is_ended());
}

TEST(Http, PipelinedRequestsAreAnsweredInOrder) {
  RunningServer server;
  Client client(server.port());
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    const std::string body = R"({"max_tokens":99,"prompt":"p)" + std::to_string(i) + "\"}";
    bytes += "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
             std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  client.send_bytes(bytes);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(client.read_response().json()["choices"][0]["text"],
              "You said: p" + std::to_string(i));
  }
}

TEST(Http, OldClientsAndHundredContinue) {
  RunningServer server(says("abcdef"));
  Client old(server.port());
  old.send_bytes(
      "POST /v1/completions HTTP/1.0\r\nContent-Length: 29\r\n\r\n"
      R"({"prompt":"x","stream":true} )");
  const Response response = old.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("Transfer-Encoding"), "");
  EXPECT_THAT(response.body, HasSubstr("[DONE]"));
  Client expecting(server.port());
  expecting.send_bytes(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n"
      "Expect: 100-continue\r\n\r\n");
  ASSERT_TRUE(expecting.wait_for("100 Continue"));
  expecting.send_bytes(R"({"prompt":"x"})");
  EXPECT_EQ(expecting.read_response().json()["count"], 1);
}

TEST(Http, RequestIds) {
  RunningServer server;
  EXPECT_EQ(server.get("/health", "x-request-id: my-id.7\r\n").header("x-request-id"), "my-id.7");
  const std::string made = server.get("/health", "x-request-id: a b\r\n").header("x-request-id");
  EXPECT_NE(made, "a b");
  EXPECT_FALSE(made.empty());
}

TEST(Http, Limits) {
  server::ServerOptions options;
  options.http.max_body_bytes = 1000;
  options.http.max_header_bytes = 2000;
  options.api.max_prompt_tokens = 50;
  RunningServer server({}, std::move(options));
  EXPECT_EQ(server.complete("", std::string(2000, 'x')).status, 413);
  EXPECT_EQ(server.complete("", std::string(60, 'x')).status, 400);
  EXPECT_EQ(server.complete("", std::string(50, 'x')).status, 200);
  EXPECT_EQ(server.get("/health", "x-long: " + std::string(5000, 'y') + "\r\n").status, 431);
  EXPECT_EQ(server.get("/" + std::string(5000, 'y')).status, 431);
  Client chunked(server.port());
  chunked.send_bytes("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  chunked.send_bytes("7d0\r\n" + std::string(2000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.read_response().status, 413);
}

TEST(Http, MalformedRequests) {
  RunningServer server;
  for (const std::string& bytes :
       {std::string("nonsense\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string("GET / HTTP/9.9\r\n\r\n"), std::string("\r\n\r\n"),
        std::string("POST /tokenize HTTP/1.1\r\nContent-Length: -5\r\n\r\n"),
        std::string("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        std::string("GET nowhere HTTP/1.1\r\n\r\n"), std::string(3000, '\xff') + "\r\n\r\n"}) {
    Client client(server.port());
    client.send_bytes(bytes);
    client.half_close();
    const Response response = client.read_response();
    EXPECT_TRUE(response.status == 0 || response.status / 100 == 4 || response.status == 505)
        << bytes;
  }
  EXPECT_EQ(server.get("/health").status, 200);
}

// Whatever follows is no request of its own: one answer, and the connection ends.
void expect_refused(const RunningServer& server, const std::string& bytes, int status) {
  Client client(server.port());
  client.send_bytes(bytes);
  const Response response = client.read_response();
  EXPECT_EQ(response.status, status) << bytes;
  EXPECT_EQ(response.header("Connection"), "close") << bytes;
  EXPECT_EQ(client.read_response().status, 0) << bytes;
}

constexpr const char* kNext = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n";

TEST(Http, LengthsWithTwoMeanings) {
  RunningServer server;
  const std::string post = "POST /tokenize HTTP/1.1\r\nHost: x\r\n";
  const std::string chunks = "\r\n\r\ne\r\n{\"prompt\":\"x\"}\r\n0\r\n\r\n";
  for (const char* coding :
       {"xchunked", "identity", "chunked,chunked", "chunked, chunked", "gzip, chunked", "gzip", "",
        "chunked,", ",chunked", "chunked;q=1", "\"chunked\"", "chunked x", "chunked, identity",
        "gzip\r\nTransfer-Encoding: chunked"}) {
    expect_refused(server, post + "Transfer-Encoding: " + coding + chunks + kNext, 501);
  }
  for (const std::string& fields :
       {std::string("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        std::string("Transfer-Encoding: chunked\r\nContent-Length: 14"),
        std::string("Content-Length: 14\r\nTransfer-Encoding: chunked"),
        std::string("Content-Length: 14\r\nTransfer-Encoding: xchunked"),
        std::string("Transfer-Encoding:\r\n chunked"), std::string("Transfer-Encoding : chunked"),
        std::string("Transfer-Encoding\t: chunked"),
        std::string("Transfer-Encoding: \x0b"
                    "chunked")}) {
    expect_refused(server, post + fields + chunks + kNext, 400);
  }
  for (const char* length : {"14, 14", "14,15", "+14", "-14", "14 14", "0x0e", "1e1", "14;", "",
                             "18446744073709551616", "18446744073709551630", "14,",
                             "14\r\nContent-Length: 14", "14\r\nContent-Length: 0", "\r\n 14"}) {
    expect_refused(server,
                   post + "Content-Length: " + length + "\r\n\r\n{\"prompt\":\"x\"}" + kNext, 400);
  }
  expect_refused(server,
                 "POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked" +
                     chunks + kNext,
                 400);
  for (const char* coding : {"chunked", "Chunked", " \tchunked \t"}) {
    Client client(server.port());
    client.send_bytes(post + "Transfer-Encoding:" + coding + chunks + kNext);
    EXPECT_EQ(client.read_response().json()["count"], 1) << coding;
    EXPECT_EQ(client.read_response().status, 200) << coding;
  }
}

TEST(Http, HeadsWithTwoMeanings) {
  RunningServer server;
  const std::string get = "GET /version HTTP/1.1\r\nHost: x\r\n";
  for (const std::string& field :
       {std::string("X: a\rb"), std::string("X: a\rY: b"), std::string("X: a\nY: b"),
        std::string("X: a\r"), std::string("X: a\0b", 6), std::string("X: a\x7f"),
        std::string("X: a\x1b"), std::string("X: a\r\n b"), std::string("X: a\r\n\tb"),
        std::string("X : a"), std::string(" X: a"), std::string(": a"), std::string("X"),
        std::string("Host: y"), std::string("Authorization: a\r\nAuthorization: b")}) {
    expect_refused(server, get + field + "\r\n\r\n" + kNext, 400);
  }
  for (const char* bytes :
       {"GET /version HTTP/1.1\nHost: x\n\n", "GET /version HTTP/1.1\rHost: x\r\n\r\n",
        "GET /version HTTP/1.1\r\nHost: x\r\n\n", "GET /version HTTP/1.1\r\nHost: x\n\r\n",
        "GET /version HTTP/1.1\r\nHost: x\r\r\n\r\n", "GET /version HTTP/1.1\r\n\r\n",
        "GET /version HTTP/1.1\r\nHost: a b\r\n\r\n", "\x16\x03\x01\x02",
        "GET /version HTTP/1.1\r\nHost: user@a/b\r\n\r\n"}) {
    expect_refused(server, bytes, 400);
  }
  expect_refused(server, std::string("GET /ver\0", 9), 400);
  // Byte by byte it is the same.
  Client slow(server.port());
  for (const char c : get + "X: a\r\n\r\n") slow.send_bytes(std::string(1, c));
  EXPECT_EQ(slow.read_response().status, 200);
}

TEST(Http, ChunksWithTwoMeanings) {
  RunningServer server;
  const std::string post =
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string body = "{\"prompt\":\"x\"}";
  for (const std::string& size :
       {std::string("0xe\r\n"), std::string("-e\r\n"), std::string("+e\r\n"), std::string(" e\r\n"),
        std::string("e \r\n"), std::string("e\n"), std::string("\r\n"), std::string("e;\r\n"),
        std::string("e;a=\"\n\"\r\n"), std::string("e;a=\"\r\"\r\n"), std::string("e;a\0\r\n", 6),
        std::string("10000000000000000e\r\n"),
        std::string("e;a=") + std::string(300, 'a') + "\r\n"}) {
    expect_refused(server, post + size + body + "\r\n0\r\n\r\n" + kNext, 400);
  }
  expect_refused(server, post + "fffffffffffffff\r\n" + body, 413);
  expect_refused(server, post + "e\r\n" + body + "XX\r\n0\r\n\r\n" + kNext, 400);
  expect_refused(server, post + "e\r\n" + body + "\n0\n\n" + kNext, 400);
  expect_refused(server, post + "e\r\n" + body + "\r\n0\r\nContent-Length: 5\r\n\r\n" + kNext, 400);
  expect_refused(server, post + "e\r\n" + body + "\r\n0\r\nX: y\n\r\n\r\n" + kNext, 400);
  for (const std::string& end : {std::string("\r\n0\r\n\r\n"), std::string("\r\n0;a=b\r\n\r\n"),
                                 std::string("\r\n0\r\nX: y\r\n\r\n")}) {
    Client client(server.port());
    client.send_bytes(post + "e;a=b;c=\"d\"\r\n" + body + end + kNext);
    EXPECT_EQ(client.read_response().json()["count"], 1);
    EXPECT_EQ(client.read_response().status, 200);
  }
}

// Neither what stands behind a chunk's size nor what follows the last one is kept without bounds.
TEST(Http, ChunksThatNeverEnd) {
  RunningServer server;
  for (const std::string& begin : {std::string("e;a="), std::string("0\r\nX: ")}) {
    Client client(server.port());
    client.send_bytes("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
                      begin);
    for (int i = 0; i < 64 && client.send_bytes(std::string(4096, 'a')); ++i) {
    }
    EXPECT_EQ(client.read_response().status, 431);
  }
}

// It has said all, and waits.
TEST(Http, HalfClosedClientsGetTheirReplies) {
  test::FakeService::Options slow = says(std::string(300, 'x'));
  slow.pause = std::chrono::milliseconds(10);
  RunningServer server(std::move(slow));
  for (const char* version : {"HTTP/1.1", "HTTP/1.0"}) {
    for (const char* stream : {"false", "true"}) {
      const std::string body =
          std::string(R"({"prompt":"x","max_tokens":500,"stream":)") + stream + "}";
      Client client(server.port());
      client.send_bytes(std::string("POST /v1/completions ") + version + "\r\nHost: x\r\n" +
                        "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
      client.half_close();
      const Response response = client.read_response();
      EXPECT_EQ(response.status, 200) << version << stream;
      EXPECT_THAT(response.body, HasSubstr(*stream == 't' ? "[DONE]" : "xxx")) << version;
      EXPECT_TRUE(client.is_ended());
    }
  }
  // Those that were sent ahead, too.
  Client ahead(server.port());
  ahead.send_bytes(std::string(kNext) + kNext + kNext);
  ahead.half_close();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ahead.read_response().status, 200);
  EXPECT_TRUE(ahead.is_ended());
  EXPECT_EQ(server.service().cancelled(), 0);
}

TEST(Http, HostileBodies) {
  RunningServer server;
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("5"),
        std::string("\xff\xfe"), std::string("{\"prompt\":\"\xff\"}"),
        std::string(R"({"prompt":"x"} more)"), std::string(100000, '['),
        std::string(R"({"prompt":"x","prompt":"y"})"), std::string("{\"prompt\":\"a\0b\"}", 16)}) {
    const Response response = server.post("/v1/completions", body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 40);
    EXPECT_EQ(response.json()["error"]["type"], "invalid_request_error");
  }
}

// One client may not fill the memory with bodies, nor keep that of others from arriving.
TEST(Http, LargeBodiesShareTheirRoom) {
  constexpr size_t kLarge = size_t{1} << 20;
  server::ServerOptions options;
  options.http.max_body_bytes = kLarge;
  RunningServer server({}, std::move(options));
  const std::string post = "POST /tokenize HTTP/1.1\r\nHost: x\r\n";
  const std::string head = post + "Content-Length: " + std::to_string(kLarge) + "\r\n\r\n";
  const std::string most(kLarge - 1, ' ');
  // What is announced takes nothing.
  std::vector<std::unique_ptr<Client>> announcing;
  for (int i = 0; i < 32; ++i) {
    announcing.push_back(std::make_unique<Client>(server.port()));
    announcing.back()->send_bytes(head);
  }
  const auto large = [&] { return server.post("/tokenize", std::string(kLarge - 1, ' ')).status; };
  EXPECT_EQ(large(), 400);  // no JSON
  const auto large_in_chunks = [&] {
    Client chunked(server.port());
    chunked.send_bytes(post + "Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + most +
                       "\r\n0\r\n\r\n");
    return chunked.read_response().status;
  };
  // Some of these are refused themselves, and a body's room is given back a moment after its
  // answer: the first refusal does not mean yet that they hold all of it.
  std::vector<std::unique_ptr<Client>> held;
  EXPECT_TRUE(eventually([&] {
    held.push_back(std::make_unique<Client>(server.port()));
    held.back()->send_bytes(head + most);
    return large() == 429 && large_in_chunks() == 429;
  }));
  EXPECT_EQ(server.post("/tokenize", R"({"prompt":"x"})").status, 200);
  held.clear();
  EXPECT_TRUE(eventually([&] { return large() == 400; }));
}

TEST(Http, SlowAndIdleConnectionsEnd) {
  server::ServerOptions options;
  // Long enough for this thread to have sent all before the first of them ends.
  options.http.read_seconds = 1.0;
  options.http.idle_seconds = 1.0;
  RunningServer server({}, std::move(options));
  Client silent(server.port());
  Client half(server.port());
  half.send_bytes("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  Client idle(server.port());
  idle.send_request("GET", "/health", "");
  EXPECT_EQ(idle.read_response().status, 200);
  EXPECT_EQ(half.read_response().status, 408);
  EXPECT_TRUE(silent.is_ended());
  EXPECT_TRUE(half.is_ended());
  EXPECT_TRUE(idle.is_ended());
}

TEST(Http, TooManyConnections) {
  server::ServerOptions options;
  options.http.max_connections = 2;
  RunningServer server({}, std::move(options));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->send_request("GET", "/health", "");
    EXPECT_EQ(clients.back()->read_response().status, 200);
  }
  Client third(server.port());
  EXPECT_EQ(third.read_response().status, 503);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return server.get("/health").status == 200; }));
}

TEST(Http, GoneClientsCancel) {
  RunningServer server(endless());
  for (const char* stream : {"true", "false"}) {
    for (const char* prompt : {"HANG", "endless"}) {
      const int before = server.service().cancelled();
      Client client(server.port());
      client.send_request("POST", "/v1/completions",
                          std::string(R"({"max_tokens":1000000,"n":2,"prompt":")") + prompt +
                              R"(","stream":)" + stream + "}");
      ASSERT_TRUE(eventually([&] { return server.service().running() == 2; }));
      client.hang_up();
      EXPECT_TRUE(eventually([&] { return server.service().cancelled() == before + 2; }));
      EXPECT_TRUE(eventually([&] { return server.service().running() == 0; }));
    }
  }
}

TEST(Http, SlowReadersAreDropped) {
  server::ServerOptions options;
  options.http.max_unsent_bytes = 64 << 10;
  RunningServer server(endless(0), std::move(options));
  Client slow(server.port(), 4096);
  slow.send_request("POST", "/v1/completions",
                    R"({"prompt":"x","max_tokens":1000000,"stream":true})");
  EXPECT_TRUE(eventually([&] { return server.service().cancelled() == 1; }));
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST(Http, StalledReadersAreDropped) {
  server::ServerOptions options;
  options.http.write_seconds = 0.2;
  options.http.max_unsent_bytes = size_t{1} << 30;
  RunningServer server(endless(0), std::move(options));
  Client stalled(server.port(), 4096);
  stalled.send_request("POST", "/v1/completions",
                       R"({"prompt":"x","max_tokens":1000000,"stream":true})");
  EXPECT_TRUE(eventually([&] { return server.service().cancelled() == 1; }));
}

TEST(Http, ManyAtOnceAreNotMixedUp) {
  RunningServer server;
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&, i] {
      Client client(server.port());
      for (int round = 0; round < 3; ++round) {
        const std::string prompt =
            "client " + std::to_string(i) + " round " + std::to_string(round);
        const bool stream = (i + round) % 2 == 0;
        client.send_request("POST", "/v1/completions",
                            R"({"max_tokens":99,"prompt":")" + prompt + "\"" +
                                (stream ? R"(,"stream":true})" : "}"));
        const Response response = client.read_response();
        std::string text;
        if (stream) {
          for (const Json& event : response.events()) {
            text += event["choices"][0]["text"].get<std::string>();
          }
        } else {
          text = response.json()["choices"][0]["text"].get<std::string>();
        }
        if (text == "You said: " + prompt) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 64 * 3);
}

TEST(Drain, FinishesWhatWasBegun) {
  // It takes a second, in which this thread has looked at it.
  test::FakeService::Options slow = says(std::string(400, 'x'));
  slow.pause = std::chrono::milliseconds(5);
  RunningServer server(std::move(slow));
  Client idle(server.port());
  idle.send_request("GET", "/health", "");
  EXPECT_EQ(idle.read_response().status, 200);
  Client busy(server.port());
  busy.send_request("POST", "/v1/completions", R"({"prompt":"x","max_tokens":500,"stream":true})");
  ASSERT_TRUE(busy.wait_for("data: "));
  server.server().drain();
  EXPECT_GE(server.server().busy(), 1);
  EXPECT_TRUE(idle.is_ended());
  const Response response = busy.read_response();
  EXPECT_THAT(response.body, HasSubstr("[DONE]"));
  EXPECT_TRUE(eventually([&] { return server.server().busy() == 0; }));
  EXPECT_EQ(server.get("/health").status, 0);
}

TEST(Drain, NewConnectionsAreToldUntilItIsOver) {
  RunningServer server;
  Client busy(server.port());
  busy.send_request("POST", "/v1/completions", kHang);
  ASSERT_TRUE(eventually([&] { return server.service().running() == 1; }));
  server.server().drain();
  // One that says nothing holds nobody up.
  Client silent(server.port());
  Client slow(server.port());
  slow.send_bytes("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  for (int i = 0; i < 3; ++i) {
    const Response refused = server.complete("");
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.header("Retry-After"), "1");
    EXPECT_EQ(refused.header("Connection"), "close");
    EXPECT_EQ(server.get("/ready").status, 503);
    EXPECT_EQ(server.get("/health").status, 200);
  }
  busy.hang_up();
  EXPECT_TRUE(eventually([&] { return server.server().busy() == 0; }));
  EXPECT_TRUE(eventually([&] { return server.get("/health").status == 0; }));
}

TEST(Drain, RefusesOnConnectionsThatAreBusy) {
  RunningServer server(endless());
  Client busy(server.port());
  // The second waits in the connection behind the first.
  busy.send_request("POST", "/v1/completions", R"({"prompt":"x","max_tokens":50})");
  busy.send_request("GET", "/ready", "");
  ASSERT_TRUE(busy.wait_for("HTTP/1.1 200"));
  server.server().drain();
  EXPECT_TRUE(busy.is_ended());
}

TEST(Drain, StopCancelsWhatIsLeft) {
  RunningServer server;
  Client client(server.port());
  client.send_request("POST", "/v1/completions", kHang);
  ASSERT_TRUE(eventually([&] { return server.service().running() == 1; }));
  server.stop();
  EXPECT_EQ(server.service().running(), 0);
  EXPECT_TRUE(client.is_ended());
}

TEST(Keys, FilesAndHashes) {
  using Entry = server::ApiKeys::Entry;
  server::ApiKeys keys;
  ASSERT_TRUE(
      keys.add_lines("# keys\n\nplain-key alice\nsha256:" + server::hash_key("hashed") + "\r\n",
                     "keys")
          .ok());
  EXPECT_EQ(keys.find("plain-key").value_or(Entry()).name, "alice");
  EXPECT_THAT(keys.find("hashed").value_or(Entry()).name, StartsWith("key-"));
  for (const char* wrong : {"", "plain-ke", "plain-key2", "alice", "sha256:"}) {
    EXPECT_FALSE(keys.find(wrong)) << wrong;
  }
  EXPECT_EQ(server::hash_key("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const Status bad = server::ApiKeys().add_lines("good\nsha256:12 secret\n", "keys");
  EXPECT_THAT(bad.message(), StartsWith("keys, line 2: "));
  EXPECT_THAT(bad.message(), ::testing::Not(HasSubstr("secret")));
  EXPECT_FALSE(server::ApiKeys().add_file("/no/such/file").ok());
  EXPECT_THAT(server::ApiKeys().add_file("/").message(), HasSubstr("folder"));
  EXPECT_FALSE(keys.add_file("/dev/null").ok());  // though there are keys of other files
}

TEST(Keys, AreWantedWhereTheyAreWanted) {
  server::ServerOptions options;
  ASSERT_TRUE(options.gate.keys.add("a-secret", "alice").ok());
  RunningServer server(says("abc"), std::move(options));
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/v1/models").json()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(server.get("/v1/models").header("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(server.get("/metrics").status, 401);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(server.get("/v1/models", "Authorization: a-secret\r\n").status, 401);
  EXPECT_EQ(server.get("/v1/models", "authorization: bearer  a-secret\r\n").status, 200);
  for (const char* path : {"/health", "/ready", "/"}) EXPECT_EQ(server.get(path).status, 200);
  server.post("/v1/completions", R"({"prompt":"x"})", "Authorization: Bearer a-secret\r\n");
  EXPECT_EQ(server.service().last().client, "alice");
}

// A stranger's body is not even read.
TEST(Keys, BodiesOfThoseWithoutAre) {
  server::ServerOptions options;
  ASSERT_TRUE(options.gate.keys.add("a-secret", "alice").ok());
  RunningServer server(says("abc"), std::move(options));
  Client stranger(server.port());
  stranger.send_bytes(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  const Response response = stranger.read_response();
  EXPECT_EQ(response.status, 401);
  EXPECT_EQ(response.header("Connection"), "close");
  EXPECT_EQ(
      server.post("/v1/completions", R"({"prompt":"x"})", "Authorization: Bearer a-secret\r\n")
          .status,
      200);
}

TEST(Http, WhatARequestWasIsForgotten) {
  RunningServer server;
  Client client(server.port());
  client.send_bytes("HEAD /health HTTP/1.1\r\nHost: x\r\nx-request-id: first\r\n\r\n");
  EXPECT_EQ(client.read_response(false).header("x-request-id"), "first");
  client.send_bytes("bad\r\n\r\n");
  const Response response = client.read_response();
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("error"));
  EXPECT_NE(response.header("x-request-id"), "first");
}

// What takes long does not keep those waiting who ask whether the server lives.
TEST(Http, HealthBesideRequestsThatWait) {
  server::ServerOptions options;
  options.http.handler_threads = 1;
  test::FakeService::Options slow;
  std::atomic<bool> begun = false, goes_on = false;
  slow.reply = [&](const std::string&) {
    begun = true;
    EXPECT_TRUE(eventually([&] { return goes_on.load(); }));
    return "abc";
  };
  RunningServer server(std::move(slow), std::move(options));
  Client waiting(server.port());
  waiting.send_request("POST", "/v1/completions", R"({"prompt":"x"})");
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  EXPECT_EQ(server.get("/health").status, 200);
  goes_on = true;
  EXPECT_EQ(waiting.read_response().status, 200);
}

TEST(Cors, PagesOfOthersMayNotAsk) {
  const auto status = [](const RunningServer& server, const std::string& origin,
                         const std::string& host) {
    Client client(server.port());
    client.send_bytes("POST /v1/completions HTTP/1.1\r\nHost: " + host + "\r\nOrigin: " + origin +
                      "\r\nContent-Type: text/plain\r\nAuthorization: Bearer a-secret\r\n"
                      "Content-Length: 14\r\n\r\n"
                      R"({"prompt":"x"})");
    return client.read_response().status;
  };
  server::ServerOptions options;
  options.gate.cors_origins = {"https://a.example"};
  RunningServer server(says("abc"), options);
  EXPECT_EQ(status(server, "https://a.example", "127.0.0.1:80"), 200);
  EXPECT_EQ(status(server, "http://evil.example", "127.0.0.1:80"), 403);
  EXPECT_EQ(status(server, "null", "127.0.0.1:80"), 403);
  for (const char* host : {"127.0.0.1:80", "localhost:80", "[::1]:80", "192.0.2.7"}) {
    EXPECT_EQ(status(server, std::string("http://") + host, host), 200) << host;
  }
  EXPECT_EQ(status(server, "http://rebound.example", "rebound.example"), 403);
  ASSERT_TRUE(options.gate.keys.add("a-secret").ok());
  RunningServer with_keys(says("abc"), options);
  EXPECT_EQ(status(with_keys, "http://chat.example", "chat.example"), 200);
  EXPECT_EQ(status(with_keys, "http://evil.example", "chat.example"), 403);
}

// A page whose name was made to stand for this machine asks for what is its own, as browsers see
// it: no origin is named.
TEST(Cors, NamesOfOthersReachNothing) {
  const auto status = [](const RunningServer& server, const std::string& path,
                         const std::string& host, const std::string& method = "GET") {
    Client client(server.port());
    client.send_bytes(method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.read_response(method == "GET").status;
  };
  server::ServerOptions options;
  options.gate.cors_origins = {"https://chat.example"};
  RunningServer server(says("abc"), options);
  for (const char* path : {"/metrics", "/v1/models", "/version", "/openapi.json", "/"}) {
    EXPECT_EQ(status(server, path, "rebound.example"), 403) << path;
    EXPECT_EQ(status(server, path, "rebound.example:8000", "HEAD"), 403) << path;
    EXPECT_EQ(status(server, path, ""), 403) << path;
    EXPECT_EQ(status(server, path, "127.0.0.1.rebound.example"), 403) << path;
    for (const char* host : {"127.0.0.1:80", "localhost:80", "[::1]:80", "192.0.2.7", "gpu-box:80",
                             "a.localhost", "aerie.default.svc.cluster.local", "chat.example"}) {
      EXPECT_EQ(status(server, path, host), 200) << host;
    }
  }
  for (const char* path : {"/health", "/ready"}) {
    EXPECT_EQ(status(server, path, "rebound.example"), 200);
  }
  ASSERT_TRUE(options.gate.keys.add("a-secret").ok());
  RunningServer with_keys(says("abc"), options);
  EXPECT_EQ(status(with_keys, "/metrics", "chat.example"), 401);
  EXPECT_EQ(with_keys.get("/metrics", "Authorization: Bearer a-secret\r\n").status, 200);
}

TEST(Cors, OriginsThatNoBrowserSends) {
  for (const char* good : {"*", "https://chat.example", "http://localhost:8080", "http://[::1]:80",
                           "chrome-extension://abcdef", "tauri://localhost", "http://192.0.2.7"}) {
    EXPECT_TRUE(server::check_origin(good).ok()) << good;
  }
  for (const char* bad : {"",
                          "bogus",
                          "null",
                          "chat.example",
                          "https://",
                          "://chat.example",
                          "https://chat.example/",
                          "https://Chat.example",
                          "HTTPS://chat.example",
                          "https://chat.example:",
                          "https://a:b",
                          "https://chat.example:123456",
                          "https://a b",
                          "https://*.example",
                          "https://u@a",
                          "**",
                          "https://chat.example?x",
                          "http://[::1",
                          "https://a,https://b",
                          "https://a\r\nX: y"}) {
    EXPECT_EQ(server::check_origin(bad).code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Cors, OnlyForThoseNamed) {
  RunningServer closed;
  EXPECT_EQ(
      closed.get("/health", "Origin: https://a.example\r\n").header("Access-Control-Allow-Origin"),
      "");
  server::ServerOptions options;
  options.gate.cors_origins = {"https://a.example"};
  RunningServer server({}, std::move(options));
  const auto allowed = [&](const char* origin) {
    return server.get("/health", std::string("Origin: ") + origin + "\r\n")
        .header("Access-Control-Allow-Origin");
  };
  EXPECT_EQ(allowed("https://a.example"), "https://a.example");
  EXPECT_EQ(allowed("https://b.example"), "");
  const Response preflight = test::exchange(server.port(), "OPTIONS", "/v1/chat/completions", "",
                                            "Origin: https://a.example\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_THAT(preflight.header("Access-Control-Allow-Headers"), HasSubstr("Authorization"));
  // The official client's own, for one.
  EXPECT_EQ(test::exchange(server.port(), "OPTIONS", "/v1/chat/completions", "",
                           "Origin: https://a.example\r\n"
                           "Access-Control-Request-Headers: authorization, x-stainless-os\r\n")
                .header("Access-Control-Allow-Headers"),
            "authorization, x-stainless-os");
}

TEST(Log, TellsOfEveryRequest) {
  std::mutex mutex;
  std::vector<Json> lines;
  server::ServerOptions options;
  options.gate.log = [&](const Json& event) {
    const std::lock_guard lock(mutex);
    lines.push_back(event);
  };
  RunningServer server(says("abc"), std::move(options));
  server.post("/v1/completions", R"({"prompt":"x"})", "x-request-id: r1\r\n");
  server.get("/nowhere");
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return lines.size() == 2;
  }));
  if (lines[0]["request_id"] != "r1") std::swap(lines[0], lines[1]);
  EXPECT_EQ(lines[0]["request_id"], "r1");
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[1]["status"], 404);
  EXPECT_EQ(lines[1]["path"], "/nowhere");
}

// What takes long about an answer is done by a thread that handles requests; by the caller once
// there is none.
TEST(HttpServer, RunsWorkForAnswers) {
  std::shared_ptr<server::Answer> kept;
  std::atomic<bool> handled = false;
  auto started = server::HttpServer::start(
      {}, [&](const server::HttpRequest&, std::shared_ptr<server::Answer> answer) {
        kept = std::move(answer);
        handled = true;
      });
  ASSERT_TRUE(started.ok()) << started.status().message();
  Client client((*started)->port());
  client.send_request("POST", "/", "");
  ASSERT_TRUE(eventually([&] { return handled.load(); }));
  std::thread::id ran_by;
  kept->run([&] {
    ran_by = std::this_thread::get_id();
    kept->send(200, "text/plain", "made", {});
  });
  EXPECT_EQ(client.read_response().body, "made");
  EXPECT_NE(ran_by, std::this_thread::get_id());
  (*started)->stop();
  bool ran = false;
  kept->run([&] { ran = true; });
  EXPECT_TRUE(ran);
  started->reset();
  kept->run([&] { ran = false; });
  EXPECT_FALSE(ran);
}

TEST(HttpServer, SaysWhyItCannotStart) {
  test::FakeService service;
  server::ServerOptions options;
  options.http.host = "192.0.2.1";
  EXPECT_EQ(server::Server::start(service, options).status().code(), StatusCode::kInvalidArgument);
  options.http.host = "127.0.0.1";
  options.http.tls_certificate = "/no/such/file";
  EXPECT_FALSE(server::Server::start(service, options).ok());
  options.http.tls_key = "/no/such/key";
  EXPECT_THAT(server::Server::start(service, options).status().message(),
              StartsWith("/no/such/file"));
}

}  // namespace aerie::http_test
