// Who a request comes from, behind proxies, and what goes by that.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/access/trusted_proxies.h"
#include "tests/server/running_server.h"

namespace aerie::server_trusted_proxies_test {

using server::TrustedProxies;
using test::RunningServer;
using test::says;
using ::testing::HasSubstr;

TrustedProxies proxies_of(std::initializer_list<const char*> networks) {
  TrustedProxies out;
  for (const char* network : networks) EXPECT_TRUE(out.add(network).ok()) << network;
  return out;
}

TEST(TrustedProxies, AddressesAndNetworks) {
  const TrustedProxies proxies = proxies_of({"10.0.0.0/9", "192.0.2.7", "::1", "fd00::/7"});
  for (const char* in : {"10.0.0.1", "10.127.255.255", "192.0.2.7", "::ffff:192.0.2.7", "::1",
                         "fd12::1", "fc00::"}) {
    EXPECT_TRUE(proxies.trusts(in)) << in;
  }
  for (const char* out :
       {"10.128.0.0", "192.0.2.8", "::2", "fe00::1", "", "x", "10.0.0", "::", "10.0.0.1:80"}) {
    EXPECT_FALSE(proxies.trusts(out)) << out;
  }
  EXPECT_TRUE(proxies_of({"0.0.0.0/0"}).trusts("8.8.8.8"));
  EXPECT_FALSE(proxies_of({"0.0.0.0/0"}).trusts("2001:db8::1"));
  for (const char* bad : {"", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x", "::/129",
                          "localhost", "10.0.0/8", "/8"}) {
    EXPECT_EQ(TrustedProxies().add(bad).code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(TrustedProxies, TheLastThatNobodyTrustedIs) {
  const TrustedProxies proxies = proxies_of({"127.0.0.1", "10.0.0.0/8", "fd00::/8"});
  const auto client = [&](const char* forwarded, const char* peer = "127.0.0.1") {
    return proxies.client_of(peer, forwarded);
  };
  EXPECT_EQ(client("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(client("6.6.6.6, 192.0.2.1,10.0.0.5 , 10.0.0.6"), "192.0.2.1");  // 6.6.6.6 is made up
  EXPECT_EQ(client("192.0.2.1:4711"), "192.0.2.1");
  EXPECT_EQ(client("[2001:db8::1]:80"), "2001:db8::1");
  EXPECT_EQ(client("2001:DB8:0::1"), "2001:db8::1");
  EXPECT_EQ(client("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(client("10.0.0.5, 10.0.0.6"), "10.0.0.5");
  for (const char* none : {"", "unknown", "192.0.2.1, unknown", "192.0.2.1,", "[", "1.2.3.4.5"}) {
    EXPECT_EQ(client(none), "127.0.0.1") << none;
  }
  EXPECT_EQ(client("unknown, 10.0.0.6"), "10.0.0.6");
  EXPECT_EQ(client("192.0.2.1", "192.0.2.9"), "192.0.2.9");
  EXPECT_EQ(TrustedProxies().client_of("127.0.0.1", "192.0.2.1"), "127.0.0.1");
}

TEST(TrustedProxies, LimitsAndTurnsGoByTheClient) {
  server::ServerOptions options;
  ASSERT_TRUE(options.http.proxies.add("127.0.0.1").ok());
  options.gate.client_limits = server::read_limits("rpm=1, concurrent=4").value();
  RunningServer server(says("abc"), std::move(options));
  const auto ask = [&](const std::string& from) {
    return server.post("/v1/completions", R"({"prompt":"x"})", "X-Forwarded-For: " + from + "\r\n");
  };
  const test::Response first = ask("192.0.2.1");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.header("x-ratelimit-limit-requests"), "1");
  EXPECT_EQ(server.service().last().client, "192.0.2.1");
  EXPECT_EQ(server.service().last().tenant, "address 192.0.2.1");
  const test::Response second = ask("192.0.2.1");
  EXPECT_EQ(second.status, 429);
  EXPECT_THAT(second.body, HasSubstr("this address may have 1 requests a minute"));
  EXPECT_EQ(ask("192.0.2.2").status, 200);
  EXPECT_EQ(ask("192.0.2.3, 192.0.2.2").status, 429);
  EXPECT_EQ(server.get("/health", "X-Forwarded-For: 192.0.2.1\r\n").status, 200);
  EXPECT_THAT(server.get("/metrics").body, ::testing::Not(HasSubstr("aerie:key_")));
}

TEST(TrustedProxies, NobodyIsBelievedWithoutBeingTrusted) {
  server::ServerOptions options;
  options.gate.client_limits.requests = 1;
  RunningServer server(says("abc"), std::move(options));
  constexpr char kBody[] = R"({"prompt":"x"})";
  EXPECT_EQ(server.post("/v1/completions", kBody, "X-Forwarded-For: 192.0.2.1\r\n").status, 200);
  EXPECT_EQ(server.service().last().client, "127.0.0.1");
  EXPECT_EQ(server.post("/v1/completions", kBody, "X-Forwarded-For: 192.0.2.2\r\n").status, 429);
}

}  // namespace aerie::server_trusted_proxies_test
