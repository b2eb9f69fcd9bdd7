// Records of replies: there and back, lines that are wrong, and files that only grow.

#include "engine/recording/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/testing/file_size_limit.h"
#include "tests/testing/tiny_model.h"

namespace aerie::record_test {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

Record sample() {
  Record r;
  r.engine.model = "a \"folder\"/ü.gguf";
  r.engine.fingerprint = "00ff00ff00ff00ff";
  r.engine.weight_type = DType::kQ8_0;
  r.engine.cache_type = kernels::KvType::kQ8;
  r.engine.isa = kernels::Isa::kNeon;
  r.engine.device = "cuda:1";
  r.engine.context = 64;
  r.engine.threads = 3;
  r.engine.speculate = "merge,suffix,recycling";
  r.engine.rule = VerifyRule::kBlock;
  r.prompt = {0, std::numeric_limits<int32_t>::max(), 7};
  r.prompt_text = "line one\nline \"two\"\t\x01 é\xF0\x9F\x98\x80";
  r.sampling.seed = std::numeric_limits<uint64_t>::max();
  r.sampling.choice = std::numeric_limits<uint32_t>::max();
  r.sampling.temperature = 0.1;
  r.sampling.top_k = 40;
  r.sampling.top_p = 0.95;
  r.sampling.min_p = 1e-300;
  r.sampling.repetition_penalty = 1.1;
  r.sampling.frequency_penalty = -0.3;
  r.sampling.presence_penalty = 1.0 / 3.0;
  r.sampling.penalty_window = -1;
  r.sampling.logit_bias = {{3, -std::numeric_limits<float>::infinity()}, {4, 0.1f}, {4, -2.0f}};
  r.max_tokens = 5;
  r.stop = {"\n\n", "É"};
  r.ignore_eos = true;
  r.grammar = GrammarSpec{GrammarKind::kJsonSchema, "{\"type\": \"é\"}", {}, true};
  r.tokens = {5, 0, 9};
  r.text = "x\r\n\xEF\xBF\xBD";
  r.finish = FinishReason::kStop;
  r.time = 1795000000;
  return r;
}

TEST(Record, ComesBackAsItWas) {
  const Record r = sample();
  const std::string line = to_line(r);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto back = parse_record(line, "f:1");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->engine.model, r.engine.model);
  EXPECT_EQ(back->engine.fingerprint, r.engine.fingerprint);
  EXPECT_EQ(back->engine.weight_type, r.engine.weight_type);
  EXPECT_EQ(back->engine.cache_type, r.engine.cache_type);
  EXPECT_EQ(back->engine.isa, r.engine.isa);
  EXPECT_EQ(back->engine.device, r.engine.device);
  EXPECT_EQ(back->engine.context, r.engine.context);
  EXPECT_EQ(back->engine.threads, r.engine.threads);
  EXPECT_EQ(back->engine.speculate, r.engine.speculate);
  EXPECT_EQ(back->engine.rule, r.engine.rule);
  EXPECT_EQ(back->prompt, r.prompt);
  EXPECT_EQ(back->prompt_text, r.prompt_text);
  EXPECT_EQ(back->sampling.seed, r.sampling.seed);
  EXPECT_EQ(back->sampling.choice, r.sampling.choice);
  EXPECT_EQ(back->sampling.temperature, r.sampling.temperature);
  EXPECT_EQ(back->sampling.top_k, r.sampling.top_k);
  EXPECT_EQ(back->sampling.top_p, r.sampling.top_p);
  EXPECT_EQ(back->sampling.min_p, r.sampling.min_p);
  EXPECT_EQ(back->sampling.repetition_penalty, r.sampling.repetition_penalty);
  EXPECT_EQ(back->sampling.frequency_penalty, r.sampling.frequency_penalty);
  EXPECT_EQ(back->sampling.presence_penalty, r.sampling.presence_penalty);
  EXPECT_EQ(back->sampling.penalty_window, r.sampling.penalty_window);
  EXPECT_EQ(back->sampling.logit_bias, r.sampling.logit_bias);
  EXPECT_EQ(back->max_tokens, r.max_tokens);
  EXPECT_EQ(back->stop, r.stop);
  EXPECT_EQ(back->ignore_eos, r.ignore_eos);
  EXPECT_EQ(back->tokens, r.tokens);
  EXPECT_EQ(back->text, r.text);
  EXPECT_EQ(back->finish, r.finish);
  EXPECT_EQ(back->time, r.time);
  ASSERT_TRUE(back->grammar);
  EXPECT_EQ(back->grammar->kind, GrammarKind::kJsonSchema);
  EXPECT_EQ(back->grammar->text, r.grammar->text);
  EXPECT_TRUE(back->grammar->strict);
  EXPECT_EQ(to_line(*back), line);
}

TEST(Record, EveryKindOfGrammarComesBack) {
  for (const GrammarSpec& spec : {GrammarSpec{GrammarKind::kJsonObject},
                                  GrammarSpec{GrammarKind::kGrammar, "root ::= \"a\"\n"},
                                  GrammarSpec{GrammarKind::kRegex, "[\\d\"]+"},
                                  GrammarSpec{GrammarKind::kChoice, "", {"yes", "no, \"é\""}}}) {
    Record r = sample();
    r.grammar = spec;
    const auto back = parse_record(to_line(r), "f:1");
    ASSERT_TRUE(back.ok()) << back.status().message();
    ASSERT_TRUE(back->grammar);
    EXPECT_EQ(back->grammar->kind, spec.kind);
    EXPECT_EQ(back->grammar->text, spec.text);
    EXPECT_EQ(back->grammar->choices, spec.choices);
    EXPECT_FALSE(back->grammar->strict);
  }
}

TEST(Record, TextsMayBeLeftOut) {
  Record r = sample();
  r.text.reset();
  r.prompt_text.reset();
  r.grammar.reset();
  const std::string line = to_line(r);
  EXPECT_THAT(line, AllOf(HasSubstr("\"text\":null"), HasSubstr("\"prompt\":null")));
  const auto back = parse_record(line, "f:1");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_FALSE(back->text || back->prompt_text || back->grammar);
}

// As programs before the second version wrote it.
TEST(Record, TheFirstVersionIsStillRead) {
  json old = json::parse(to_line(sample()));
  old["aerie_record"] = 1;
  old.erase("time");
  old.erase("grammar");
  const auto back = parse_record(old.dump(), "f:1");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->text, sample().text);
  EXPECT_EQ(back->tokens, sample().tokens);
  EXPECT_EQ(back->time, 0);
  EXPECT_FALSE(back->grammar);
  old["text"] = nullptr;
  EXPECT_THAT(parse_record(old.dump(), "f:1").status().message(), HasSubstr("text"));
}

TEST(Record, BytesThatAreNoTextDoNoHarm) {
  Record r = sample();
  r.engine.model = "\xFF.gguf";
  r.prompt_text.reset();
  const auto back = parse_record(to_line(r), "f:1");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->engine.model, "\xEF\xBF\xBD.gguf");
  EXPECT_FALSE(back->prompt_text);
}

std::string refusal(const std::string& line) {
  const auto record = parse_record(line, "runs.jsonl:7");
  EXPECT_FALSE(record.ok()) << line;
  return record.ok() ? "" : record.status().message();
}

TEST(Record, EveryKeyIsChecked) {
  const json good = json::parse(to_line(sample()));
  const json values[] = {"x",
                         -5,
                         1.5,
                         1e300,
                         true,
                         json::array({"x"}),
                         json::array({-1}),
                         json::array({json::array({1})}),
                         json::object(),
                         18446744073709551615u};
  for (const auto& [key, value] : good.items()) {
    const auto location = AllOf(HasSubstr("runs.jsonl:7"), HasSubstr(key));
    json without = good;
    without.erase(key);
    // What a record of an unknown model, a plain one, one without texts, or one from before there
    // were devices need not have.
    const bool optional = key == "fingerprint" || key == "weight_type" || key == "prompt" ||
                          key == "logit_bias" || key == "grammar" || key == "text" ||
                          key == "device";
    if (optional) {
      EXPECT_TRUE(parse_record(without.dump(), "f:1").ok()) << key;
    } else {
      EXPECT_THAT(refusal(without.dump()), location);
    }
    // Whatever a value is, it is refused by its name or taken; of each key several are refused.
    int refused = 0;
    for (const json& other : values) {
      json wrong = good;
      wrong[key] = other;
      const auto record = parse_record(wrong.dump(), "runs.jsonl:7");
      if (record.ok()) continue;
      ++refused;
      EXPECT_THAT(record.status().message(), HasSubstr("runs.jsonl:7")) << wrong[key];
      EXPECT_THAT(record.status().message(), HasSubstr(key)) << wrong[key];
    }
    EXPECT_GE(refused, 5) << key;
  }
}

TEST(Record, SaysWhatIsWrong) {
  const json good = json::parse(to_line(sample()));
  const auto with = [&](const char* key, json value) {
    json line = good;
    line[key] = std::move(value);
    return refusal(line.dump());
  };
  EXPECT_THAT(with("aerie_record", 3), AllOf(HasSubstr("is 3"), HasSubstr("version 1 to 2")));
  EXPECT_THAT(with("grammar", {{"kind", "poem"}, {"strict", false}}), HasSubstr("'poem'"));
  EXPECT_THAT(with("grammar", {{"kind", "choice"}, {"strict", false}}),
              HasSubstr("grammar.choices"));
  EXPECT_THAT(with("grammar", {{"kind", "regex"}, {"strict", false}}), HasSubstr("grammar.text"));
  EXPECT_THAT(with("isa", "avx9"), HasSubstr("'avx9'"));
  EXPECT_THAT(with("device", "tpu"), HasSubstr("'tpu': give auto, cpu"));
  EXPECT_THAT(with("weight_type", "q9"), HasSubstr("'q9'"));
  EXPECT_THAT(with("finish_reason", "tired"), HasSubstr("'tired'"));
  EXPECT_THAT(with("prompt_ids", json::array()), HasSubstr("empty"));
  EXPECT_THAT(with("prompt_ids", {1, 2147483648}), HasSubstr("2147483648"));
  EXPECT_THAT(with("token_ids", json::array()), HasSubstr("interrupted"));
  EXPECT_THAT(with("max_tokens", 2), AllOf(HasSubstr("3 ids"), HasSubstr("max_tokens")));
  EXPECT_THAT(with("context", 4), HasSubstr("too small"));
  EXPECT_THAT(with("logit_bias", {{1, "inf"}}), HasSubstr("logit_bias"));
  EXPECT_THAT(with("logit_bias", {{1, 1e39}}), HasSubstr("logit_bias"));
  EXPECT_THAT(refusal("{\"turns\": [\"x\"]}"), HasSubstr("no record"));
  EXPECT_THAT(refusal("{\"aerie_record\": 1"), HasSubstr("runs.jsonl:7"));
  EXPECT_THAT(refusal("[]"), HasSubstr("object is wanted"));
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  const std::string line = to_line(sample());
  for (size_t cut = 1; cut < line.size(); cut += 13) refusal(line.substr(0, cut));
}

class RecordFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const std::string path_ = fmt::format("{}aerie_{}_records", testing::TempDir(), getpid());
};

TEST_F(RecordFileTest, OnlyGrows) {
  const std::string line = to_line(sample()) + "\n";
  std::string expected;
  for (int time = 0; time < 2; ++time) {
    auto file = RecordFile::open(path_);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(content(), expected);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(file->append(sample()).ok());
      expected += line;
      EXPECT_EQ(content(), expected);
    }
  }
}

TEST_F(RecordFileTest, BeginsALineAfterAnUnfinishedOne) {
  std::ofstream(path_) << "half a li";
  auto file = RecordFile::open(path_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->append(sample()).ok());
  EXPECT_EQ(content(), "half a li\n" + to_line(sample()) + "\n");
}

TEST_F(RecordFileTest, WritersTakeTurns) {
  auto one = RecordFile::open(path_);
  auto other = RecordFile::open(path_);
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_TRUE(one->append(sample()).ok());
  ASSERT_TRUE(other->append(sample()).ok());
  ASSERT_TRUE(one->append(sample()).ok());
  EXPECT_EQ(content().size(), 3 * (to_line(sample()).size() + 1));
}

TEST_F(RecordFileTest, OnAFullDiskALineIsLeftOutWhole) {
  auto file = RecordFile::open(path_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->append(sample()).ok());
  const std::string before = content();
  {
    const test::FileSizeLimit limit(before.size() + 10);
    const Status status = file->append(sample());
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(path_), HasSubstr("not added")));
    EXPECT_EQ(content(), before);
  }
  EXPECT_TRUE(file->append(sample()).ok());
  EXPECT_EQ(content(), before + before);
}

TEST_F(RecordFileTest, RefusesWhatIsNoFile) {
  const auto message = [](const std::string& path) {
    const auto file = RecordFile::open(path);
    EXPECT_FALSE(file.ok());
    EXPECT_NE(file.status().code(), StatusCode::kInternal);
    return file.ok() ? "" : file.status().message();
  };
  EXPECT_THAT(message("/nonexistent/records"),
              AllOf(HasSubstr("/nonexistent"), HasSubstr("folder")));
  EXPECT_THAT(message(testing::TempDir()), HasSubstr(testing::TempDir()));
}

TEST_F(RecordFileTest, WritesThroughAPipe) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  auto file = RecordFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE(file->append(sample()).ok());
  std::string read_back(1 << 14, ' ');
  read_back.resize(
      static_cast<size_t>(std::max<ssize_t>(0, read(reader, read_back.data(), 1 << 14))));
  EXPECT_EQ(read_back, to_line(sample()) + "\n");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
}

TEST_F(RecordFileTest, ADeviceThatIsFullIsAnError) {
  auto file = RecordFile::open("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const Status status = file->append(sample());
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("/dev/full"));
}

TEST_F(RecordFileTest, TellsWhatAnEngineWasAskedAndSaid) {
  test::TinySpec spec;
  spec.tokenizer = true;
  spec.vocab = test::kByteVocab;
  ASSERT_TRUE(test::tiny_gguf(spec).write(path_).ok());
  EngineOptions options;
  options.model = path_;
  options.threads = 1;
  options.cache_type = kernels::KvType::kQ8;
  options.speculation = parse_speculative_spec("ngram").value();
  const auto engine = Engine::open(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const RecordedEngine recorded = recorded_engine((*engine)->parts());
  EXPECT_EQ(recorded.fingerprint.size(), 16u);
  EXPECT_EQ(recorded.context, 1024);
  EXPECT_EQ(recorded.speculate, "ngram");
  Request request;
  request.prompt = {'a', 'b', 'a', 'b'};
  request.max_tokens = 12;
  request.ignore_eos = true;
  request.sampling.logprobs = 3;
  const auto whole = (*engine)->generate(request, nullptr);
  ASSERT_TRUE(whole.ok());
  const Record record = make_record(recorded, request, "abab", *whole);
  EXPECT_EQ(record.tokens, whole->tokens);
  EXPECT_EQ(record.text, whole->text);
  EXPECT_EQ(record.finish, FinishReason::kLength);
  EXPECT_EQ(record.prompt_text, "abab");
  EXPECT_EQ(record.engine.cache_type, kernels::KvType::kQ8);
  EXPECT_TRUE(parse_record(to_line(record), "f:1").ok());
  // Plain, and stopped before the prompt is read.
  std::atomic<bool> cancel = true;
  request.cancel = &cancel;
  request.speculate = false;
  const auto none = (*engine)->generate(request, nullptr);
  ASSERT_TRUE(none.ok());
  const Record cut = make_record(recorded, request, "ab\xFF", *none);
  EXPECT_EQ(cut.engine.speculate, "none");
  EXPECT_FALSE(cut.prompt_text);
  EXPECT_TRUE(cut.tokens.empty());
  EXPECT_EQ(cut.finish, FinishReason::kNone);
  EXPECT_TRUE(parse_record(to_line(cut), "f:1").ok());
}

}  // namespace aerie::record_test
