// Loads on a server that answers as it is told, and what is made of them.

#include "measure/load/serve_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <set>
#include <sstream>

#include <atomic>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "measure/load/event_stream.h"
#include "measure/load/serve_report.h"
#include "tests/measure/scripted_http_server.h"
#include "tests/report/markup.h"

namespace aerie::measure::measure_serve_test {

using nlohmann::json;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Answer = HttpServer::Answer;
using Request = HttpServer::Request;
using State = ServeSample::State;

std::string event(const json& value) {
  return "data: " + value.dump() + "\n\n";
}

std::string chat_piece(const std::string& text) {
  return event({{"choices", {{{"index", 0}, {"delta", {{"content", text}}}}}}});
}

const std::string kEnd =
    event({{"choices", {{{"index", 0}, {"delta", json::object()}, {"finish_reason", "stop"}}}}});

std::string usage(int prompt, int output) {
  return event({{"choices", json::array()},
                {"usage", {{"prompt_tokens", prompt}, {"completion_tokens", output}}}});
}

Answer stream_of(std::vector<std::string> pieces) {
  Answer answer;
  answer.headers = "Content-Type: text/event-stream\r\n";
  answer.pieces = std::move(pieces);
  answer.pieces.emplace_back("data: [DONE]\n\n");
  answer.pause = std::chrono::milliseconds(3);
  return answer;
}

Answer three_pieces() {
  return stream_of({event({{"choices", {{{"delta", {{"role", "assistant"}}}}}}}),
                    chat_piece("one "), chat_piece("two "), chat_piece("three"), kEnd,
                    usage(7, 9)});
}

bool asks_for(const Request& request, const std::string& path) {
  return request.head.find(" " + path + " ") != std::string::npos;
}

// Models and metrics as Aerie has them; replies from `reply`.
class FakeServer {
 public:
  using Handler = std::function<Answer(const json& body)>;

  explicit FakeServer(Handler reply)
      : reply_(std::move(reply)),
        server_([this](const Request& request, int) { return answer(request); }) {}

  // Before it is asked: the tokens of a request for them. Null: there is no such path.
  std::function<std::vector<int>(const json& body)> tokenize;

  std::string url() const { return server_.url(); }
  std::vector<json> bodies() {
    std::vector<json> out;
    for (const Request& request : server_.requests()) {
      if (asks_for(request, "/tokenize")) continue;
      if (!request.body.empty()) out.push_back(json::parse(request.body));
    }
    return out;
  }

 private:
  Answer answer(const Request& request) {
    if (asks_for(request, "/v1/models")) {
      const json model = {{"id", "some-model"}, {"aerie", {{"speculations", {"auto", "none"}}}}};
      return {200, json{{"data", {model}}}.dump(), {}};
    }
    if (asks_for(request, "/tokenize")) {
      return tokenize
                 ? Answer{200, json{{"tokens", tokenize(json::parse(request.body))}}.dump(), {}}
                 : Answer{404, "not found", {}};
    }
    if (asks_for(request, "/metrics")) return {200, metrics(), {}};
    const json body = json::parse(request.body);
    if (body.value("speculation", json()) != "off") ++drafting_;
    return reply_(body);
  }

  std::string metrics() const {
    const std::string n = std::to_string(drafting_);
    return "# TYPE vllm:spec_decode_num_drafts_total counter\n"
           "vllm:spec_decode_num_drafts_total{model_name=\"a b\"} " +
           n +
           "0\n"
           "vllm:spec_decode_num_draft_tokens_total{model_name=\"a b\"} " +
           n +
           "00.0\n"
           "vllm:spec_decode_num_accepted_tokens_total{model_name=\"a b\"} " +
           n +
           "5\n"
           "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} " +
           n +
           "0\n"
           "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} " +
           n + "\n";
  }

  Handler reply_;
  int drafting_ = 0;  // requests so far
  HttpServer server_;
};

class ServeBenchTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "serve_prompts.jsonl";
    std::ofstream(path_) << "{\"turns\": [\"first\", \"later\"]}\n{\"prompt\": \"second\"}\n"
                         << "{\"messages\": [{\"role\": \"system\", \"content\": \"be\"}, "
                            "{\"role\": \"user\", \"content\": \"third\"}]}\n";
    options_.datasets = {path_};
    options_.target.timeout = 20;
  }
  void TearDown() override { std::remove(path_.c_str()); }

  ServeReport run(FakeServer& server) {
    options_.target.url = server.url();
    auto report = bench_serve(options_);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? std::move(*report) : ServeReport();
  }

  std::string path_;
  ServeOptions options_;
};

// Words are tokens of their length, lines end in 9, and 1 comes before a text; a template adds 3.
std::vector<int> tokens_of(const json& body) {
  const bool chat = body.contains("messages");
  const std::string text =
      chat ? body["messages"][0]["content"].get<std::string>() : body["prompt"].get<std::string>();
  std::vector<int> ids;
  if (chat) ids = {1, 7, 7, 7};
  if (!chat && body["add_special_tokens"] == true) ids = {1};
  std::istringstream words(text);
  for (std::string word; words >> word;) ids.push_back(100 + static_cast<int>(word.size()));
  ids.insert(ids.end(), static_cast<size_t>(std::ranges::count(text, '\n')), 9);
  return ids;
}

TEST_F(ServeBenchTest, RandomPromptsHaveTheirLength) {
  options_.datasets.clear();
  options_.made = ServeOptions::Made::kRandom;
  options_.random = {.input = 40, .output = 20, .prefix = 6, .range = 0.5};
  options_.num_prompts = 30;
  options_.target.chat = false;
  std::vector<std::vector<json>> runs;
  for (const uint64_t seed : {0, 0, 1}) {
    FakeServer server([](const json&) { return three_pieces(); });
    server.tokenize = tokens_of;
    options_.target.seed = seed;
    const ServeReport report = run(server);
    EXPECT_EQ(report.datasets, std::vector<std::string>{"random"});
    EXPECT_EQ(report.num_prompts, 30);
    std::vector<json> bodies = server.bodies();
    ASSERT_EQ(bodies.size(), 31u);  // a first one before all
    bodies.erase(bodies.begin());
    runs.push_back(std::move(bodies));
  }
  std::set<size_t> inputs;
  std::set<int> outputs;
  for (const json& body : runs[0]) {
    const auto ids = body["prompt"].get<std::vector<int>>();
    EXPECT_EQ(ids.front(), 1);
    // The token before the text is one of the 40.
    inputs.insert(ids.size() - 6);
    outputs.insert(body["max_tokens"].get<int>());
    EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + 7, runs[0][0]["prompt"].begin()));
  }
  EXPECT_GE(*inputs.begin(), 20u);
  EXPECT_LE(*inputs.rbegin(), 60u);
  EXPECT_GT(inputs.size(), 10u);
  EXPECT_GE(*outputs.begin(), 10);
  EXPECT_LE(*outputs.rbegin(), 30);
  EXPECT_GT(outputs.size(), 8u);
  const auto prompts = [](const std::vector<json>& bodies) {
    std::multiset<std::string> all;
    for (const json& body : bodies) all.insert(body["prompt"].dump());
    return all;
  };
  EXPECT_EQ(prompts(runs[0]), prompts(runs[1]));
  EXPECT_NE(prompts(runs[0]), prompts(runs[2]));
}

TEST_F(ServeBenchTest, RandomPromptsAsTexts) {
  options_.datasets.clear();
  options_.made = ServeOptions::Made::kRandom;
  options_.random = {.input = 16, .output = 4, .prefix = 0, .range = 0};
  options_.num_prompts = 2;
  for (const bool counts : {true, false}) {
    FakeServer server([](const json&) { return three_pieces(); });
    if (counts) server.tokenize = tokens_of;
    options_.target.chat = counts;
    std::string said;
    options_.note = [&](const std::string& text) { said += text; };
    run(server);
    EXPECT_EQ(said.find("estimated") == std::string::npos, counts) << said;
    for (const json& body : server.bodies()) {
      const std::string text = counts ? body["messages"][0]["content"].get<std::string>()
                                      : body["prompt"].get<std::string>();
      EXPECT_EQ(std::ranges::count(text, ' '), counts ? 15 : 16);  // one is before the text
    }
  }
}

TEST_F(ServeBenchTest, LinesOfAPoem) {
  const std::string poem = testing::TempDir() + "serve_poem.txt";
  std::ofstream file(poem);
  for (int i = 0; i < 20; ++i) file << "line " << std::string(i + 2, 'a') << " of poem\n\n";
  file.close();
  options_.datasets = {poem};
  options_.made = ServeOptions::Made::kSonnet;
  options_.sonnet = {.input = 96, .output = 12, .prefix = 40};
  options_.num_prompts = 5;
  FakeServer server([](const json&) { return three_pieces(); });
  server.tokenize = tokens_of;
  const ServeReport report = run(server);
  EXPECT_EQ(report.datasets, (std::vector<std::string>{"sonnet", poem}));
  EXPECT_EQ(report.max_tokens, 12);
  std::set<std::string> texts;
  for (const json& body : server.bodies()) {
    const std::string text = body["messages"][0]["content"];
    texts.insert(text);
    const size_t taken = tokens_of(body).size();
    EXPECT_LE(taken, 96u);
    EXPECT_GT(taken, 85u);
    EXPECT_THAT(text, testing::StartsWith("Pick as many lines as you can from these poem lines:\n"
                                          "line aa of poem\nline aaa of poem\n"));
  }
  EXPECT_EQ(texts.size(), 5u);

  const auto refusal = [&] { return bench_serve(options_).status().message(); };
  options_.sonnet.input = 10;
  EXPECT_THAT(refusal(), HasSubstr("--sonnet-input-len 10"));
  options_.sonnet = {.input = 50, .output = 12, .prefix = 80};
  EXPECT_THAT(refusal(), HasSubstr("--sonnet-prefix-len"));
  options_.datasets.clear();
  EXPECT_THAT(refusal(), HasSubstr("--dataset-path"));
  options_.made = ServeOptions::Made::kRandom;
  options_.random.range = 1;
  EXPECT_THAT(refusal(), HasSubstr("--random-range-ratio"));
  std::remove(poem.c_str());
}

TEST_F(ServeBenchTest, AsksAndMeasures) {
  FakeServer server([](const json&) {
    Answer answer = three_pieces();
    answer.pause = std::chrono::milliseconds(20);
    return answer;
  });
  options_.target.seed = 40;
  options_.target.extra = {{"top_k", 5}, {"seed", 1}};
  options_.target.max_tokens = 32;
  const ServeReport report = run(server);
  ASSERT_EQ(report.runs.size(), 1u);
  EXPECT_EQ(report.model, "some-model");
  const ServeFigures& f = report.runs[0].figures;
  EXPECT_EQ(f.completed, 3);
  EXPECT_EQ(f.failed, 0);
  EXPECT_EQ(f.prompt_tokens, 21);
  EXPECT_EQ(f.output_tokens, 27);
  EXPECT_TRUE(f.counted);
  // Each piece comes 20 ms after the one before: the first text is the second of them. Behind one
  // that is read late the next seems to come sooner.
  EXPECT_GE(f.first_token.median, 40.0);
  EXPECT_GE(f.between_pieces.median, 10.0);
  EXPECT_GE(f.end_to_end.median, 80.0);
  EXPECT_NEAR(f.per_output_token.mean, (f.end_to_end.mean - f.first_token.mean) / 8, 1e-6);
  EXPECT_NEAR(f.output_per_second, 27 / f.seconds, 1e-9);
  EXPECT_NEAR(f.tokens_per_second, 48 / f.seconds, 1e-9);
  const auto bodies = server.bodies();
  ASSERT_EQ(bodies.size(), 4u);  // one comes first, to see whether it works
  EXPECT_EQ(bodies[1], json({{"model", "some-model"},
                             {"messages", {{{"role", "user"}, {"content", "first"}}}},
                             {"max_tokens", 32},
                             {"temperature", 0.0},
                             {"seed", 1},
                             {"top_k", 5},
                             {"stream", true},
                             {"stream_options", {{"include_usage", true}}}}));
  EXPECT_EQ(bodies[3]["messages"][0]["role"], "system");
  EXPECT_FALSE(report.warmed);
}

TEST_F(ServeBenchTest, CompletionsAndSeeds) {
  FakeServer server([](const json& body) {
    EXPECT_FALSE(body.contains("messages"));
    return stream_of({event({{"choices", {{{"text", "x"}}}}}),
                      event({{"choices", {{{"text", "y"}, {"finish_reason", "length"}}}}})});
  });
  options_.target.chat = false;
  options_.target.seed = 40;
  options_.num_prompts = 5;
  const ServeReport report = run(server);
  // Without usage the pieces are counted.
  EXPECT_EQ(report.runs[0].figures.output_tokens, 10);
  EXPECT_FALSE(report.runs[0].figures.counted);
  EXPECT_THAT(to_text(report), HasSubstr("does not count"));
  const auto bodies = server.bodies();
  ASSERT_EQ(bodies.size(), 6u);
  EXPECT_EQ(bodies[2]["prompt"], "second");
  EXPECT_EQ(bodies[2]["seed"], 41);
  EXPECT_EQ(bodies[4]["prompt"], "first");
  EXPECT_EQ(bodies[4]["seed"], 40 + 1'000'003);
}

// What fails is counted and told; the others go on.
TEST_F(ServeBenchTest, FailuresAreFigures) {
  std::atomic<int> number = 0;
  FakeServer server([&](const json&) -> Answer {
    switch (number++) {
      case 1:
        return {429, "{\"error\": {\"message\": \"busy\"}}", {}};
      case 2:
        return stream_of({chat_piece("a"), event({{"error", {{"message", "out of luck"}}}})});
      case 3:
        return {200, "", {}, false, true};
      case 4: {
        Answer cut = stream_of({chat_piece("a")});
        cut.pieces.pop_back();
        return cut;
      }
      case 5:
        return stream_of({"data: {broken\n\n"});
      default:
        return three_pieces();
    }
  });
  options_.num_prompts = 6;
  const ServeReport report = run(server);
  const ServeFigures& f = report.runs[0].figures;
  EXPECT_EQ(f.completed, 1);
  EXPECT_EQ(f.failed, 5);
  EXPECT_THAT(f.errors, ElementsAre(HasSubstr("429"), "out of luck", HasSubstr("completions"),
                                    HasSubstr("ended before"), HasSubstr("stream")));
  EXPECT_THAT(to_text(report), HasSubstr("failed (1 clients, default): out of luck"));
}

TEST_F(ServeBenchTest, EndsEarlyWhereNothingWorks) {
  FakeServer server([](const json&) -> Answer { return {400, "no such thing", {}}; });
  options_.target.url = server.url();
  const auto refused = bench_serve(options_);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("no such thing"));
  options_.target.url = "http://127.0.0.1:1/v1";
  EXPECT_EQ(bench_serve(options_).status().code(), StatusCode::kNotFound);
  HttpServer locked([](const auto&, int) { return Answer{401, "key?", {}}; });
  options_.target.url = locked.url();
  EXPECT_THAT(bench_serve(options_).status().message(), HasSubstr("--api-key-file"));
}

TEST_F(ServeBenchTest, ComparesInTurn) {
  FakeServer server([](const json& body) {
    const bool off = body.value("speculation", json()) == "off";
    Answer answer = three_pieces();
    // So far apart that what a busy machine adds to both leaves no doubt.
    answer.pause = std::chrono::milliseconds(off ? 20 : 2);
    if (!off && body.dump().find("third") != std::string::npos) answer.pieces[1] = chat_piece("?");
    return answer;
  });
  options_.settings = {*parse_serve_setting("off"), *parse_serve_setting("ngram@5")};
  options_.rounds = 3;
  options_.concurrency = {1, 3};
  const ServeReport report = run(server);
  ASSERT_EQ(report.runs.size(), 4u);
  EXPECT_TRUE(report.warmed);
  const ServeRun& run = report.runs[3];
  EXPECT_EQ(run.concurrency, 3);
  EXPECT_EQ(run.figures.completed, 9);
  EXPECT_GT(run.throughput.value, 1.5);
  ASSERT_TRUE(run.throughput.interval);
  EXPECT_LT(run.throughput.interval->first, run.throughput.value);
  EXPECT_GT(run.pace.value, 1.5);
  EXPECT_EQ(run.compared, 9);
  EXPECT_EQ(run.differing, 3);
  EXPECT_FALSE(report.runs[2].figures.acceptance);
  ASSERT_TRUE(run.figures.acceptance);
  const Acceptance& a = *run.figures.acceptance;
  EXPECT_EQ(a.drafts, 90);
  EXPECT_EQ(a.draft_tokens, 900);
  EXPECT_EQ(a.accepted_tokens, 90);
  EXPECT_THAT(a.per_position, ElementsAre(DoubleNear(1.0, 1e-9), DoubleNear(0.1, 1e-9)));
  // Every setting once, then each prompt once, then both in turn, another first each time.
  std::vector<std::string> order;
  for (const json& body : server.bodies()) {
    order.push_back(body["speculation"] == "off" ? "off" : "on");
  }
  ASSERT_EQ(order.size(), 2u + 3u + 2u * 18u);
  EXPECT_EQ(order[1], "on");
  EXPECT_EQ(order[5], "off");
  EXPECT_EQ(order[8], "on");
  EXPECT_EQ(order[11], "on");
  EXPECT_EQ(order[14], "off");
  const json figures = json::parse(to_json(report));
  EXPECT_EQ(figures["runs"][3]["speculation"], "ngram@5");
  EXPECT_EQ(figures["runs"][3]["spec_decode_num_drafts"], 90);
  EXPECT_EQ(figures["runs"][3]["texts_differing"], 3);
  EXPECT_EQ(figures["runs"][3]["throughput_ratio"]["low_95"], run.throughput.interval->first);
  EXPECT_THAT(to_text(report), HasSubstr("3 of 9"));
  expect_balanced(to_html(report));
}

TEST_F(ServeBenchTest, SweepsForTheBestDepth) {
  FakeServer server([](const json& body) {
    Answer answer = three_pieces();
    const json speculation = body.value("speculation", json());
    const int depth = speculation.is_object() ? speculation["depth"].get<int>() : 0;
    // So far apart that a thread that is held up once does not decide.
    answer.pause = std::chrono::milliseconds(depth == 5 ? 2 : 40);
    return answer;
  });
  options_.target.url = server.url();
  const auto methods = offered_methods(options_.target);
  ASSERT_TRUE(methods.ok()) << methods.status().message();
  EXPECT_THAT(*methods, ElementsAre("auto"));
  options_.settings = *sweep_settings(*methods, {3, 5});
  options_.sweep = true;
  options_.concurrency = {2};
  const ServeReport report = run(server);
  const ServeRun* best = best_depth(report, "auto", 2);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(report.settings[best->setting].depth, 5);
  EXPECT_EQ(best_depth(report, "auto", 3), nullptr);
  const json figures = json::parse(to_json(report));
  EXPECT_EQ(figures["best"][0]["depth"], 5);
  EXPECT_THAT(to_text(report), HasSubstr(" at 5"));
  EXPECT_THAT(to_html(report), HasSubstr("Best depth"));
}

TEST_F(ServeBenchTest, EndsWhenItIsInterrupted) {
  std::atomic<bool> cancel = false;
  std::atomic<int> number = 0;
  FakeServer server([&](const json&) {
    Answer answer = three_pieces();
    if (++number == 4) {
      cancel = true;
      answer.silent = true;
    }
    return answer;
  });
  options_.target.cancel = &cancel;
  options_.num_prompts = 50;
  const ServeReport report = run(server);
  EXPECT_TRUE(report.interrupted);
  EXPECT_GE(report.runs[0].figures.completed, 1);
  EXPECT_LT(report.runs[0].figures.completed, 50);
  EXPECT_EQ(report.runs[0].figures.failed, 0);
  EXPECT_THAT(to_text(report), HasSubstr("INTERRUPTED"));
  expect_balanced(to_html(report));
  EXPECT_THAT(to_html(ServeReport()), HasSubstr("</html>"));
}

TEST_F(ServeBenchTest, RefusesWhatCannotBe) {
  const auto refusal = [&](auto&& change) {
    ServeOptions options = options_;
    options.target.url = "http://127.0.0.1:1/v1";
    change(options);
    const auto report = bench_serve(options);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << report.status().message();
    return report.ok() ? "" : report.status().message();
  };
  EXPECT_THAT(refusal([](auto& o) { o.concurrency = {4, 0}; }), HasSubstr("--concurrency"));
  EXPECT_THAT(refusal([](auto& o) { o.rate = 0; }), HasSubstr("--rate"));
  EXPECT_THAT(refusal([](auto& o) { o.rounds = 0; }), HasSubstr("--rounds"));
  EXPECT_THAT(refusal([](auto& o) { o.num_prompts = -1; }), HasSubstr("--num-prompts"));
  EXPECT_THAT(refusal([](auto& o) { o.target.max_tokens = 0; }), HasSubstr("--max-tokens"));
  EXPECT_THAT(refusal([](auto& o) { o.target.extra = "x"; }), HasSubstr("--extra-body"));
  for (const char* text : {"", "@3", "ngram@", "ngram@0", "ngram@65", "ngram@3x"}) {
    EXPECT_FALSE(parse_serve_setting(text).ok()) << text;
  }
  EXPECT_EQ(parse_serve_setting("ngram:a=1@4")->value.dump(),
            R"({"method":"ngram:a=1","depth":4})");
  EXPECT_FALSE(sweep_settings({}, {3}).ok());
}

// Arrivals are Poisson's: the gaps' mean and standard deviation are both 1 / rate.
TEST(ServeLoad, ArrivesAtRandom) {
  const std::vector<double> times = arrivals(20001, 50.0, 3);
  EXPECT_EQ(times[0], 0.0);
  double sum = 0, squares = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    const double gap = times[i] - times[i - 1];
    ASSERT_GT(gap, 0.0);
    sum += gap;
    squares += gap * gap;
  }
  const double mean_gap = sum / 20000;
  EXPECT_NEAR(mean_gap, 0.02, 0.0005);
  EXPECT_NEAR(std::sqrt(squares / 20000 - mean_gap * mean_gap), 0.02, 0.001);
  EXPECT_EQ(arrivals(5, 50.0, 3)[4], times[4]);
  EXPECT_NE(arrivals(5, 50.0, 4)[4], times[4]);
  EXPECT_EQ(arrivals(5, std::numeric_limits<double>::infinity(), 3)[4], 0.0);
}

TEST(EventStreamTest, JoinsWhatWasCutAnywhere) {
  const std::string text =
      ": a comment\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: lines\n\n\n"
      "data: three\n\ndata: never";
  for (const size_t step : {1u, 2u, 3u, 7u, 100u}) {
    EventStream stream;
    std::vector<std::string> seen;
    for (size_t at = 0; at < text.size(); at += step) {
      EXPECT_TRUE(stream.add(std::string_view(text).substr(at, step), [&](std::string_view data) {
        seen.emplace_back(data);
        return true;
      }));
    }
    EXPECT_THAT(seen, ElementsAre("one", "two\nlines", "three")) << step;
  }
  EventStream bounded(10);
  const auto none = [](std::string_view) { return true; };
  EXPECT_TRUE(bounded.add("data: 4", none));
  EXPECT_FALSE(bounded.add("data: 4", none));
}

TEST(ServeSummary, ReadsCounters) {
  EXPECT_FALSE(read_draft_counters(""));
  EXPECT_FALSE(read_draft_counters("vllm:num_requests_running 3\nvllm:spec_decode_num_x 1"));
  const auto counters = read_draft_counters(
      "vllm:spec_decode_num_drafts_total{engine=\"0\"} 1e2\r\n"
      "vllm:spec_decode_num_drafts_total{engine=\"1\"} 50\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"2\"} 7\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"999999999\"} 7\n"
      "vllm:spec_decode_num_accepted_tokens_total nan\n");
  ASSERT_TRUE(counters);
  EXPECT_EQ(counters->drafts, 150);
  EXPECT_EQ(counters->accepted_tokens, 0);
  EXPECT_THAT(counters->accepted_at, ElementsAre(0, 0, 7));
  EXPECT_FALSE(acceptance_of(counters->since(*counters)));
}

// Against figures worked out by hand: logs of 2, 2 and 4 have the mean 4/3 log 2.
TEST(ServeSummary, RatiosArePaired) {
  EXPECT_EQ(paired_ratio({}).value, 0.0);
  const PairedRatio one = paired_ratio({{3, 2}});
  EXPECT_DOUBLE_EQ(one.value, 1.5);
  EXPECT_FALSE(one.interval);
  const PairedRatio three = paired_ratio({{2, 1}, {4, 2}, {40, 10}});
  EXPECT_NEAR(three.value, std::pow(2, 4.0 / 3), 1e-12);
  ASSERT_TRUE(three.interval);
  const double half = 4.303 / 3 * std::log(2.0);  // t times the standard error, log 2 / 3
  EXPECT_NEAR(three.interval->second, three.value * std::exp(half), 1e-9);
  EXPECT_NEAR(three.interval->first, three.value / std::exp(half), 1e-9);
  EXPECT_NEAR(t_quantile_975(21), 2.080, 2e-3);
  EXPECT_NEAR(t_quantile_975(1000), 1.962, 1e-3);
}

}  // namespace aerie::measure::measure_serve_test
