#include "train/data/answer.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/philox.h"
#include "decode/decoder.h"
#include "engine/reply.h"

namespace aerie::train {
namespace {

// A sample under way.
struct Open {
  AnswerTask task;
  Sample sample;  // what is settled: all turns before the one under way
  std::vector<std::string> replies;
  std::unique_ptr<Reply> reply;
  std::unique_ptr<Sequence> sequence;
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
        decoder_(target.model(), target.cache(), nullptr, options_of(target)) {}
  ~Run() {
    for (Open& open : open_) decoder_.close(*open.sequence);
  }

  Expected<AnswerCounts> run();

 private:
  static DecoderOptions options_of(const RunningTarget& target);
  bool cancelled() const { return calls_.cancel != nullptr && calls_.cancel->load(); }
  Status fill();
  Expected<std::optional<Open>> begin(const AnswerTask& task);
  Expected<bool> begin_turn(Open& open, std::vector<int32_t> tokens);
  Status settle(Open& open);
  Expected<bool> go_on(Open& open);

  RunningTarget& target_;
  const ConversationFormat& format_;
  const AnswerSettings& settings_;
  const std::vector<AnswerTask>& tasks_;
  const AnswerCalls& calls_;
  Decoder decoder_;
  size_t next_ = 0;  // of tasks_
  std::vector<Open> open_;
  AnswerCounts counts_;
};

DecoderOptions Run::options_of(const RunningTarget& target) {
  DecoderOptions options;
  options.prefill_chunk = RunningTarget::kPrefillChunk;
  // The last token of a sequence has no position of its own yet; that of a sample needs one.
  options.max_positions = target.options().context - 1;
  options.max_rows = target.max_rows();
  options.max_logits = target.options().sequences;
  return options;
}

// Opens a sequence with the conversation so far and computes the reply's first token. False if
// there is no room for a reply.
Expected<bool> Run::begin_turn(Open& open, std::vector<int32_t> tokens) {
  if (static_cast<int64_t>(tokens.size()) >= target_.options().context - 1) return false;
  SequenceOptions options;
  options.sampling.temperature = open.sample.temperature;
  options.sampling.seed = open.sample.seed;
  options.sampling.choice = static_cast<uint32_t>(open.task.index);
  options.max_tokens = settings_.max_tokens;
  open.reply = std::make_unique<Reply>(*target_.source().tokenizer, std::vector<std::string>(),
                                       /*ignore_eos=*/false);
  options.stop = open.reply.get();
  AERIE_ASSIGN_OR_RETURN(open.sequence, decoder_.open(tokens, options));
  counts_.prompt_tokens += static_cast<int64_t>(tokens.size() - open.sample.tokens.size());
  open.sample.mask.resize(tokens.size(), 0);
  open.sample.tokens = std::move(tokens);
  if (Status status = decoder_.prefill(*open.sequence, calls_.cancel); !status.ok()) {
    decoder_.close(*open.sequence);
    return status;
  }
  counts_.tokens += static_cast<int64_t>(open.sequence->emitted.size());
  return true;
}

Expected<std::optional<Open>> Run::begin(const AnswerTask& task) {
  Open open;
  open.task = task;
  Sample& sample = open.sample;
  sample.prompt = task.prompt->number;
  sample.index = task.index;
  sample.id = sample_id(sample.prompt, sample.index);
  sample.source = task.prompt->name;
  sample.temperature = temperature_of(settings_, sample.prompt, sample.index);
  sample.seed = seed_of(settings_, sample.prompt);
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, format_.first(*task.prompt));
  if (tokens.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  task.prompt->name + ": the text has no tokens; leave it out");
  }
  AERIE_ASSIGN_OR_RETURN(const bool fits, begin_turn(open, std::move(tokens)));
  if (fits) return std::optional(std::move(open));
  ++counts_.too_long;
  return std::optional<Open>();
}

// Moves the finished reply from its sequence into the sample.
Status Run::settle(Open& open) {
  Sample& sample = open.sample;
  sample.tokens = open.sequence->tokens;
  sample.mask.resize(sample.tokens.size(), 1);
  sample.finish = open.sequence->finish;
  decoder_.close(*open.sequence);
  open.sequence.reset();
  open.reply->finish();
  open.replies.push_back(open.reply->text());
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
  AERIE_ASSIGN_OR_RETURN(const bool fits, begin_turn(open, std::move(tokens)));
  if (!fits) counts_.turns_left_out += turns - turn;
  return fits;
}

// Ends what is finished and begins anew until the batch is full or nothing is left to begin.
Status Run::fill() {
  for (size_t i = 0; i < open_.size();) {
    Open& open = open_[i];
    if (open.sequence->finish == FinishReason::kNone) {
      ++i;
      continue;
    }
    AERIE_RETURN_IF_ERROR(settle(open));
    Open finished = std::move(open);
    open_.erase(open_.begin() + static_cast<int64_t>(i));
    AERIE_ASSIGN_OR_RETURN(const bool goes_on, go_on(finished));
    if (goes_on) {
      open_.insert(open_.begin() + static_cast<int64_t>(i), std::move(finished));
      continue;
    }
    ++counts_.samples;
    AERIE_RETURN_IF_ERROR(calls_.done(std::move(finished.sample)));
  }
  while (open_.size() < static_cast<size_t>(target_.options().sequences) && next_ < tasks_.size() &&
         !cancelled()) {
    AERIE_ASSIGN_OR_RETURN(std::optional<Open> open, begin(tasks_[next_++]));
    if (open) open_.push_back(std::move(*open));
  }
  return {};
}

Expected<AnswerCounts> Run::run() {
  std::vector<Sequence*> batch;
  for (;;) {
    if (Status status = fill(); !status.ok()) {
      if (status.code() == StatusCode::kCancelled) return counts_;
      return status;
    }
    if (cancelled() || open_.empty()) return counts_;
    batch.clear();
    for (const Open& open : open_) {
      if (open.sequence->finish == FinishReason::kNone) batch.push_back(open.sequence.get());
    }
    // Replies may be over with their first token.
    if (batch.empty()) continue;
    AERIE_RETURN_IF_ERROR(decoder_.round(batch));
    for (const Sequence* sequence : batch) {
      counts_.tokens += static_cast<int64_t>(sequence->emitted.size());
    }
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
