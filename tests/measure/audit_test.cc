// The audit of records that were made here: none differs, and one that was tampered with differs at
// the very place.

#include "measure/audit/audit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/testing/tiny_model.h"
#include "tools/flags.h"
#include "tools/measure/audit_command.h"
#include "tools/run/run.h"

namespace aerie::measure::audit_test {

using testing::AllOf;
using testing::HasSubstr;
using State = AuditOutcome::State;

class Audit : public testing::Test {
 protected:
  Audit() {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    EXPECT_TRUE(test::tiny_gguf(spec).write(model_).ok());
    spec.seed = 8;
    EXPECT_TRUE(test::tiny_gguf(spec).write(other_).ok());
  }
  ~Audit() override {
    for (const std::string& path : {model_, other_, file_, json_}) std::remove(path.c_str());
  }

  EngineOptions engine_options(const std::string& speculate) const {
    EngineOptions o;
    o.model = model_;
    o.threads = 1;
    o.speculation = parse_speculative_spec(speculate).value();
    return o;
  }
  static Request request(double temperature) {
    Request r;
    const std::string prompt = "a rose is a rose is a";
    r.prompt.assign(prompt.begin(), prompt.end());
    r.prediction = {' ', 'r', 'o', 's', 'e'};
    r.sampling.temperature = temperature;
    r.sampling.seed = 3;
    r.max_tokens = 40;
    return r;
  }
  // Adds what the engine says.
  void record(const EngineOptions& options, const Request& request,
              const Engine::OnText& on_text = nullptr) {
    const auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    const auto generation = (*engine)->generate(request, on_text);
    ASSERT_TRUE(generation.ok()) << generation.status().message();
    records_.push_back({make_record(recorded_engine((*engine)->parts()), request, "", *generation),
                        fmt::format("runs:{}", records_.size() + 1)});
  }
  AuditReport audit(AuditOptions options = {}) {
    options.model = model_;
    options.threads = 1;
    auto report = audit_locally(options, records_);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? std::move(*report) : AuditReport();
  }
  // The divergence of the first record, which was changed by `change`; that of the others, none.
  Divergence planted(const std::function<void(Record&)>& change) {
    const Record kept = records_[0].record;
    change(records_[0].record);
    const AuditReport report = audit();
    records_[0].record = kept;
    EXPECT_EQ(report.count(State::kDiverged), 1);
    EXPECT_EQ(report.count(State::kEqual), static_cast<int>(records_.size()) - 1);
    EXPECT_TRUE(report.outcomes[0].divergence.has_value());
    return report.outcomes[0].divergence.value_or(Divergence());
  }
  void write_file() const {
    std::ofstream file(file_);
    for (const AuditRecord& one : records_) file << to_line(one.record) << "\n";
  }
  static Expected<int> run(std::vector<std::string> words) {
    CLI::App app;
    const auto command = add_audit_flags(app);
    std::reverse(words.begin(), words.end());
    try {
      app.parse(words);
    } catch (const CLI::ParseError& error) {
      return Status(StatusCode::kInvalidArgument, error.what());
    }
    return command();
  }

  const std::string base_ = fmt::format("{}audit_{}", testing::TempDir(), getpid());
  const std::string model_ = base_ + ".gguf", other_ = base_ + "_other.gguf",
                    file_ = base_ + ".jsonl", json_ = base_ + ".json";
  std::vector<AuditRecord> records_;
};

// Every kind of speculation, greedy and sampled, with both caches, ends of every kind.
TEST_F(Audit, FindsNothingWhereNothingIs) {
  const std::string draft = "draft_model:num_speculative_tokens=3,model=" + model_;
  const std::string poor = "draft_model:num_speculative_tokens=3,model=" + other_;
  int64_t tokens = 0;
  for (const std::string& speculate :
       {std::string("none"), std::string("ngram"), std::string("suffix"), std::string("recycling"),
        std::string("prediction"), draft, poor, "ngram," + poor, "merge,suffix,recycling," + poor,
        std::string("auto")}) {
    for (const double temperature : {0.0, 0.9}) {
      EngineOptions options = engine_options(speculate);
      if (temperature > 0.0) options.cache_type = kernels::KvType::kQ8;
      record(options, request(temperature));
      tokens += static_cast<int64_t>(records_.back().record.tokens.size());
    }
  }
  const AuditReport report = audit();
  EXPECT_TRUE(report.all_equal()) << to_text(report);
  EXPECT_EQ(report.count(State::kEqual), 20);
  EXPECT_EQ(report.tokens(), tokens);
  EXPECT_GT(tokens, 400);
  EXPECT_THAT(to_text(report), HasSubstr("20 records; 20 compared"));
  // And the other way round: what was recorded plainly, speculatively.
  AuditOptions options;
  options.speculation = parse_speculative_spec("merge,suffix,recycling").value();
  const AuditReport speculative = audit(options);
  EXPECT_TRUE(speculative.all_equal()) << to_text(speculative);
  EXPECT_THAT(speculative.how, HasSubstr("suffix"));
}

TEST_F(Audit, TakesEverySettingOver) {
  Request r = request(1.1);
  r.sampling.seed = 1ull << 63;
  r.sampling.choice = 2;
  r.sampling.top_k = 30;
  r.sampling.top_p = 0.9;
  r.sampling.min_p = 0.01;
  r.sampling.repetition_penalty = 1.3;
  r.sampling.frequency_penalty = 0.2;
  r.sampling.presence_penalty = 0.1;
  r.sampling.penalty_window = 7;
  r.sampling.logit_bias = {{'e', -std::numeric_limits<float>::infinity()}, {'a', 6.0f}};
  r.ignore_eos = true;
  record(engine_options("ngram"), r);
  const std::string text = records_[0].record.text.value();
  // A stop string, an end token, the end of the context and threads.
  r.stop = {text.substr(text.size() / 2, 3)};
  record(engine_options("suffix"), r);
  EXPECT_EQ(records_[1].record.finish, FinishReason::kStop);
  r.stop.clear();
  r.ignore_eos = false;
  r.sampling.logit_bias.emplace_back(test::kTurnEnd, 6.0f);
  record(engine_options("recycling"), r);
  EXPECT_EQ(records_[2].record.finish, FinishReason::kStop);
  EngineOptions small = engine_options("none");
  small.context = 50;
  small.threads = 2;
  small.isa = kernels::Isa::kReference;
  small.weight_type = DType::kQ8_0;
  r = request(0.9);
  r.ignore_eos = true;
  r.max_tokens = 0;
  record(small, r);
  EXPECT_EQ(records_[3].record.tokens.size(), 50u - r.prompt.size() + 1u);
  const AuditReport report = audit();
  EXPECT_TRUE(report.all_equal()) << to_text(report);
  EXPECT_EQ(report.count(State::kEqual), 4);

  // Each of them matters: without it the reply is another.
  const auto differs = [&](const std::function<void(Record&)>& change) {
    Record& first = records_[0].record;
    const Record kept = first;
    change(first);
    const AuditReport changed = audit();
    first = kept;
    return changed.outcomes[0].state == State::kDiverged;
  };
  EXPECT_TRUE(differs([](Record& one) { one.sampling.seed = 1; }));
  EXPECT_TRUE(differs([](Record& one) { one.sampling.choice = 0; }));
  EXPECT_TRUE(differs([](Record& one) { one.sampling.repetition_penalty = 1.0; }));
  EXPECT_TRUE(differs([](Record& one) { one.sampling.logit_bias.clear(); }));
  EXPECT_TRUE(differs([](Record& one) { one.prompt.pop_back(); }));
}

TEST_F(Audit, FindsWhatWasPlantedWhereItWasPlanted) {
  for (const char* speculate : {"ngram", "none", "suffix"}) {
    Request r = request(0.9);
    r.ignore_eos = true;
    record(engine_options(speculate), r);
  }
  const std::vector<int32_t> tokens = records_[0].record.tokens;
  ASSERT_EQ(tokens.size(), 40u);
  for (const size_t at : {size_t{0}, size_t{1}, size_t{23}, size_t{39}}) {
    const Divergence d = planted([&](Record& one) { one.tokens[at] = tokens[at] ^ 1; });
    EXPECT_EQ(d.kind, Divergence::Kind::kToken);
    EXPECT_EQ(d.position, static_cast<int64_t>(at));
    EXPECT_EQ(d.recorded_id, tokens[at] ^ 1);
    EXPECT_EQ(d.replayed_id, tokens[at]);
    EXPECT_FALSE(d.replayed.empty());
    EXPECT_FALSE(d.before.empty());  // at the beginning, the prompt's words
    EXPECT_THAT(d.settings, AllOf(HasSubstr("temperature 0.9, seed 3"), HasSubstr("ngram")));
    EXPECT_TRUE(d.notes.empty());
  }
  EXPECT_THAT(planted([](Record& one) { one.tokens[0] ^= 1; }).before, HasSubstr("is a"));
  // It is said to have ended before it did.
  const Divergence early = planted([](Record& one) {
    one.tokens.resize(10);
    one.finish = FinishReason::kStop;
  });
  EXPECT_EQ(early.position, 10);
  EXPECT_FALSE(early.recorded_id);
  EXPECT_EQ(early.replayed_id, tokens[10]);
  // Or to have gone on after a stop string.
  const Divergence late = planted([](Record& one) { one.stop = {one.text->substr(8, 4)}; });
  EXPECT_EQ(late.kind, Divergence::Kind::kToken);
  EXPECT_FALSE(late.replayed_id);
  EXPECT_LT(late.position, 20);
  const Divergence text = planted([](Record& one) { one.text->insert(3, "!"); });
  EXPECT_EQ(text.kind, Divergence::Kind::kText);
  EXPECT_LE(text.position, 3);
  const Divergence reason = planted([](Record& one) { one.finish = FinishReason::kStop; });
  EXPECT_EQ(reason.kind, Divergence::Kind::kFinish);
  EXPECT_EQ(reason.recorded, "stop");
  EXPECT_EQ(reason.replayed, "length");
}

TEST_F(Audit, OfInterruptedRepliesTheBeginning) {
  std::atomic<bool> cancel = false;
  Request r = request(0.9);
  r.ignore_eos = true;
  r.cancel = &cancel;
  int pieces = 0;
  record(engine_options("ngram"), r, [&](std::string_view) { cancel = ++pieces == 8; });
  ASSERT_EQ(records_[0].record.finish, FinishReason::kNone);
  const size_t came = records_[0].record.tokens.size();
  ASSERT_GE(came, 8u);
  ASSERT_LT(came, 40u);
  // And one before its first token.
  cancel = true;
  record(engine_options("ngram"), r);
  const AuditReport report = audit();
  EXPECT_EQ(report.outcomes[0].state, State::kEqual) << to_text(report);
  EXPECT_EQ(report.outcomes[0].tokens, static_cast<int64_t>(came));
  EXPECT_EQ(report.outcomes[1].state, State::kSkipped);
  EXPECT_THAT(report.outcomes[1].reason, HasSubstr("interrupted"));
}

TEST_F(Audit, SaysWhatItSkips) {
  EngineOptions rejecting = engine_options("ngram");
  rejecting.rule = VerifyRule::kRejection;
  record(rejecting, request(0.9));
  record(rejecting, request(0.0));  // keeps the ids
  EngineOptions of_other = engine_options("ngram");
  of_other.model = other_;
  record(of_other, request(0.0));
  EngineOptions copied = engine_options("none");
  std::filesystem::copy_file(model_, base_ + "_copy.gguf");
  copied.model = base_ + "_copy.gguf";
  record(copied, request(0.0));
  std::filesystem::remove(copied.model);
  AuditReport report = audit();
  EXPECT_EQ(report.outcomes[0].state, State::kSkipped);
  EXPECT_THAT(report.outcomes[0].reason, HasSubstr("rejection at temperature 0.9"));
  EXPECT_EQ(report.outcomes[1].state, State::kEqual);
  EXPECT_EQ(report.outcomes[2].state, State::kSkipped);
  EXPECT_THAT(report.outcomes[2].reason, AllOf(HasSubstr("another model"), HasSubstr(other_)));
  EXPECT_EQ(report.outcomes[3].state, State::kEqual) << "a copy of the same model";
  EXPECT_TRUE(report.all_equal());

  AuditOptions options;
  options.other_models = true;
  report = audit(options);
  ASSERT_EQ(report.outcomes[2].state, State::kDiverged);
  EXPECT_THAT(report.outcomes[2].divergence->notes,
              testing::ElementsAre(AllOf(HasSubstr("another model"), HasSubstr(other_))));
  options.context = 30;
  report = audit(options);
  EXPECT_EQ(report.count(State::kSkipped), 4);
  EXPECT_THAT(report.outcomes[1].reason, HasSubstr("--ctx 1024"));
  EXPECT_FALSE(report.all_equal());
}

TEST_F(Audit, NamesAnotherInstructionSet) {
  EngineOptions options = engine_options("none");
  record(options, request(0.0));
  records_[0].record.tokens[5] ^= 1;
  AuditOptions on;
  on.isa = kernels::Isa::kReference;
  const AuditReport report = audit(on);
  ASSERT_TRUE(report.outcomes[0].divergence);
  EXPECT_THAT(report.outcomes[0].divergence->notes,
              testing::ElementsAre(HasSubstr("replayed with reference")));
}

TEST_F(Audit, NamesAnotherDevice) {
  EngineOptions options = engine_options("none");
  options.device = "cpu";
  record(options, request(0.0));
  EXPECT_EQ(records_[0].record.engine.device, "cpu");
  AuditReport report = audit();
  EXPECT_EQ(report.outcomes[0].state, State::kEqual);
  records_[0].record.engine.device = "emulated";
  records_[0].record.tokens[5] ^= 1;
  AuditOptions here;
  here.device = "cpu";
  report = audit(here);
  ASSERT_TRUE(report.outcomes[0].divergence);
  EXPECT_THAT(report.outcomes[0].divergence->notes,
              testing::ElementsAre(HasSubstr("recorded on emulated, replayed on cpu")));
  EXPECT_THAT(report.outcomes[0].divergence->settings, HasSubstr(", emulated, "));
}

TEST_F(Audit, FailuresAreToldAndTheOthersReplayed) {
  record(engine_options("none"), request(0.0));
  record(engine_options("none"), request(0.0));
  record(engine_options("none"), request(0.0));
  records_[0].record.prompt[2] = 100000;
  records_[1].record.engine.context = 1 << 20;  // more than the model has
  const AuditReport report = audit();
  EXPECT_EQ(report.outcomes[0].state, State::kFailed);
  EXPECT_THAT(report.outcomes[0].reason, HasSubstr("100000"));
  EXPECT_EQ(report.outcomes[1].state, State::kFailed);
  EXPECT_THAT(report.outcomes[1].reason, HasSubstr("1048576"));
  EXPECT_EQ(report.outcomes[2].state, State::kEqual);
  EXPECT_FALSE(report.all_equal());
  AuditOptions options;
  options.model = "/nonexistent/model.gguf";
  EXPECT_EQ(audit_locally(options, records_).status().code(), StatusCode::kNotFound);
}

TEST_F(Audit, EndsWhenItIsInterrupted) {
  for (int i = 0; i < 3; ++i) record(engine_options("none"), request(0.0));
  std::atomic<bool> cancel = false;
  AuditOptions options;
  options.cancel = &cancel;
  options.progress = [&](int done, int of) {
    EXPECT_EQ(done, 1);
    EXPECT_EQ(of, 3);
    cancel = true;
  };
  const AuditReport report = audit(options);
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.count(State::kEqual), 1);
  EXPECT_EQ(report.count(State::kNotReached), 2);
}

TEST_F(Audit, RepliesWithAGrammarAreReplayedUnderIt) {
  const auto add = [&](const GrammarSpec& spec, double temperature) {
    const auto engine = Engine::open(engine_options("ngram"));
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    Request r = request(temperature);
    r.grammar = (*engine)->compile_grammar(spec).value();
    const auto generation = (*engine)->generate(r, nullptr);
    ASSERT_TRUE(generation.ok()) << generation.status().message();
    records_.push_back(
        {make_record(recorded_engine((*engine)->parts()), r, "", *generation), "runs:1"});
  };
  add({GrammarKind::kRegex, "(yes|no|perhaps)( [a-d]+)*", {}}, 0.9);
  add({GrammarKind::kChoice, "", {"yes", "no"}}, 0.0);
  add({GrammarKind::kJsonObject}, 0.9);
  add({GrammarKind::kJsonSchema, "{\"enum\": [1, 22, 333]}", {}, true}, 0.9);
  add({GrammarKind::kGrammar, "root ::= \"a\" [b-d]*", {}}, 0.9);
  for (AuditRecord& one : records_) one.record = parse_record(to_line(one.record), "f:1").value();
  AuditReport report = audit();
  EXPECT_TRUE(report.all_equal()) << to_text(report);
  // It matters: without it the reply is another.
  records_[0].record.grammar.reset();
  report = audit();
  EXPECT_EQ(report.outcomes[0].state, State::kDiverged);
  records_[0].record.grammar = GrammarSpec{GrammarKind::kRegex, "(", {}};
  report = audit();
  EXPECT_EQ(report.outcomes[0].state, State::kFailed);
  EXPECT_EQ(report.count(State::kEqual), 4);
}

TEST_F(Audit, OfRecordsWithoutTextsTellsNone) {
  record(engine_options("ngram"), request(0.9));
  Record& one = records_[0].record;
  one.text.reset();
  EXPECT_TRUE(audit().all_equal());
  one.tokens[9] ^= 1;
  const AuditReport report = audit();
  ASSERT_TRUE(report.outcomes[0].divergence);
  const Divergence& d = *report.outcomes[0].divergence;
  EXPECT_EQ(d.position, 9);
  EXPECT_EQ(d.recorded_id, one.tokens[9]);
  EXPECT_EQ(d.replayed_id, one.tokens[9] ^ 1);
  EXPECT_EQ(d.recorded + d.replayed + d.before, "");
  EXPECT_THAT(to_text(report),
              HasSubstr(fmt::format("recorded {}, now {}", one.tokens[9], one.tokens[9] ^ 1)));
}

TEST_F(Audit, SumsUpInOneLine) {
  record(engine_options("ngram"), request(0.9));
  const std::string folder = base_ + "_folder";
  std::filesystem::create_directory(folder);
  Record now = records_[0].record;
  Record old = now;
  old.time -= 3000;
  Record wrong = now;
  wrong.tokens[3] ^= 1;
  Record none = now;
  none.tokens.clear();
  none.text = "";
  none.finish = FinishReason::kNone;
  std::ofstream(folder + "/a.jsonl") << to_line(old) << "\n" << to_line(now) << "\n";
  std::ofstream(folder + "/b.jsonl") << to_line(none) << "\n";
  // The exit status, with the last line of the output before it.
  const auto output = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"-m", model_, "--threads", "1", "-q", folder});
    testing::internal::CaptureStdout();
    const auto status = run(words);
    std::string text = testing::internal::GetCapturedStdout();
    text.resize(text.empty() ? 0 : text.size() - 1);
    return fmt::format("{} -> {}", text.substr(text.rfind('\n') + 1),
                       status.ok() ? fmt::format("{}", *status) : status.status().message());
  };
  EXPECT_EQ(output({}), "audit: 2 replies replayed, 0 differ, 1 skipped, 0 failed -> 0");
  EXPECT_EQ(output({"--since", "30m"}),
            "audit: 1 replies replayed, 0 differ, 1 skipped, 0 failed -> 0");
  EXPECT_EQ(output({"--since", "1h", "--limit", "1"}),
            "audit: 1 replies replayed, 0 differ, 1 skipped, 0 failed -> 0");
  std::ofstream(folder + "/b.jsonl", std::ios::app) << to_line(wrong) << "\n";
  EXPECT_EQ(output({}), "audit: 3 replies replayed, 1 differ, 1 skipped, 0 failed -> 1");
  EXPECT_THAT(output({"--sample", "2"}), HasSubstr("0 failed -> "));
  std::ofstream(folder + "/b.jsonl", std::ios::trunc);
  std::ofstream(folder + "/a.jsonl", std::ios::trunc) << to_line(old) << "\n";
  EXPECT_EQ(output({"--since", "30m"}),
            "audit: 0 replies replayed, 0 differ, 0 skipped, 0 failed -> there are no records of "
            "the last 30m");
  for (const char* span :
       {"24", "h", "-1h", "0h", "1.5h", "1w", "24h ", "99999999999999999999d", "9999999999d"}) {
    EXPECT_THAT(output({"--since", span}), HasSubstr("--since")) << span;
  }
  std::filesystem::remove_all(folder);
}

TEST_F(Audit, ExitStatusAndFigures) {
  record(engine_options("ngram"), request(0.0));
  record(engine_options("none"), request(0.9));
  write_file();
  const auto status = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"-m", model_, "--threads", "1", file_};
    words.insert(words.end(), more.begin(), more.end());
    const auto result = run(words);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : -1;
  };
  EXPECT_EQ(status({"--json", json_, "--speculate", "recycling"}), 0);
  std::ifstream figures(json_);
  auto json = nlohmann::json::parse(figures, nullptr, false);
  EXPECT_EQ(json["compared"], 2);
  EXPECT_EQ(json["divergences"], 0);
  records_[1].record.tokens[4] ^= 1;
  write_file();
  EXPECT_EQ(status({"--json", json_}), 1);
  figures = std::ifstream(json_);
  json = nlohmann::json::parse(figures, nullptr, false);
  EXPECT_EQ(json["divergences"], 1);
  EXPECT_EQ(json["outcomes"][0]["state"], "equal");
  EXPECT_EQ(json["outcomes"][1]["record"], file_ + ":2");
  EXPECT_EQ(json["outcomes"][1]["divergence"]["position"], 4);
  EXPECT_EQ(json["outcomes"][1]["divergence"]["recorded_id"], records_[1].record.tokens[4]);
  EXPECT_EQ(status({"--limit", "1"}), 0);

  const auto refusal = [&](const std::vector<std::string>& words) {
    const auto result = run(words);
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument) << result.status().message();
    return result.status().message();
  };
  EXPECT_THAT(refusal({file_}), HasSubstr("--url"));
  EXPECT_THAT(refusal({"-m", other_, file_}), HasSubstr("nothing could be compared"));
  EXPECT_THAT(refusal({"-m", model_, "--url", "http://127.0.0.1:1", file_}), HasSubstr("--url"));
  EXPECT_THAT(refusal({"-m", model_, "--send", "text", file_}), HasSubstr("--url"));
  EXPECT_THAT(refusal({"-m", model_, "--isa", "x", file_}), HasSubstr("--isa x"));
  EXPECT_THAT(refusal({"-m", model_, "--speculate", "x", file_}), HasSubstr("--speculate"));
  std::ofstream(json_) << " \n";
  EXPECT_THAT(refusal({"--url", "http://127.0.0.1:1", "--api-key-file", json_, file_}),
              HasSubstr("no key"));
}

TEST_F(Audit, RunsAreRecorded) {
  const auto options_of = [&](std::vector<std::string> words) -> Expected<RunOptions> {
    words.insert(words.begin(), {"-m", model_, "--threads", "1", "--record", file_, "-q"});
    CLI::App app;
    const auto options = add_run_flags(app);
    std::reverse(words.begin(), words.end());
    app.parse(words);
    return options();
  };
  for (const char* spec : {"none", "ngram"}) {
    const auto options = options_of({"--raw", "-p", "a b a b", "-n", "12", "--speculate", spec});
    ASSERT_TRUE(options.ok()) << options.status().message();
    const auto status = run_prompt(*options);
    ASSERT_TRUE(status.ok()) << status.status().message();
  }
  const auto templated = options_of({"-p", "Hi", "--template", "-n", "5", "--temp", "0.7"});
  ASSERT_TRUE(templated.ok());
  ASSERT_TRUE(run_prompt(*templated).ok());
  const auto constrained = options_of({"-p", "Hi", "-n", "9", "--regex", "[a-c ]+"});
  ASSERT_TRUE(constrained.ok());
  ASSERT_TRUE(run_prompt(*constrained).ok());
  const auto chosen = read_records({file_}, {});
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  const std::vector<AuditRecord>* records = &chosen->records;
  ASSERT_EQ(records->size(), 4u);
  EXPECT_EQ((*records)[0].record.prompt_text, "a b a b");
  EXPECT_EQ((*records)[1].record.engine.speculate, "ngram");
  EXPECT_EQ((*records)[0].record.tokens, (*records)[1].record.tokens);
  EXPECT_THAT(*(*records)[2].record.prompt_text, HasSubstr("<|im_start|>user\nHi"));
  EXPECT_EQ((*records)[2].record.sampling.temperature, 0.7);
  EXPECT_EQ((*records)[3].record.grammar.value().text, "[a-c ]+");
  EXPECT_EQ(run({"-m", model_, "--threads", "1", file_}).value(), 0);

  EXPECT_THAT(options_of({"-p", "x", "--stop", "\xFF"}).status().message(), HasSubstr("UTF-8"));
  EXPECT_THAT(options_of({"-p", "x", "--regex", "\xFF"}).status().message(), HasSubstr("UTF-8"));
  auto wrong = options_of({"-p", "x"});
  ASSERT_TRUE(wrong.ok());
  wrong->record_file = "/nonexistent/records";
  wrong->engine.model = "/nonexistent/model.gguf";
  // Before anything is loaded.
  EXPECT_THAT(run_prompt(*wrong).status().message(), HasSubstr("--record"));
}

}  // namespace aerie::measure::audit_test
