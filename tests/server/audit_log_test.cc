// The audit log: what is in it, what must not be, and files that fail.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "server/access/audit_log.h"
#include "tests/server/running_server.h"

namespace aerie::server_audit_log_test {

using server::AuditLog;
using test::Client;
using test::eventually;
using test::Response;
using test::RunningServer;
using test::says;
using ::testing::HasSubstr;

class Audit : public ::testing::Test {
 protected:
  Audit() {
    char name[] = "/tmp/aerie_audit_XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/audit.log";
  }
  ~Audit() override { std::filesystem::remove_all(folder_); }

  Expected<std::unique_ptr<AuditLog>> open(const std::string& path) {
    return AuditLog::open(path, [this](const std::string& message) {
      const std::lock_guard lock(mutex_);
      warnings_ += message + "\n";
    });
  }
  std::string warnings() {
    const std::lock_guard lock(mutex_);
    return warnings_;
  }
  static std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // Those of requests.
  std::vector<Json> lines() const {
    std::vector<Json> out;
    std::istringstream text(text_of(path_));
    for (std::string line; std::getline(text, line);) {
      auto value = parse_json(line, "line");
      EXPECT_TRUE(value.ok()) << line;
      if (value.ok() && (*value)["event"] == "request") out.push_back(std::move(*value));
    }
    return out;
  }
  static Json request(const std::string& id) {
    return {
        {"event", "request"}, {"request_id", id}, {"ms", 1500.0}, {"path", "/said-by-a-client"}};
  }

  std::string folder_;
  std::string path_;

 private:
  std::mutex mutex_;
  std::string warnings_;
};

TEST_F(Audit, EachRequestAndNoText) {
  auto log = open(path_);
  ASSERT_TRUE(log.ok()) << log.status().message();
  server::ServerOptions options;
  ASSERT_TRUE(options.gate.keys.add("secret-key", "alice").ok());
  options.gate.log = [to = log->get()](const Json& event) { to->add(event); };
  {
    RunningServer server(says("secret-reply"), std::move(options));
    constexpr char kKey[] = "Authorization: Bearer secret-key\r\nx-request-id: r1\r\n";
    const Response response = server.post(
        "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"secret-prompt"}],"user":"secret-user","max_tokens":40,)"
        R"("n":2,"safety_identifier":"secret-user","metadata":{"a":"secret-user"},)"
        R"("traffic_class":"secret-class","cache_salt":"secret-salt",)"
        R"("response_format":{"type":"json_schema","json_schema":{"name":"secret-schema",)"
        R"("schema":{"type":"object","title":"secret-schema"}}}})",
        kKey);
    ASSERT_EQ(response.status, 200) << response.body;
    const Json usage = response.json()["usage"];
    // A line comes when all that was done for its request has ended, after the answer.
    const auto come = [&](size_t count) {
      return eventually([&] { return lines().size() == count; });
    };
    ASSERT_TRUE(come(1));
    server.get("/secret-path?secret-query=1", kKey);
    ASSERT_TRUE(come(2));
    server.get("/v1/models/secret-model", kKey);
    ASSERT_TRUE(come(3));
    server.post("/v1/completions", R"({"model":"secret-model","prompt":"x"})", kKey);
    ASSERT_TRUE(come(4));
    server.post("/v1/completions", R"({"prompt":"x"})", "Authorization: Bearer secret-wrong\r\n");
    ASSERT_TRUE(come(5));
    Client gone(server.port());
    gone.send_request("POST", "/v1/completions", R"({"prompt":"HANG","stream":true})", kKey);
    ASSERT_TRUE(eventually([&] { return server.service().running() == 1; }));
    gone.hang_up();
    ASSERT_TRUE(come(6));
    const std::vector<Json> all = lines();
    EXPECT_EQ(all[0]["request_id"], "r1");
    EXPECT_EQ(all[0]["key"], "alice");
    EXPECT_EQ(all[0]["client"], "127.0.0.1");
    EXPECT_EQ(all[0]["method"], "POST");
    EXPECT_EQ(all[0]["route"], "/v1/chat/completions");
    EXPECT_EQ(all[0]["model"], "fake-model");
    EXPECT_EQ(all[0]["status"], 200);
    EXPECT_EQ(all[0]["prompt_tokens"], usage["prompt_tokens"]);
    EXPECT_EQ(all[0]["generated_tokens"], usage["completion_tokens"]);
    EXPECT_EQ(all[0]["cached_tokens"], 3);
    EXPECT_GT(all[0]["drafted"], 0);
    EXPECT_GT(all[0]["accepted"], 0);
    EXPECT_GE(all[0]["seconds"], 0.0);
    EXPECT_THAT(all[0]["time"].get<std::string>(), HasSubstr("T"));
    EXPECT_EQ(all[1]["route"], nullptr);
    EXPECT_EQ(all[1]["status"], 404);
    EXPECT_EQ(all[2]["route"], "/v1/models/{model}");
    EXPECT_EQ(all[3]["model"], nullptr);
    EXPECT_EQ(all[4]["status"], 401);
    EXPECT_EQ(all[4]["key"], nullptr);
    EXPECT_EQ(all[5]["answer"], "client gone");
    EXPECT_EQ(all[5]["prompt_tokens"], 4);
  }
  log->reset();
  EXPECT_THAT(text_of(path_), ::testing::Not(HasSubstr("secret")));
}

TEST_F(Audit, AddsToWhatIsThereAndSurvivesRotation) {
  std::ofstream(path_) << R"({"event":"request","request_id":"old"})"
                       << "\n";
  auto log = open(path_);
  ASSERT_TRUE(log.ok());
  (*log)->add(request("one"));
  ASSERT_TRUE(eventually([&] { return lines().size() == 2; }));
  EXPECT_EQ(lines()[0]["request_id"], "old");
  EXPECT_EQ(lines()[1]["seconds"], 1.5);
  EXPECT_FALSE(lines()[1].contains("path"));
  const std::string moved = path_ + ".1";
  std::filesystem::rename(path_, moved);
  (*log)->add(request("two"));
  ASSERT_TRUE(eventually([&] { return text_of(moved).find("two") != std::string::npos; }));
  (*log)->reopen();
  (*log)->add(request("three"));
  ASSERT_TRUE(eventually([&] { return lines().size() == 1; }));
  EXPECT_EQ(lines()[0]["request_id"], "three");
  struct stat is = {};
  ASSERT_EQ(stat(path_.c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 07, 0u);
  // Others have it no more, or not yet: the one that is open goes on.
  std::filesystem::rename(path_, moved);
  std::filesystem::create_directory(path_);
  (*log)->reopen();
  (*log)->add(request("four"));
  ASSERT_TRUE(eventually([&] { return text_of(moved).find("four") != std::string::npos; }));
  EXPECT_THAT(warnings(), HasSubstr(path_ + ": the audit log cannot be opened: Is a directory"));
  EXPECT_EQ((*log)->lost(), 0);
}

TEST_F(Audit, FilesThatCannotBeWrittenAreErrorsAtStart) {
  for (const std::string& bad : {folder_, folder_ + "/none/audit.log", std::string("/dev/full")}) {
    const auto log = open(bad);
    ASSERT_FALSE(log.ok()) << bad;
    EXPECT_THAT(log.status().message(), ::testing::StartsWith(bad + ": the audit log cannot be "));
  }
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(open(path_).ok());  // nobody reads it, and it is not waited for
}

TEST_F(Audit, AFullDiskLosesLinesAndNothingElse) {
  const std::string good = folder_ + "/good";
  std::filesystem::create_symlink(good, path_);
  auto log = open(path_);
  ASSERT_TRUE(log.ok());
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/dev/full", path_);
  (*log)->reopen();
  for (int i = 0; i < 5; ++i) (*log)->add(request("lost"));
  ASSERT_TRUE(eventually([&] { return (*log)->lost() == 6; }));  // with that of the opening
  EXPECT_EQ(warnings(), "error: " + path_ +
                            ": the audit log cannot be written: No space left on device: requests "
                            "go on without it\n");
  EXPECT_THAT((*log)->metrics(), HasSubstr("\naerie:audit_lines_lost_total 6\n"));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(good, path_);
  (*log)->reopen();
  (*log)->add(request("kept"));
  ASSERT_TRUE(eventually([&] { return lines().size() == 1; }));
  EXPECT_THAT(warnings(), HasSubstr("is written again; 6 lines were lost"));
}

}  // namespace aerie::server_audit_log_test
