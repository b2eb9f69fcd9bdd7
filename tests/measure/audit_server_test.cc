// Audits of a server, with one that answers as it is told; and the HTTP client by itself.

#include "measure/audit/audit_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "measure/load/http_client.h"
#include "tests/measure/scripted_http_server.h"

namespace aerie::measure::audit_server_test {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using State = AuditOutcome::State;
using Answer = HttpServer::Answer;

Record record_of(std::vector<int32_t> tokens, const std::string& text) {
  Record r;
  r.engine.context = 64;
  r.engine.threads = 1;
  r.prompt = {10, 11};
  r.prompt_text = "ask";
  r.max_tokens = 20;
  r.tokens = std::move(tokens);
  r.text = text;
  r.finish = FinishReason::kStop;
  return r;
}

std::string completion(const std::string& text, const json& ids = nullptr,
                       const std::string& reason = "stop") {
  json choice = {{"index", 0}, {"text", text}, {"finish_reason", reason}};
  if (!ids.is_null()) choice["token_ids"] = ids;
  return json{{"object", "text_completion"}, {"choices", {choice}}}.dump();
}

std::vector<AuditRecord> records_of(int count) {
  std::vector<AuditRecord> records;
  for (int i = 0; i < count; ++i) {
    records.push_back({record_of({1, 2, 3}, "one two three"), "runs:" + std::to_string(i + 1)});
  }
  return records;
}

AuditReport audit(HttpServer& server, const std::vector<AuditRecord>& records,
                  ServerAuditOptions options = {}) {
  options.url = server.url();
  auto report = audit_server(options, records);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? std::move(*report) : AuditReport();
}

// The one outcome that a server's answer leads to.
AuditOutcome outcome_of(const Answer& answer, const Record& record) {
  HttpServer server([&](const auto&, int) { return answer; });
  const AuditReport report = audit(server, {{record, "runs:1"}});
  return report.outcomes.empty() ? AuditOutcome() : report.outcomes[0];
}

AuditOutcome outcome_of(const std::string& body) {
  return outcome_of(Answer{200, body, {}}, record_of({1, 2, 3}, "one two three"));
}

TEST(AuditServer, EqualAnswers) {
  const AuditOutcome by_ids = outcome_of(completion("one two three", {1, 2, 3}));
  EXPECT_EQ(by_ids.state, State::kEqual) << by_ids.reason;
  EXPECT_EQ(by_ids.tokens, 3);
  EXPECT_FALSE(by_ids.by_text);
  const AuditOutcome by_text = outcome_of(completion("one two three"));
  EXPECT_EQ(by_text.state, State::kEqual) << by_text.reason;
  EXPECT_EQ(by_text.tokens, 0);
  EXPECT_TRUE(by_text.by_text);
  // Some servers keep the end token to themselves.
  EXPECT_EQ(outcome_of(completion("one two three", {1, 2})).state, State::kEqual);
  // And vLLM may name tokens by their ids.
  json named = json::parse(completion("one two three"));
  named["choices"][0]["logprobs"]["tokens"] = {"token_id:1", "token_id:2", "token_id:3"};
  EXPECT_EQ(outcome_of(named.dump()).tokens, 3);
  named["choices"][0]["logprobs"]["tokens"] = {"one", " two", " three"};
  EXPECT_TRUE(outcome_of(named.dump()).by_text);
}

TEST(AuditServer, DifferingAnswers) {
  const AuditOutcome ids = outcome_of(completion("one 2 three", {1, 9, 3}));
  ASSERT_TRUE(ids.divergence) << ids.reason;
  EXPECT_EQ(ids.divergence->kind, Divergence::Kind::kToken);
  EXPECT_EQ(ids.divergence->position, 1);
  EXPECT_EQ(ids.divergence->recorded_id, 2);
  EXPECT_EQ(ids.divergence->replayed_id, 9);
  const AuditOutcome more = outcome_of(completion("one two three four", {1, 2, 3, 4}));
  ASSERT_TRUE(more.divergence);
  EXPECT_EQ(more.divergence->position, 3);
  EXPECT_FALSE(more.divergence->recorded_id);
  EXPECT_EQ(more.divergence->replayed_id, 4);
  // Without the reason "stop", the end token is missing.
  const AuditOutcome fewer = outcome_of(completion("one two three", {1, 2}, "length"));
  ASSERT_TRUE(fewer.divergence);
  EXPECT_EQ(fewer.divergence->position, 2);
  EXPECT_FALSE(fewer.divergence->replayed_id);

  const AuditOutcome text = outcome_of(completion("one t\xC3\xB6o three"));
  ASSERT_TRUE(text.divergence);
  EXPECT_EQ(text.divergence->kind, Divergence::Kind::kText);
  EXPECT_EQ(text.divergence->position, 5);
  EXPECT_EQ(text.divergence->before, "one t");
  EXPECT_EQ(text.divergence->recorded, "wo three");
  const AuditOutcome reason = outcome_of(completion("one two three", nullptr, "length"));
  ASSERT_TRUE(reason.divergence);
  EXPECT_EQ(reason.divergence->kind, Divergence::Kind::kFinish);
}

// Characters are not taken apart, neither where texts differ nor where a limit cut them.
TEST(AuditServer, TextsDifferBetweenCharacters) {
  const AuditOutcome differs = outcome_of(Answer{200, completion("a\xC3\xBC", nullptr, "stop"), {}},
                                          record_of({1}, "a\xC3\xA9z"));
  ASSERT_TRUE(differs.divergence);
  EXPECT_EQ(differs.divergence->position, 1);
  EXPECT_EQ(differs.divergence->recorded, "\xC3\xA9z");
  Record cut = record_of({1, 2}, "ab\xEF\xBF\xBD");
  cut.finish = FinishReason::kLength;
  EXPECT_EQ(outcome_of(Answer{200, completion("ab", nullptr, "length"), {}}, cut).state,
            State::kEqual);
  cut.finish = FinishReason::kStop;
  EXPECT_EQ(outcome_of(Answer{200, completion("ab"), {}}, cut).state, State::kDiverged);
}

TEST(AuditServer, AsksWhatWasRecorded) {
  HttpServer server([](const auto&, int) { return Answer{200, completion("one two three"), {}}; });
  ServerAuditOptions options;
  options.model = "some/model";
  options.api_key = "secret-key";
  std::vector<AuditRecord> records = records_of(2);
  Record& sampled = records[1].record;
  sampled.sampling.temperature = 0.7;
  sampled.sampling.seed = std::numeric_limits<uint64_t>::max();
  sampled.sampling.top_p = 0.9;
  sampled.sampling.top_k = 40;
  sampled.sampling.min_p = 0.05;
  sampled.sampling.repetition_penalty = 1.25;
  sampled.sampling.penalty_window = 32;
  sampled.sampling.logit_bias = {{5, -std::numeric_limits<float>::infinity()}, {6, 1.5f}};
  sampled.stop = {"\n"};
  sampled.ignore_eos = true;
  sampled.max_tokens = 3;
  audit(server, records, options);
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(requests[0].head, AllOf(HasSubstr("POST /v1/completions "),
                                      HasSubstr("Authorization: Bearer secret-key"),
                                      HasSubstr("Content-Type: application/json")));
  // One token more than was recorded shows an end that comes later.
  EXPECT_EQ(json::parse(requests[0].body), json({{"model", "some/model"},
                                                 {"prompt", {10, 11}},
                                                 {"max_tokens", 4},
                                                 {"temperature", 0.0},
                                                 {"stream", false},
                                                 {"return_token_ids", true}}));
  EXPECT_EQ(json::parse(requests[1].body), json({{"model", "some/model"},
                                                 {"prompt", {10, 11}},
                                                 {"max_tokens", 3},
                                                 {"temperature", 0.7},
                                                 {"seed", 18446744073709551615u},
                                                 {"top_p", 0.9},
                                                 {"top_k", 40},
                                                 {"min_p", 0.05},
                                                 {"repetition_penalty", 1.25},
                                                 {"repeat_penalty", 1.25},
                                                 {"repeat_last_n", 32},
                                                 {"logit_bias", {{"5", -100.0}, {"6", 1.5}}},
                                                 {"stop", {"\n"}},
                                                 {"ignore_eos", true},
                                                 {"stream", false},
                                                 {"return_token_ids", true}}));
  options.send_text = true;
  options.model = "";
  audit(server, {records[0]}, options);
  EXPECT_EQ(json::parse(server.requests().back().body),
            json({{"prompt", "ask"}, {"max_tokens", 4}, {"temperature", 0.0}, {"stream", false}}));
}

TEST(AuditServer, SkipsWhatCannotBeAsked) {
  HttpServer server([](const auto&, int) { return Answer{200, completion("one two three"), {}}; });
  std::vector<AuditRecord> records = records_of(7);
  records[0].record.sampling.choice = 1;
  records[1].record.prompt_text.reset();
  records[2].record.tokens.clear();
  records[3].record.engine.rule = VerifyRule::kRejection;
  records[3].record.sampling.temperature = 0.5;
  records[5].record.grammar.emplace();
  records[6].record.text.reset();  // and the answer has no ids
  ServerAuditOptions options;
  options.send_text = true;
  const AuditReport report = audit(server, records, options);
  EXPECT_EQ(report.count(State::kSkipped), 6);
  EXPECT_EQ(report.outcomes[4].state, State::kEqual);
  EXPECT_EQ(server.requests().size(), 2u);
  EXPECT_THAT(report.outcomes[0].reason, HasSubstr("choice 1"));
  EXPECT_THAT(report.outcomes[1].reason, HasSubstr("--send text"));
  EXPECT_THAT(report.outcomes[3].reason, HasSubstr("rejection"));
  EXPECT_THAT(report.outcomes[5].reason, HasSubstr("grammar"));
  EXPECT_THAT(report.outcomes[6].reason, HasSubstr("no text"));
}

// What fails is told, and the others are asked all the same.
TEST(AuditServer, GoesOnAfterFailures) {
  const std::string equal = completion("one two three");
  const std::vector<Answer> answers = {
      {200, equal, {}},
      {500, "{\"error\": {\"message\": \"out of luck\"}}", {}},
      {200, "<html>\x1b[2J</html>", {}},
      {200, "{\"choices\": []}", {}},
      {200, "{\"choices\": [{\"text\": 5}]}", {}},
      {200, "{\"choices\": [{\"text\": \"x\", \"token_ids\": [-1]}]}", {}},
      {200, "", {}},
      {302, "", "Location: http://127.0.0.1:1/elsewhere\r\n"},
      {200, "", {}, false, true},
      {200, equal, {}},
  };
  const char* reasons[] = {"",          "500: ", "line 1", "choices",         "text",
                           "token_ids", "empty", "302",    "/v1/completions", ""};
  HttpServer server([&](const auto&, int number) { return answers[static_cast<size_t>(number)]; });
  const AuditReport report = audit(server, records_of(static_cast<int>(answers.size())));
  ASSERT_EQ(report.outcomes.size(), answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    const AuditOutcome& one = report.outcomes[i];
    const bool is_equal = answers[i].body == equal;
    EXPECT_EQ(one.state, is_equal ? State::kEqual : State::kFailed) << i;
    EXPECT_THAT(one.reason, HasSubstr(reasons[i])) << i;
  }
  EXPECT_THAT(report.outcomes[1].reason, HasSubstr("out of luck"));
  EXPECT_FALSE(report.all_equal());
  const std::string text = to_text(report);
  EXPECT_THAT(text,
              AllOf(HasSubstr("runs:2: failed"), HasSubstr("2 compared"), HasSubstr("8 failed")));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

std::string unused_url() {
  const HttpServer server([](const auto&, int) { return Answer(); });
  return server.url();
}

TEST(AuditServer, EndsWhereNothingAnswers) {
  ServerAuditOptions options;
  options.url = unused_url();
  int asked = 0;
  options.progress = [&](int, int) { ++asked; };
  for (const int records : {1, 5}) {
    const auto report = audit_server(options, records_of(records));
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(report.status().message(),
                AllOf(HasSubstr("nothing answers"), HasSubstr("runs:1"), HasSubstr(options.url)));
  }
  EXPECT_LE(asked, 3);
  // Not where something did.
  HttpServer server([](const auto&, int number) {
    return number == 0 ? Answer{404, "no", {}} : Answer{200, "", {}, false, true};
  });
  EXPECT_EQ(audit(server, records_of(6)).count(State::kFailed), 6);
}

TEST(AuditServer, WaitsNoLongerThanItIsTold) {
  HttpServer server([](const auto&, int) { return Answer{200, "", {}, true}; });
  ServerAuditOptions options;
  options.url = server.url();
  options.timeout = 0.2;
  EXPECT_THAT(audit_server(options, records_of(1)).status().message(), HasSubstr("timed out"));
}

TEST(AuditServer, EndsWhenItIsInterrupted) {
  std::atomic<bool> cancel = false;
  HttpServer server([&](const auto&, int number) {
    cancel = number == 1;
    return Answer{200, completion("one two three"), {}, number == 1};
  });
  ServerAuditOptions options;
  options.cancel = &cancel;
  const AuditReport report = audit(server, records_of(4), options);
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.count(State::kEqual), 1);
  EXPECT_EQ(report.count(State::kNotReached), 3);
  EXPECT_THAT(to_text(report), HasSubstr("interrupted, 3 not reached"));
}

TEST(HttpClient, RefusesWhatItCannotSend) {
  HttpOptions options;
  options.bearer = "key\r\nX-Other: 1";
  EXPECT_EQ(HttpClient::create(options).status().code(), StatusCode::kInvalidArgument);
  options.bearer = "";
  auto client = HttpClient::create(options);
  ASSERT_TRUE(client.ok());
  for (const char* url : {"", "file:///etc/passwd", "ftp://127.0.0.1/", "http://[", "gopher://x"}) {
    const auto response = client->post(url, "{}");
    ASSERT_FALSE(response.ok()) << url;
    EXPECT_EQ(response.status().code(), StatusCode::kInvalidArgument)
        << url << ": " << response.status().message();
  }
}

TEST(HttpClient, TakesNoMoreThanItMay) {
  HttpServer server([](const auto&, int number) {
    return Answer{200, std::string(number == 0 ? 1001 : 1000, 'x'), {}};
  });
  HttpOptions options;
  options.most_bytes = 1000;
  auto client = HttpClient::create(options);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->post(server.url(), "{}").status().code(), StatusCode::kResourceExhausted);
  const auto response = client->post(server.url(), "{}");
  ASSERT_TRUE(response.ok()) << response.status().message();
  EXPECT_EQ(response->body.size(), 1000u);
}

}  // namespace aerie::measure::audit_server_test
