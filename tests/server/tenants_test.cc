// What a client sees over HTTP of what others asked: nothing, unless the operator joins them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "engine/service.h"
#include "kernels/kv_layout.h"
#include "tests/server/running_server.h"
#include "tests/testing/temporary_model.h"

namespace aerie::server_tenants_test {

using test::Response;
using test::RunningServer;
using ::testing::HasSubstr;

constexpr char kA[] = "Authorization: Bearer key-a\r\n";
constexpr char kB[] = "Authorization: Bearer key-b\r\n";

server::ServerOptions options_of(server::TenantBy by, bool keys = true) {
  server::ServerOptions options;
  options.api.tenant_by = by;
  options.api.allow_trace = true;
  if (keys) {
    EXPECT_TRUE(options.gate.keys.add("key-a", "one").ok());
    EXPECT_TRUE(options.gate.keys.add("key-b", "one").ok());  // of the same name
  }
  return options;
}

std::string tenant_of(RunningServer& server, const std::string& more, const std::string& headers) {
  const Response response = server.post(
      "/v1/completions", R"({"prompt":"x")" + (more.empty() ? "" : "," + more) + "}", headers);
  EXPECT_EQ(response.status, 200) << response.body;
  return server.service().last().tenant;
}

TEST(Tenants, AreKeys) {
  RunningServer server({}, options_of(server::TenantBy::kKey));
  const std::string a = tenant_of(server, "", kA), b = tenant_of(server, "", kB);
  EXPECT_NE(a, b);
  EXPECT_EQ(tenant_of(server, "", kA), a);
  EXPECT_EQ(tenant_of(server, "", std::string(kA) + "X-Aerie-Tenant: b\r\n"), a);
  const std::string salted = tenant_of(server, R"("cache_salt":"s")", kA);
  EXPECT_NE(salted, a);
  EXPECT_NE(salted, tenant_of(server, R"("cache_salt":"s")", kB));
  EXPECT_NE(salted, tenant_of(server, R"("cache_salt":"t")", kA));
  EXPECT_EQ(salted, tenant_of(server, R"("cache_salt":"s")", kA));
}

TEST(Tenants, WithoutKeysAreAddresses) {
  RunningServer server({}, options_of(server::TenantBy::kKey, false));
  EXPECT_EQ(tenant_of(server, "", ""), "address 127.0.0.1");
}

TEST(Tenants, AreWhatAHeaderSaysWithinTheKey) {
  RunningServer server({}, options_of(server::TenantBy::kHeader));
  const auto with = [](const char* key, const std::string& tenant) {
    return std::string(key) + "X-Aerie-Tenant: " + tenant + "\r\n";
  };
  const std::string a = tenant_of(server, "", with(kA, "one"));
  const std::string client = server.service().last().client;
  EXPECT_EQ(tenant_of(server, "", with(kA, "one")), a);
  EXPECT_NE(tenant_of(server, "", with(kA, "two")), a);
  EXPECT_NE(server.service().last().client, client);
  EXPECT_NE(tenant_of(server, "", with(kB, "one")), a);
  for (const std::string& headers :
       {std::string(kA), with(kA, ""), with(kA, std::string(1025, 'x'))}) {
    const Response response = server.post("/v1/completions", R"({"prompt":"x"})", headers);
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.json()["error"]["code"], "tenant_missing");
    EXPECT_THAT(response.body, HasSubstr("X-Aerie-Tenant"));
  }
}

TEST(Tenants, CanBeJoinedButForASalt) {
  for (const bool share : {true, false}) {
    server::ServerOptions options =
        options_of(share ? server::TenantBy::kKey : server::TenantBy::kNone);
    options.api.share_learning = share;
    RunningServer server({}, std::move(options));
    EXPECT_EQ(tenant_of(server, "", kA), "");
    EXPECT_EQ(tenant_of(server, "", kB), "");
    EXPECT_NE(tenant_of(server, R"("cache_salt":"s")", kA), "");
  }
}

TEST(Tenants, ASaltIsATextOfSomeLength) {
  RunningServer server({}, options_of(server::TenantBy::kKey, false));
  for (const std::string& salt :
       {std::string("\"\""), std::string("7"), "\"" + std::string(1025, 'x') + "\""}) {
    const Response response = server.complete("\"cache_salt\":" + salt);
    EXPECT_EQ(response.status, 400) << salt.substr(0, 9);
    EXPECT_EQ(response.json()["error"]["param"], "cache_salt");
  }
}

TEST(Trace, IsTheOperatorsToAllow) {
  server::ServerOptions options = options_of(server::TenantBy::kKey, false);
  options.api.allow_trace = false;
  RunningServer server({}, std::move(options));
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses"}) {
    const Response response = server.post(
        path,
        R"({"messages":[{"role":"user","content":"x"}],"prompt":"x","input":"x","trace":true})");
    EXPECT_EQ(response.status, 403) << path;
    EXPECT_EQ(response.json()["error"]["code"], "trace_not_allowed");
    EXPECT_THAT(response.body, HasSubstr("--allow-trace"));
  }
  EXPECT_EQ(server.complete(R"("trace":false)").status, 200);
  EXPECT_EQ(server.get("/v1/models").json()["data"][0]["aerie"]["trace"], false);
}

// A real model behind the server.
class Real {
 public:
  explicit Real(server::ServerOptions options) {
    static const test::TemporaryModel model("server_tenants", [] {
      test::TinySpec spec;
      spec.tokenizer = true;
      spec.vocab = test::kByteVocab;
      spec.context = 512;
      return spec;
    }());
    EngineOptions engine;
    engine.model = model.path();
    engine.threads = 1;
    engine.speculation =
        parse_speculative_spec("suffix:suffix_decoding_spec_offset=4,gate=0").value();
    ServiceOptions service;
    service.cache_positions = 8192;
    auto opened = open_service(engine, service);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    service_ = std::move(opened).value();
    auto started = server::Server::start(*service_, std::move(options));
    EXPECT_TRUE(started.ok()) << started.status().message();
    server_ = std::move(started).value();
  }
  Response complete(const std::string& prompt, const std::string& more, const char* key) const {
    return test::exchange(server_->port(), "POST", "/v1/completions",
                          R"({"prompt":")" + prompt + "\"," + more + "}", key);
  }

 private:
  std::unique_ptr<Service> service_;
  std::unique_ptr<server::Server> server_;
};

// The secret that A is told in this round, and what stands before it.
std::string cue_of(int round) {
  return fmt::format("the word of day {} is ", round * 7919 % 1000);
}
std::string secret_of(int round) {
  std::string secret;
  for (int i = 0; i < 10; ++i) {
    secret += static_cast<char>('A' + (round * 31 + i * i * 7 + i) % 26);
  }
  return secret;
}

struct Search {
  std::string seen;  // by B: traces, figures but for times
  int found = 0;     // rounds in which a draft for B held three bytes of the secret, in order
  int cached = 0;
};

// A, where it asks, has a secret said to it behind a cue; B asks for what follows the cue, of which
// it has the last byte said to itself, since nothing is drafted for the first token.
Search search(server::ServerOptions options, int rounds, bool a_asks) {
  const Real server(std::move(options));
  const std::string question(70, 'q');
  Search out;
  for (int round = 0; round < rounds; ++round) {
    const std::string prompt = std::to_string(1000 + round) + question;
    if (a_asks) {
      // Two letters are free, since nothing is learnt before a drafter has been asked.
      const Response told = server.complete(
          prompt,
          fmt::format(R"("max_tokens":80,"structured_outputs":{{"regex":"[a-z][a-z]{}{}"}})",
                      cue_of(round), secret_of(round)),
          kA);
      EXPECT_EQ(told.status, 200) << told.body;
      EXPECT_THAT(told.body, HasSubstr(secret_of(round)));
    }
    const Response response =
        server.complete(prompt + cue_of(round).substr(0, cue_of(round).size() - 1),
                        fmt::format(R"("max_tokens":8,"seed":{},"logit_bias":{{"32":100}},)"
                                    R"("trace":true,"stream":true)",
                                    round),
                        kB);
    EXPECT_EQ(response.status, 200) << response.body;
    bool found = false;
    for (const Json& event : response.events()) {
      if (event.contains("trace")) {
        out.seen += event["trace"].dump();
        std::string drafted;
        for (const Json& node : event["trace"]["tree"]) drafted += node["text"];
        found = found || drafted.find(secret_of(round).substr(0, 3)) != std::string::npos;
      }
      if (event.contains("aerie")) {
        const Json& figures = event["aerie"];
        out.cached += figures["cached_tokens"].get<int>() / kernels::kPagePositions;
        out.seen += fmt::format(" {} {} {}\n", figures["rounds"].dump(), figures["drafted"].dump(),
                                figures["accepted"].dump());
      }
    }
    out.found += found ? 1 : 0;
  }
  return out;
}

TEST(Tenants, NothingOfOneReachesTheOtherOverHttp) {
  constexpr int kRounds = 200;
  const Search with = search(options_of(server::TenantBy::kKey), kRounds, true);
  const Search without = search(options_of(server::TenantBy::kKey), kRounds, false);
  EXPECT_EQ(with.seen, without.seen);
  EXPECT_EQ(with.found, 0);
  EXPECT_EQ(with.cached, 0);
  // The same search finds what is there to be found.
  for (const bool share : {true, false}) {
    constexpr int kFew = 20;
    server::ServerOptions options =
        options_of(share ? server::TenantBy::kKey : server::TenantBy::kNone);
    options.api.share_learning = share;
    const Search joined = search(std::move(options), kFew, true);
    EXPECT_EQ(joined.found, kFew);
    EXPECT_EQ(joined.cached, kFew);
  }
}

}  // namespace aerie::server_tenants_test
