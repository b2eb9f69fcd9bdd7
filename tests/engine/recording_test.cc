// Served replies on their way to a folder: which are recorded, what of them, and a disk that is
// slow, full or gone.

#include "engine/recording/recording_service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>

#include "base/files.h"
#include "tests/server/fake_service.h"
#include "tests/testing/file_size_limit.h"

namespace aerie::recording_test {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Keeps what it is told, as a client would.
class Listener final : public ReplySink {
 public:
  void on_delta(ReplyDelta delta) override {
    const std::lock_guard lock(mutex_);
    for (const EmittedToken& token : delta.tokens) tokens_.push_back(token.id);
    text_ += delta.text;
    ++deltas_;
    changed_.notify_all();
  }
  void on_end(ReplyEnd end) override {
    const std::lock_guard lock(mutex_);
    text_ += end.text;
    end_ = std::move(end);
    changed_.notify_all();
  }

  ReplyEnd wait() {
    return wait_for([&] { return end_.has_value(); }), *end_;
  }
  void wait_for_tokens() {
    wait_for([&] { return !tokens_.empty(); });
  }
  std::vector<int32_t> tokens() const { return tokens_; }
  std::string text() const { return text_; }
  int deltas() const { return deltas_; }

 private:
  template <typename Condition>
  void wait_for(const Condition& condition) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(30), condition));
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> tokens_;
  std::string text_;
  int deltas_ = 0;
  std::optional<ReplyEnd> end_;
};

// A gate that writes wait at.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

Request request_of(const std::string& prompt) {
  Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  return request;
}

class Recording : public testing::Test {
 protected:
  // Starts afresh: what was recorded goes.
  void start(const RecordingOptions& options,
             test::FakeService::Options fake = test::FakeService::make_options()) {
    service_.reset();
    records_.clear();
    RecordedEngine engine;
    engine.model = "m.gguf";
    engine.context = 1 << 16;
    engine.threads = 1;
    engine.speculate = "auto";
    auto inner = std::make_unique<test::FakeService>(std::move(fake));
    service_ = std::make_unique<RecordingService>(nullptr, std::move(inner), engine, options,
                                                  [this](Record& record) {
                                                    records_.push_back(record);
                                                    return Status();
                                                  });
  }
  // All of them, once the service has ended.
  const std::vector<Record>& records() {
    service_.reset();
    return records_;
  }
  // Asks, and waits for the end.
  std::shared_ptr<Listener> ask(Request request) {
    auto listener = std::make_shared<Listener>();
    EXPECT_TRUE(service_->submit(std::move(request), listener).ok());
    listener->wait();
    return listener;
  }
  std::shared_ptr<Listener> ask(const std::string& prompt) { return ask(request_of(prompt)); }

  std::unique_ptr<Service> service_;
  std::vector<Record> records_;
};

TEST_F(Recording, IsOfAShareOfTheRequests) {
  const auto recorded = [&](double share, uint64_t seed) {
    RecordingOptions options;
    options.share = share;
    options.seed = seed;
    start(options);
    std::vector<std::shared_ptr<Listener>> listeners;
    for (int i = 0; i < 200; ++i) {
      listeners.push_back(std::make_shared<Listener>());
      Request request = request_of("x");
      request.sampling.seed = static_cast<uint64_t>(i);
      EXPECT_TRUE(service_->submit(std::move(request), listeners.back()).ok());
    }
    for (const auto& listener : listeners) listener->wait();
    std::set<uint64_t> seeds;
    for (const Record& record : records()) seeds.insert(record.sampling.seed);
    return seeds;
  };
  EXPECT_THAT(recorded(0.0, 1), IsEmpty());
  EXPECT_EQ(recorded(1.0, 1).size(), 200u);
  const auto half = recorded(0.5, 1);
  EXPECT_GT(half.size(), 60u);
  EXPECT_LT(half.size(), 140u);
  EXPECT_NE(recorded(0.5, 2), half);
}

TEST_F(Recording, GathersIdsAndNoTexts) {
  RecordingOptions options;
  options.share = 1.0;
  start(options);
  const int64_t before = std::time(nullptr);
  Request request = request_of("tell me");
  request.sampling.temperature = 0.7;
  request.sampling.seed = 9;
  request.sampling.logprobs = 2;
  request.max_tokens = 7;
  request.speculation = 1;
  const auto first = ask(request);
  EXPECT_GT(first->deltas(), 2);
  request.max_tokens = 0;
  request.speculate = false;
  request.stop = {"said"};
  const auto stopped = ask(request);
  request.stop.clear();
  const auto whole = ask(request);
  ASSERT_EQ(records().size(), 3u);
  const Record& one = records_[0];
  EXPECT_EQ(one.tokens, first->tokens());
  EXPECT_EQ(one.tokens.size(), 7u);
  EXPECT_EQ(one.prompt, request.prompt);
  EXPECT_EQ(one.finish, FinishReason::kLength);
  EXPECT_EQ(one.engine.model, "m.gguf");
  EXPECT_EQ(one.engine.speculate, "ngram:num_speculative_tokens=4");
  EXPECT_EQ(one.sampling.seed, 9u);
  EXPECT_EQ(one.sampling.temperature, 0.7);
  EXPECT_EQ(one.sampling.logprobs, -1);
  EXPECT_EQ(one.max_tokens, 7);
  EXPECT_GE(one.time, before);
  EXPECT_LE(one.time, std::time(nullptr));
  // Where a stop string ended it cannot be told without the string.
  EXPECT_EQ(records_[1].tokens, stopped->tokens());
  EXPECT_EQ(records_[1].finish, FinishReason::kNone);
  EXPECT_EQ(records_[1].engine.speculate, "none");
  EXPECT_EQ(records_[2].tokens, whole->tokens());
  EXPECT_EQ(records_[2].finish, FinishReason::kStop);
  EXPECT_GT(records_[2].tokens.size(), records_[1].tokens.size());
  for (const Record& record : records_) {
    EXPECT_FALSE(record.text);
    EXPECT_FALSE(record.prompt_text);
    EXPECT_THAT(record.stop, IsEmpty());
    EXPECT_TRUE(parse_record(to_line(record), "f:1").ok());
  }
}

TEST_F(Recording, HasTextsIfTheyAreWanted) {
  RecordingOptions options;
  options.share = 1.0;
  options.texts = true;
  start(options);
  Request request = request_of("tell me");
  request.stop = {"tell"};
  const auto listener = ask(request);
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(records_[0].text, "You said: ");
  EXPECT_EQ(records_[0].text, listener->text());
  EXPECT_THAT(records_[0].stop, ElementsAre("tell"));
  EXPECT_EQ(records_[0].finish, FinishReason::kStop);
}

TEST_F(Recording, OfCancelledOnesWhatCameOfFailedOnesNothing) {
  RecordingOptions options;
  options.share = 1.0;
  test::FakeService::Options fake;
  fake.reply = [](const std::string&) { return std::string(100000, 'a'); };
  fake.pause = std::chrono::microseconds(500);
  start(options, std::move(fake));
  const auto cancelled = std::make_shared<Listener>();
  const auto id = service_->submit(request_of("long"), cancelled);
  ASSERT_TRUE(id.ok());
  cancelled->wait_for_tokens();
  service_->cancel(*id);
  EXPECT_EQ(cancelled->wait().outcome, ReplyOutcome::kCancelled);
  Request late = request_of("late");
  late.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  const auto overdue = ask(late);
  EXPECT_EQ(ask("FAIL")->wait().outcome, ReplyOutcome::kFailed);
  const auto limited = ask("LIMIT4");
  EXPECT_EQ(limited->wait().finish, FinishReason::kError);
  // And one before its first token.
  const auto silent = std::make_shared<Listener>();
  const auto hangs = service_->submit(request_of("HANG"), silent);
  ASSERT_TRUE(hangs.ok());
  service_->cancel(*hangs);
  silent->wait();
  // Refused, and cancelled by the service's end.
  EXPECT_FALSE(service_->submit(Request(), std::make_shared<Listener>()).ok());
  const auto open = std::make_shared<Listener>();
  ASSERT_TRUE(service_->submit(request_of("open"), open).ok());
  open->wait_for_tokens();
  ASSERT_EQ(records().size(), 4u);
  for (const Record& record : records_) EXPECT_EQ(record.finish, FinishReason::kNone);
  EXPECT_EQ(records_[0].tokens, cancelled->tokens());
  EXPECT_EQ(records_[1].tokens, overdue->tokens());
  EXPECT_EQ(records_[2].tokens, limited->tokens());
  EXPECT_EQ(records_[3].tokens, open->tokens());
}

TEST_F(Recording, AGrammarIsAText) {
  RecordingOptions options;
  options.share = 1.0;
  start(options);
  const GrammarSpec spec{GrammarKind::kRegex, "[a-z]+", {}};
  Request request = request_of("x");
  request.grammar = compile_grammar(spec, service_->token_trie()).value();
  const auto unheard = ask(request);
  EXPECT_FALSE(unheard->tokens().empty());
  ask("y");
  EXPECT_EQ(service_->stats().records_left_out, 1);
  EXPECT_EQ(records().size(), 1u);
  options.texts = true;
  start(options);
  request.grammar = compile_grammar(spec, service_->token_trie()).value();
  ask(request);
  EXPECT_EQ(service_->stats().records_left_out, 0);
  ASSERT_EQ(records().size(), 1u);
  ASSERT_TRUE(records_[0].grammar);
  EXPECT_EQ(records_[0].grammar->kind, GrammarKind::kRegex);
  EXPECT_EQ(records_[0].grammar->text, "[a-z]+");
}

TEST_F(Recording, RepliesDoNotWaitForTheDisk) {
  RecordingOptions options;
  options.share = 1.0;
  options.writer.max_records = 2;
  Gate gate;
  int written = 0;
  service_ = std::make_unique<RecordingService>(nullptr, std::make_unique<test::FakeService>(),
                                                RecordedEngine(), options, [&](Record&) {
                                                  gate.pass();
                                                  ++written;
                                                  return Status();
                                                });
  for (int i = 0; i < 10; ++i) ask("x");
  // One is being written or not yet, two wait.
  const int64_t dropped = service_->stats().records_dropped;
  EXPECT_GE(dropped, 7);
  EXPECT_LE(dropped, 8);
  EXPECT_EQ(service_->stats().records_written, 0);
  gate.open();
  service_.reset();
  EXPECT_EQ(written, 10 - dropped);
}

Record small_record() {
  Record record;
  record.prompt = {1};
  record.tokens = {2};
  return record;
}

TEST_F(Recording, TheQueueIsBoundedInBytes) {
  Gate gate;
  RecordWriter::Options options;
  options.max_bytes = 10000;
  RecordWriter writer(
      [&](Record&) {
        gate.pass();
        return Status();
      },
      options);
  Record large = small_record();
  large.prompt.resize(2000);
  for (int i = 0; i < 4; ++i) writer.add(large);
  // What is being written counts, too.
  EXPECT_EQ(writer.counts().dropped, 3);
  gate.open();
}

TEST_F(Recording, AWriteThatHangsHoldsNobodyUp) {
  const auto gate = std::make_shared<Gate>();
  const auto began = std::make_shared<Gate>();
  RecordWriter::Options options;
  options.end_seconds = 0.05;
  {
    RecordWriter writer(
        [gate, began](Record&) {
          began->open();
          gate->pass();
          return Status();
        },
        options);
    writer.add(small_record());
    writer.add(small_record());
    began->pass();
  }
  gate->open();
}

TEST_F(Recording, WarnsOnce) {
  std::vector<std::string> said;
  RecordWriter::Options options;
  options.warn = [&](const std::string& message) { said.push_back(message); };
  int calls = 0;
  RecordWriter::Counts counts;
  {
    RecordWriter writer(
        [&](Record&) -> Status {
          const int call = calls++;
          if (call == 1) throw std::bad_alloc();
          if (call == 4) return Status(StatusCode::kUnsupported, "too long");
          if (call < 3 || call == 6) {
            return Status(StatusCode::kResourceExhausted, fmt::format("full {}", call));
          }
          return Status();
        },
        options);
    for (int i = 0; i < 7; ++i) writer.add(small_record());
    while ((counts = writer.counts()).written + counts.dropped < 7) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  EXPECT_EQ(counts.written, 2);
  EXPECT_EQ(counts.dropped, 5);
  EXPECT_THAT(
      said, ElementsAre("records are not written: full 0", "records are written again; 3 were lost",
                        "records are not written: full 6"));
}

constexpr int64_t kDay = 86400;
constexpr int64_t kNoon = 20781 * kDay + kDay / 2;  // 2026-11-24

class RecordFolderTest : public testing::Test {
 protected:
  RecordFolderTest() { fs::remove_all(path_); }
  ~RecordFolderTest() override { fs::remove_all(path_); }

  RecordFolder open(int64_t bytes = RecordFolder::kLeastBytes) const {
    auto folder = RecordFolder::open(path_, bytes);
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    return std::move(folder).value();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all = names_in(path_);
    std::erase(all, RecordFolder::kLockName);
    return all;
  }
  std::string content(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void make(const std::string& name, const std::string& text = "mine\n") const {
    std::ofstream(path_ + "/" + name) << text;
  }
  int64_t size() const {
    int64_t bytes = 0;
    for (const std::string& name : names()) {
      bytes += static_cast<int64_t>(fs::file_size(path_ + "/" + name));
    }
    return bytes;
  }
  static mode_t mode_of(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  // So many bytes that begin with a number.
  static std::string line(int number, size_t bytes = 64 << 10) {
    std::string out = fmt::format("{:06}", number);
    out.resize(bytes - 1, '.');
    return out + "\n";
  }

  const std::string path_ = fmt::format("{}aerie_{}_recorded", testing::TempDir(), getpid());
};

TEST_F(RecordFolderTest, IsForItsOwnerAlone) {
  const mode_t mask = umask(0);
  RecordFolder folder = open();
  ASSERT_TRUE(folder.append("a\n", kNoon).ok());
  umask(mask);
  EXPECT_EQ(mode_of(path_), 0700u);
  for (const std::string& name : names_in(path_)) EXPECT_EQ(mode_of(path_ + "/" + name), 0600u);
  EXPECT_THAT(names(), ElementsAre("replies-2026-11-24-001.jsonl"));
}

TEST_F(RecordFolderTest, BeginsAFileForADayAndAnOpening) {
  {
    RecordFolder folder = open();
    EXPECT_THAT(names(), IsEmpty()) << "before there is a record";
    for (const char* text : {"a\n", "b\n"}) ASSERT_TRUE(folder.append(text, kNoon).ok());
    ASSERT_TRUE(folder.append("c\n", kNoon + kDay / 2).ok());
    EXPECT_THAT(names(),
                ElementsAre("replies-2026-11-24-001.jsonl", "replies-2026-11-25-001.jsonl"));
  }
  RecordFolder again = open();
  ASSERT_TRUE(again.append("d\n", kNoon).ok());
  EXPECT_THAT(names(), ElementsAre("replies-2026-11-24-001.jsonl", "replies-2026-11-24-002.jsonl",
                                   "replies-2026-11-25-001.jsonl"));
  EXPECT_EQ(content("replies-2026-11-24-001.jsonl"), "a\nb\n");
  EXPECT_EQ(content("replies-2026-11-24-002.jsonl"), "d\n");
  EXPECT_EQ(content("replies-2026-11-25-001.jsonl"), "c\n");
}

TEST_F(RecordFolderTest, KeepsTheNewestWithinTheBound) {
  RecordFolder folder = open();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(folder.append(line(i), kNoon + i * kDay / 10).ok());
    ASSERT_LE(size(), RecordFolder::kLeastBytes);
  }
  // All but what a file holds that had to go.
  EXPECT_GE(size(), RecordFolder::kLeastBytes * 6 / 8);
  std::string all;
  for (const std::string& name : names()) all += content(name);
  const int first = std::stoi(all.substr(0, 6));
  for (int i = first; i < 100; ++i) {
    ASSERT_EQ(all.compare(static_cast<size_t>(i - first) * (64 << 10), 6, fmt::format("{:06}", i)),
              0);
  }
  // Those of earlier times count, too.
  const std::string oldest = names().front();
  { const RecordFolder gone = std::move(folder); }
  RecordFolder again = open();
  while (fs::exists(path_ + "/" + oldest)) {
    ASSERT_TRUE(again.append(line(0), kNoon + 30 * kDay).ok());
  }
  EXPECT_LE(size(), RecordFolder::kLeastBytes);
  EXPECT_EQ(again.append(line(0, 200 << 10), kNoon).code(), StatusCode::kUnsupported);
  EXPECT_TRUE(again.append(line(0, 128 << 10), kNoon).ok());
}

TEST_F(RecordFolderTest, TouchesNothingElse) {
  ASSERT_TRUE(fs::create_directory(path_));
  const std::vector<std::string> others = {
      "replies-2020-01-01-001.json",     "replies-2020-01-01.jsonl",
      "replies-2020-01-01-1.jsonl",      "replies-2020-1-01-001.jsonl",
      "replies-2020-01-01-001.jsonl.gz", "runs.jsonl",
      "xreplies-2020-01-01-001.jsonl",   "replies-2020-01-01-00a.jsonl"};
  for (const std::string& name : others) make(name, std::string(300 << 10, 'x'));
  fs::create_directory(path_ + "/replies-2020-01-02-001.jsonl");
  fs::create_symlink("runs.jsonl", path_ + "/replies-2020-01-03-001.jsonl");
  fs::create_symlink("runs.jsonl", path_ + "/replies-2026-11-24-001.jsonl");
  make("replies-2020-01-04-0001.jsonl", std::string(600 << 10, 'x'));  // its own, by the name
  RecordFolder folder = open();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(folder.append(line(i), kNoon).ok());
  for (const std::string& name : others) EXPECT_EQ(fs::file_size(path_ + "/" + name), 300u << 10);
  EXPECT_TRUE(fs::is_directory(path_ + "/replies-2020-01-02-001.jsonl"));
  EXPECT_TRUE(fs::is_symlink(path_ + "/replies-2020-01-03-001.jsonl"));
  EXPECT_TRUE(fs::is_symlink(path_ + "/replies-2026-11-24-001.jsonl"));
  EXPECT_FALSE(fs::exists(path_ + "/replies-2020-01-04-0001.jsonl"));
}

TEST_F(RecordFolderTest, OnlyOneWritesThere) {
  std::optional<RecordFolder> first = open();
  const auto second = RecordFolder::open(path_, RecordFolder::kLeastBytes);
  EXPECT_THAT(second.status().message(), AllOf(HasSubstr(path_), HasSubstr("of its own")));
  first.reset();
  EXPECT_TRUE(RecordFolder::open(path_, RecordFolder::kLeastBytes).ok());
}

TEST_F(RecordFolderTest, AFullDiskLosesWholeLines) {
  RecordFolder folder = open();
  {
    const test::FileSizeLimit limit(10);
    for (int i = 0; i < 3; ++i) {
      const Status status = folder.append("a line that is too long\n", kNoon);
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
      EXPECT_THAT(names(), IsEmpty());
    }
  }
  ASSERT_TRUE(folder.append("first\n", kNoon).ok());
  {
    const test::FileSizeLimit limit(10);
    EXPECT_FALSE(folder.append("second\n", kNoon).ok());
  }
  ASSERT_TRUE(folder.append("third\n", kNoon).ok());
  std::string all;
  for (const std::string& name : names()) all += content(name);
  EXPECT_EQ(all, "first\nthird\n");
}

TEST_F(RecordFolderTest, GoesOnWhereItWasRemoved) {
  RecordFolder folder = open();
  ASSERT_TRUE(folder.append("a\n", kNoon).ok());
  fs::remove(path_ + "/replies-2026-11-24-001.jsonl");
  ASSERT_TRUE(folder.append("b\n", kNoon).ok());
  EXPECT_EQ(content("replies-2026-11-24-001.jsonl"), "b\n");
  fs::remove_all(path_);
  // Something else is in its place for a while.
  std::ofstream(path_) << "a file";
  EXPECT_THAT(folder.append("c\n", kNoon).message(), HasSubstr(path_));
  fs::remove(path_);
  ASSERT_TRUE(folder.append("d\n", kNoon).ok());
  EXPECT_EQ(content("replies-2026-11-24-001.jsonl"), "d\n");
  EXPECT_EQ(mode_of(path_), 0700u);
  EXPECT_FALSE(RecordFolder::open(path_, RecordFolder::kLeastBytes).ok()) << "it is locked again";
}

TEST_F(RecordFolderTest, RefusesWhatIsNoFolder) {
  const auto message = [](const std::string& path) {
    const auto folder = RecordFolder::open(path, RecordFolder::kLeastBytes);
    EXPECT_FALSE(folder.ok()) << path;
    EXPECT_NE(folder.status().code(), StatusCode::kInternal);
    return folder.ok() ? "" : folder.status().message();
  };
  EXPECT_THAT(message("/dev/null"), AllOf(HasSubstr("/dev/null"), HasSubstr("no folder")));
  EXPECT_THAT(message("/nonexistent/records"), HasSubstr("/nonexistent/records"));
  EXPECT_THAT(message("/proc"), HasSubstr("/proc"));
}

// What the decorator and the folder make together, from a model: the audit's tests read it back.
TEST_F(RecordFolderTest, HoldsWhatAServedModelSaid) {
  const std::string model = path_ + ".gguf";
  test::TinySpec spec;
  spec.tokenizer = true;
  spec.vocab = test::kByteVocab;
  ASSERT_TRUE(test::tiny_gguf(spec).write(model).ok());
  EngineOptions engine;
  engine.model = model;
  engine.threads = 1;
  engine.speculation = parse_speculative_spec("ngram").value();
  engine.more_speculations = {parse_speculative_spec("none").value(),
                              parse_speculative_spec("suffix").value()};
  RecordingOptions recording;
  recording.share = 1.0;
  recording.texts = true;
  auto service = open_recording_service(engine, {}, recording, open());
  ASSERT_TRUE(service.ok()) << service.status().message();
  std::vector<std::shared_ptr<Listener>> listeners;
  for (int i = 0; i < 4; ++i) {
    Request request = request_of("a rose is a rose is a");
    request.speculate = i < 3;
    request.speculation = i % 3;
    request.max_tokens = 12;
    request.ignore_eos = true;
    listeners.push_back(std::make_shared<Listener>());
    ASSERT_TRUE((*service)->submit(std::move(request), listeners.back()).ok());
  }
  for (const auto& listener : listeners) listener->wait();
  *service = nullptr;
  ASSERT_EQ(names().size(), 1u);
  std::ifstream file(path_ + "/" + names()[0]);
  std::vector<std::string> speculated;
  for (std::string text; std::getline(file, text);) {
    const auto record = parse_record(text, "f:1");
    ASSERT_TRUE(record.ok()) << record.status().message();
    EXPECT_EQ(record->tokens, listeners[0]->tokens());
    EXPECT_EQ(record->text, listeners[0]->text());
    EXPECT_EQ(record->prompt_text, "a rose is a rose is a");
    EXPECT_EQ(record->engine.fingerprint.size(), 16u);
    EXPECT_EQ(record->engine.context, 1024);
    speculated.push_back(record->engine.speculate);
  }
  EXPECT_THAT(speculated, testing::UnorderedElementsAre("ngram", "none", "suffix", "none"));
  fs::remove(model);
}

}  // namespace aerie::recording_test
