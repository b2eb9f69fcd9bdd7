// A Service without a model: replies that a test decides on, byte by byte.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/reply.h"
#include "engine/service.h"
#include "tests/testing/tiny_model.h"

namespace aerie::test {

// What ends a reply early, anywhere in a prompt: "FAIL" fails after a few tokens, "HANG" says
// nothing until it is cancelled, "LIMIT4" comes to the limit of its constraint after four tokens.
class FakeService : public Service {
 public:
  struct Options {
    // The whole reply to a prompt; the default repeats its end.
    std::function<std::string(const std::string& prompt)> reply;
    std::chrono::microseconds pause{0};  // before each pass
    int tokens_per_pass = 2;
    int max_waiting = 1024;
    Expected<Pooling> pooling = Pooling::kLast;
    std::string chat_template =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if tools %}[{% for t in tools %}{{ t.function.name }} {% endfor %}]{% endif %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  };

  explicit FakeService(Options options = make_options()) : options_(std::move(options)) {
    if (!options_.reply) options_.reply = repeat_end;
    auto tokenizer = Tokenizer::from_gguf(file().gguf());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();
    trie_ = make_token_trie(*tokenizer_);
    chat_template_ = ChatTemplate::parse(options_.chat_template);
    EXPECT_TRUE(chat_template_.ok()) << chat_template_.status().message();
    thread_ = std::thread([this] { run(); });
  }
  ~FakeService() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  static Options make_options() { return {}; }
  static std::string repeat_end(const std::string& prompt) {
    const size_t from = prompt.size() > 24 ? prompt.size() - 24 : 0;
    return "You said: " + prompt.substr(from);
  }

  const std::string& model_name() const override { return name_; }
  int context() const override { return 1 << 16; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const Expected<ChatTemplate>& chat_template() const override { return chat_template_; }
  std::shared_ptr<const TokenTrie> token_trie() const override { return trie_; }
  std::vector<std::string> speculations() const override { return speculations_; }
  Expected<Pooling> pooling() const override { return options_.pooling; }
  int embedding_size() const override { return 4; }

  Expected<Id> submit(Request request, std::shared_ptr<ReplySink> sink) override {
    const std::lock_guard lock(mutex_);
    if (draining_) return Status(StatusCode::kCancelled, "shutting down: nothing new is taken");
    if (request.prompt.empty()) {
      return Status(StatusCode::kInvalidArgument, "the prompt has no tokens");
    }
    if (static_cast<int>(jobs_.size()) >= options_.max_waiting) {
      return Status(StatusCode::kResourceExhausted, "too many requests wait: try again later");
    }
    const Id id = next_++;
    Job& job = jobs_[id];
    for (const int32_t token : request.prompt) job.prompt += tokenizer_->piece(token);
    for (const char c : options_.reply(job.prompt)) {
      job.tokens.push_back(static_cast<unsigned char>(c));
    }
    job.tokens.push_back(kTurnEnd);
    job.reply = std::make_unique<Reply>(*tokenizer_, request);
    job.sink = std::move(sink);
    last_ = request;
    job.request = std::move(request);
    wake_.notify_all();
    return id;
  }
  void cancel(Id id) override {
    const std::lock_guard lock(mutex_);
    const auto it = jobs_.find(id);
    if (it != jobs_.end()) it->second.cancelled = true;
    wake_.notify_all();
  }
  ServiceStats stats() const override {
    const std::lock_guard lock(mutex_);
    ServiceStats stats;
    stats.running = static_cast<int>(jobs_.size());
    stats.requests = ended_;
    stats.accepted_tokens = 7;
    stats.accepted_at = {4, 2, 1};
    return stats;
  }
  void drain() override {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }

  int running() const { return stats().running; }
  int cancelled() const { return cancelled_.load(); }
  Request last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  struct Job {
    Request request;
    std::string prompt;
    std::vector<int32_t> tokens;
    size_t done = 0;
    size_t shown = 0;
    std::atomic<bool> cancelled = false;
    std::unique_ptr<Reply> reply;
    std::shared_ptr<ReplySink> sink;
    ReplyEnd end;
  };

  static const TinyFile& file() {
    static const TinyFile file([] {
      TinySpec spec;
      spec.tokenizer = true;
      spec.vocab = kByteVocab;
      return spec;
    }());
    return file;
  }

  static std::vector<TokenLogprob> logprobs_of(const Job& job, int32_t token) {
    std::vector<TokenLogprob> out;
    if (job.request.sampling.logprobs < 0) return out;
    // A reply whose choice is higher is likelier: that is how best_of shows.
    const float own = -2.0f + 0.5f * static_cast<float>(job.request.sampling.choice);
    out.push_back({token, own});
    for (int i = 0; i < job.request.sampling.logprobs; ++i) {
      out.push_back({i == 0 ? token : 'A' + i, own - static_cast<float>(i)});
    }
    return out;
  }

  // One pass of one job; whether it has ended.
  bool step(Job& job) {
    if (job.cancelled || stopping_) {
      job.end.outcome = ReplyOutcome::kCancelled;
      ++cancelled_;
      return true;
    }
    if (job.request.deadline && *job.request.deadline < std::chrono::steady_clock::now()) {
      job.end.outcome = ReplyOutcome::kDeadline;
      return true;
    }
    if (job.prompt.find("HANG") != std::string::npos) return false;
    if (job.request.pooling != Pooling::kNone) {
      // Of no certain length, and such that every part says something.
      const bool is_mean = job.request.pooling == Pooling::kMean;
      job.end.embedding = {static_cast<float>(job.prompt.front()),
                           static_cast<float>(job.prompt.back()),
                           static_cast<float>(job.prompt.size()), is_mean ? -100.0f : 100.0f};
      job.end.finish = FinishReason::kStop;
      return true;
    }
    const size_t limited = job.prompt.find("LIMIT");
    if (limited != std::string::npos &&
        job.done >= static_cast<size_t>(job.prompt.at(limited + 5) - '0')) {
      job.end.finish = FinishReason::kError;
      job.end.status = Status(StatusCode::kResourceExhausted, "it needs more than there is");
      return true;
    }
    if (job.prompt.find("FAIL") != std::string::npos && job.done >= 4) {
      job.end.outcome = ReplyOutcome::kFailed;
      job.end.status = Status(StatusCode::kInternal, "it broke");
      return true;
    }
    ReplyDelta delta;
    bool over = false;
    for (int i = 0; i < options_.tokens_per_pass && !over; ++i) {
      const int32_t token = job.tokens[std::min(job.done, job.tokens.size() - 1)];
      const auto origin = job.done == 0 ? TokenOrigin::kTarget
                          : i == 0      ? TokenOrigin::kAccepted
                                        : TokenOrigin::kBonus;
      delta.tokens.push_back({token, origin, logprobs_of(job, token)});
      if (job.request.trace && job.done > 0 && i == 0) {
        delta.tree.push_back({token, -1, 0.75f, true});
      }
      ++job.done;
      if (job.reply->stops_after(token)) {
        over = true;
        job.end.finish = FinishReason::kStop;
        job.end.stop_string = job.reply->stop_string();
      } else if (static_cast<int>(job.done) == job.request.max_tokens) {
        over = true;
        job.end.finish = FinishReason::kLength;
      }
    }
    job.end.stats.rounds += 1;
    job.end.stats.round_tokens += static_cast<int64_t>(delta.tokens.size());
    if (job.request.speculate) {
      job.end.stats.drafted += 3;
      job.end.stats.accepted += 1;
      job.end.stats.accepted_at = {job.end.stats.rounds, 0};
    }
    delta.text = job.reply->text().substr(job.shown);
    job.shown = job.reply->text().size();
    job.sink->on_delta(std::move(delta));
    return over;
  }

  void end(Job& job) {
    job.reply->finish();
    job.end.text = job.reply->text().substr(job.shown);
    job.end.prompt_tokens = static_cast<int>(job.request.prompt.size());
    job.end.generated_tokens = static_cast<int>(job.done);
    job.end.cached_tokens = 3;
    job.end.queue_seconds = 0.001;
    job.end.prompt_seconds = 0.002;
    job.end.generation_seconds = 0.003;
    job.sink->on_end(std::move(job.end));
  }

  void run() {
    for (;;) {
      std::vector<std::pair<Id, Job*>> now;
      {
        std::unique_lock lock(mutex_);
        // Those that hang are looked at now and then.
        wake_.wait_for(lock, std::chrono::milliseconds(2),
                       [&] { return stopping_.load() || !jobs_.empty(); });
        if (stopping_ && jobs_.empty()) return;
        for (auto& [id, job] : jobs_) now.emplace_back(id, &job);
      }
      std::this_thread::sleep_for(std::max(options_.pause, std::chrono::microseconds(50)));
      for (const auto& [id, job] : now) {
        if (!step(*job)) continue;
        end(*job);
        decltype(jobs_)::node_type gone;  // without the lock, since its sink may hold others
        const std::lock_guard lock(mutex_);
        gone = jobs_.extract(id);
        ++ended_;
      }
    }
  }

  Options options_;
  const std::string name_ = "fake-model";
  const std::vector<std::string> speculations_ = {"auto", "ngram:num_speculative_tokens=4",
                                                  "suffix"};
  std::unique_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<const TokenTrie> trie_;
  Expected<ChatTemplate> chat_template_ = Status(StatusCode::kNotFound, "none");

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<Id, Job> jobs_;
  Request last_;
  Id next_ = 1;
  int64_t ended_ = 0;
  bool draining_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> cancelled_ = 0;
  std::thread thread_;
};

}  // namespace aerie::test
