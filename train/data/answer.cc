#include "train/data/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/philox.h"
#include "decode/decoder.h"
#include "engine/reply.h"
#include "scheduler/scheduler.h"

namespace aerie::train {
namespace {

// A sample under way, which hears of its turn's job.
struct Open final : JobListener {
  AnswerTask task;
  Sample sample;  // what is settled: all turns before the one under way
  std::vector<std::string> replies;
  std::unique_ptr<Reply> reply;
  bool ended = false;
  Status status;      // of the turn that has ended
  int64_t fresh = 0;  // tokens of the last pass
  bool reading = false;
  TapRecorder* recorder = nullptr;
  std::vector<uint16_t> taps;  // of the turn that has ended, which read those before it, too

  void on_tokens(const Sequence& sequence) override {
    fresh += static_cast<int64_t>(sequence.emitted.size());
    reading = false;
  }
  // The finished reply goes into the sample.
  void on_end(JobEnd /*end*/, const Status& why, const Sequence* sequence) override {
    ended = true;
    status = why;
    if (sequence == nullptr || !why.ok()) return;
    sample.tokens = sequence->tokens;
    sample.mask.resize(sample.tokens.size(), 1);
    sample.finish = sequence->finish;
    if (recorder != nullptr) {
      taps = recorder->take(sequence->id);
      taps.resize(taps.size() / (sample.tokens.size() - 1) * sample.tokens.size(), 0);
    }
    reply->finish();
    replies.push_back(reply->text());
  }
};

class Run {
 public:
  Run(RunningTarget& target, const ConversationFormat& format, const AnswerSettings& settings,
      const std::vector<AnswerTask>& tasks, const AnswerCalls& calls)
      : target_(target),
        format_(format),
        settings_(settings),
        tasks_(tasks),
        calls_(calls),
        decoder_(*target.parts().model, *target.parts().cache, calls.recorder, options_of(target)),
        scheduler_(decoder_, *target.parts().cache,
                   {.max_sequences = target.options().sequences,
                    .max_pass_rows = target.parts().decoder.max_rows}) {}

  Expected<AnswerCounts> run();

 private:
  static DecoderOptions options_of(const RunningTarget& target);
  bool cancelled() const { return calls_.cancel != nullptr && calls_.cancel->load(); }
  Status fill();
  void count();
  Status begin(const AnswerTask& task);
  bool begin_turn(Open& open, std::vector<int32_t> tokens);
  Expected<bool> go_on(Open& open);

  RunningTarget& target_;
  const ConversationFormat& format_;
  const AnswerSettings& settings_;
  const std::vector<AnswerTask>& tasks_;
  const AnswerCalls& calls_;
  Decoder decoder_;
  size_t next_ = 0;  // of tasks_
  JobId next_job_ = 0;
  std::vector<std::unique_ptr<Open>> open_;
  AnswerCounts counts_;
  Scheduler scheduler_;  // before what its jobs hear with
};

DecoderOptions Run::options_of(const RunningTarget& target) {
  DecoderOptions options = target.parts().decoder;
  // The last token of a sequence has no position of its own yet; that of a sample needs one.
  options.max_positions = target.options().context - 1;
  return options;
}

// A job with the conversation so far. False if there is no room for a reply.
bool Run::begin_turn(Open& open, std::vector<int32_t> tokens) {
  if (static_cast<int64_t>(tokens.size()) >= target_.options().context - 1) return false;
  auto job = std::make_unique<Job>();
  job->id = next_job_++;
  job->listener = &open;
  job->options.sampling.temperature = open.sample.temperature;
  job->options.sampling.seed = open.sample.seed;
  job->options.sampling.choice = static_cast<uint32_t>(open.task.index);
  job->options.max_tokens = settings_.max_tokens;
  open.reply = std::make_unique<Reply>(target_.parts().tokenizer(), Request());
  job->options.stop = open.reply.get();
  job->prompt = tokens;
  counts_.prompt_tokens += static_cast<int64_t>(tokens.size() - open.sample.tokens.size());
  open.sample.mask.resize(tokens.size(), 0);
  open.sample.tokens = std::move(tokens);
  open.ended = false;
  open.reading = true;
  scheduler_.add(std::move(job));
  return true;
}

Status Run::begin(const AnswerTask& task) {
  auto open = std::make_unique<Open>();
  open->task = task;
  open->recorder = calls_.recorder;
  Sample& sample = open->sample;
  sample.prompt = task.prompt->number;
  sample.index = task.index;
  sample.id = sample_id(sample.prompt, sample.index);
  sample.source = task.prompt->name;
  sample.temperature = temperature_of(settings_, sample.prompt, sample.index);
  sample.seed = seed_of(settings_, sample.prompt);
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, format_.first(*task.prompt));
  if (tokens.empty()) {
    return {StatusCode::kInvalidArgument,
            task.prompt->name + ": the text has no tokens; leave it out"};
  }
  if (begin_turn(*open, std::move(tokens))) {
    open_.push_back(std::move(open));
  } else {
    ++counts_.too_long;
  }
  return {};
}

// After a reply: the next turn, or the sample's end (false).
Expected<bool> Run::go_on(Open& open) {
  const auto turn = static_cast<int>(open.replies.size());
  const int turns = format_.turns(*open.task.prompt);
  if (turn == turns) return false;
  const int32_t last = open.sample.finish == FinishReason::kStop ? open.sample.tokens.back() : -1;
  AERIE_ASSIGN_OR_RETURN(const std::vector<int32_t> between,
                         format_.next(*open.task.prompt, open.replies, last));
  std::vector<int32_t> tokens = open.sample.tokens;
  tokens.insert(tokens.end(), between.begin(), between.end());
  const bool fits = begin_turn(open, std::move(tokens));
  if (!fits) counts_.turns_left_out += turns - turn;
  return fits;
}

// Ends what is finished and begins anew until the batch is full or nothing is left to begin.
Status Run::fill() {
  for (size_t i = 0; i < open_.size();) {
    Open& open = *open_[i];
    if (open.ended) {
      AERIE_RETURN_IF_ERROR(open.status);
      AERIE_ASSIGN_OR_RETURN(const bool goes_on, go_on(open));
      if (!goes_on) {
        ++counts_.samples;
        const std::unique_ptr<Open> finished = std::move(open_[i]);
        open_.erase(open_.begin() + static_cast<int64_t>(i));
        AERIE_RETURN_IF_ERROR(calls_.done(std::move(finished->sample), std::move(finished->taps)));
        continue;
      }
    }
    ++i;
  }
  while (open_.size() < static_cast<size_t>(target_.options().sequences) && next_ < tasks_.size() &&
         !cancelled()) {
    AERIE_RETURN_IF_ERROR(begin(tasks_[next_++]));
  }
  return {};
}

// What the last pass brought.
void Run::count() {
  counts_.reading = 0;
  for (const auto& open : open_) {
    counts_.tokens += std::exchange(open->fresh, 0);
    if (open->reading) ++counts_.reading;
  }
}

Expected<AnswerCounts> Run::run() {
  for (;;) {
    AERIE_RETURN_IF_ERROR(fill());
    if (cancelled() || open_.empty()) return counts_;
    scheduler_.step();
    count();
    if (calls_.progress) calls_.progress(counts_);
  }
}

Status check(const AnswerSettings& settings) {
  if (settings.max_tokens < 1) {
    return {StatusCode::kInvalidArgument,
            fmt::format("replies of {} tokens: give at least 1", settings.max_tokens)};
  }
  if (settings.temperatures.empty()) {
    return {StatusCode::kInvalidArgument, "there is no temperature: give at least one"};
  }
  return {};
}

}  // namespace

double temperature_of(const AnswerSettings& settings, int prompt, int index) {
  const auto turn = static_cast<size_t>(prompt) + static_cast<size_t>(index);
  return settings.temperatures[turn % settings.temperatures.size()];
}

uint64_t seed_of(const AnswerSettings& settings, int prompt) {
  const PhiloxKey key = {static_cast<uint32_t>(settings.seed),
                         static_cast<uint32_t>(settings.seed >> 32)};
  const PhiloxBlock block = philox4x32({static_cast<uint32_t>(prompt), 0, 0, 0}, key);
  return uint64_t{block[1]} << 32 | block[0];
}

Expected<AnswerCounts> answer(RunningTarget& target, const ConversationFormat& format,
                              const AnswerSettings& settings, const std::vector<AnswerTask>& tasks,
                              const AnswerCalls& calls) {
  AERIE_RETURN_IF_ERROR(check(settings));
  return Run(target, format, settings, tasks, calls).run();
}

}  // namespace aerie::train
