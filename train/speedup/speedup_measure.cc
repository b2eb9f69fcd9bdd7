#include "train/speedup/speedup_measure.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "kernels/machine_peak.h"
#include "train/batches/loader.h"
#include "train/data/answer.h"
#include "train/data/generate_data.h"
#include "train/run/stepper.h"

namespace aerie::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPromptTokens = 64;
constexpr int kMostPlainTokens = 256;
constexpr int kWarmUpTokens = 4;
constexpr int kLeastRounds = 3;
constexpr int kSampleTokens = 256;
constexpr int kSamples = 8;
constexpr int64_t kProbeBatch = 512;
constexpr int kTimedSteps = 2;
// Of a training, where its steps may take different times (Method::set_progress()).
constexpr double kMoments[] = {0.125, 0.375, 0.625, 0.875};

Status cancelled() {
  return {StatusCode::kCancelled, "interrupted before anything was made"};
}

bool asked_to_end(const SpeedupOptions& options) {
  return options.cancel != nullptr && options.cancel->load();
}

// Speed does not depend on which they are.
std::vector<int32_t> tokens_at_random(int count, int vocab, uint32_t number) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    const uint32_t draw = philox4x32({static_cast<uint32_t>(i), number, 0, 0}, {0, 0})[0];
    tokens.push_back(static_cast<int32_t>(draw % static_cast<uint32_t>(vocab)));
  }
  return tokens;
}

Expected<double> plain_speed(const SpeedupOptions& options, double seconds) {
  EngineOptions engine_options;
  engine_options.model = options.model;
  engine_options.threads = options.threads;
  AERIE_ASSIGN_OR_RETURN(const auto engine, Engine::open(engine_options));
  Request request;
  request.prompt = tokens_at_random(std::min(kPromptTokens, engine->parts().options.context / 4),
                                    engine->parts().config().vocab, 0);
  request.ignore_eos = true;
  request.cancel = options.cancel;
  double rate = 0.0;
  // The second time for as long as is wanted, with everything in the caches.
  for (int tokens = kWarmUpTokens;;) {
    request.max_tokens = std::min(tokens, engine->parts().options.context / 2);
    AERIE_ASSIGN_OR_RETURN(const Generation reply, engine->generate(request, {}));
    if (asked_to_end(options)) return cancelled();
    const bool first = rate == 0.0;
    rate = std::max(reply.tokens_per_second(), 1e-6);
    if (!first) return rate;
    tokens = static_cast<int>(
        std::clamp(rate * seconds, 2.0 * kWarmUpTokens, static_cast<double>(kMostPlainTokens)));
  }
}

// As many sequences as memory allows.
Expected<std::unique_ptr<RunningTarget>> open_target(const SpeedupOptions& options) {
  RunningTargetOptions target_options;
  target_options.model = options.model;
  target_options.threads = options.threads;
  for (int sequences = GenerateOptions::kDefaultBatch;; sequences /= 2) {
    target_options.sequences = sequences;
    auto target = RunningTarget::open(target_options);
    if (target.status().code() != StatusCode::kResourceExhausted || sequences == 1) return target;
  }
}

Status answering_speed(const SpeedupOptions& options, std::vector<Prompt> prompts,
                       bool chat_template, double seconds, SpeedupSpeeds& speeds) {
  // Without a template all are texts to go on with.
  for (Prompt& prompt : prompts) prompt.chat = prompt.chat && chat_template;
  AERIE_ASSIGN_OR_RETURN(const auto target, open_target(options));
  AERIE_ASSIGN_OR_RETURN(const ConversationFormat format,
                         ConversationFormat::make(target->source(), chat_template));
  speeds.replies_at_a_time = target->options().sequences;
  std::vector<AnswerTask> tasks;
  for (int index = 0; tasks.size() < static_cast<size_t>(4 * speeds.replies_at_a_time); ++index) {
    for (const Prompt& prompt : prompts) tasks.push_back({&prompt, index});
  }
  AnswerSettings settings;
  settings.max_tokens = kSpeedupReplyTokens;
  std::atomic<bool> over{false};
  AnswerCalls calls;
  calls.cancel = &over;
  calls.done = [](const Sample&, const std::vector<uint16_t>&) { return Status(); };
  const auto start = Clock::now();
  Clock::time_point first;
  int64_t tokens_then = 0, tokens = 0;
  double first_seconds = 0.0, seconds_after = 0.0;
  int rounds = 0;
  calls.progress = [&](const AnswerCounts& counts) {
    // First the prompts have to be read.
    over = asked_to_end(options);
    if (rounds == 0 && counts.reading > 0) return;
    if (rounds++ == 0) {
      first = Clock::now();
      first_seconds = seconds_since(start);
      tokens_then = counts.tokens;
    }
    tokens = counts.tokens;
    seconds_after = seconds_since(first);
    over = asked_to_end(options) || (rounds > kLeastRounds && seconds_after >= seconds);
  };
  AERIE_RETURN_IF_ERROR(answer(*target, format, settings, tasks, calls).status());
  if (asked_to_end(options)) return cancelled();
  if (rounds < 2 || tokens <= tokens_then || seconds_after <= 0.0) {
    return {StatusCode::kInvalidArgument,
            "--prompts: the model says nothing to these prompts, or they are too long for it"};
  }
  // In the long run a reply has its share of the prompts' time, and of that of rounds.
  const double rate = static_cast<double>(tokens - tokens_then) / seconds_after;
  const double of_prompt = first_seconds / speeds.replies_at_a_time;
  speeds.answering = kSpeedupReplyTokens / (of_prompt + kSpeedupReplyTokens / rate);
  return {};
}

std::vector<Sample> random_samples(int vocab) {
  std::vector<Sample> samples(kSamples);
  for (int i = 0; i < kSamples; ++i) {
    Sample& sample = samples[static_cast<size_t>(i)];
    sample.tokens = tokens_at_random(kSampleTokens, vocab, static_cast<uint32_t>(i));
    sample.mask.assign(kSampleTokens, 1);
    std::fill_n(sample.mask.begin(), kPromptTokens, 0);
  }
  return samples;
}

// Speed does not depend on the values, as long as they are of the usual size.
class AnyFeatures final : public FeatureSource {
 public:
  AnyFeatures(std::vector<int32_t> layers, int hidden)
      : layers_(std::move(layers)), hidden_(hidden) {}

  std::span<const int32_t> tap_layers() const override { return layers_; }
  int hidden() const override { return hidden_; }
  Status read(const Sample& sample, std::span<float> out) override {
    const PhiloxBlock draw = philox4x32({static_cast<uint32_t>(sample.tokens[0]), 1, 0, 0}, {0, 0});
    uint32_t state = draw[0];
    for (float& value : out) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
    }
    return {};
  }

 private:
  std::vector<int32_t> layers_;
  int hidden_ = 0;
};

// Tokens/s, the mean over the moments of a training by the clock.
Expected<double> time_steps(const SpeedupOptions& options, Method& method, const TrainingSet& set,
                            double seconds, bool bf16) {
  PlanOptions plan;
  plan.batch_tokens = kProbeBatch;
  AdamW optimizer(method.parameters(), {});
  AERIE_ASSIGN_OR_RETURN(const auto group, join_group({}));
  StepOptions step_options;
  step_options.device = options.device;
  step_options.autocast = bf16;
  Stepper stepper(method, optimizer, *group, step_options);
  Loader loader(set, method.needs(), LoaderOptions{plan}, {});
  double rates = 0.0;
  int64_t step = 0;
  for (const double moment : kMoments) {
    method.set_progress(moment);
    Clock::time_point start;
    int64_t rows = 0;
    // The first makes room for everything, and found batches ready.
    for (int timed = -1;; ++timed) {
      if (timed == 0) start = Clock::now();
      if (timed >= kTimedSteps && seconds_since(start) >= seconds / std::size(kMoments)) break;
      ++step;
      AERIE_ASSIGN_OR_RETURN(
          const StepResult result,
          stepper.step(step, 0.0, {step, step + 1, [&] { return loader.next(); }}));
      if (asked_to_end(options)) return cancelled();
      if (timed >= 0) rows += result.rows;
    }
    rates += static_cast<double>(rows) / seconds_since(start);
  }
  return rates / std::size(kMoments);
}

Status training_speed(const SpeedupOptions& options, const SpeedupHead& head, double seconds,
                      SpeedupSpeeds& speeds) {
  ThreadPool pool(1);
  AERIE_ASSIGN_OR_RETURN(const auto target, Target::open(options.model, pool));
  target->to(options.device);
  at::Generator generator = at::detail::createCPUGenerator(1);
  const ModelConfig& config = target->config();
  const std::vector<int64_t> counts(static_cast<size_t>(config.vocab), 0);
  AERIE_ASSIGN_OR_RETURN(const auto method, make_speedup_head(head)({*target, generator, counts}));
  speeds.parameters = method->parameters().count();
  speeds.layers = feature_layers(method->needs(), config.layers);
  speeds.feature_bytes =
      static_cast<int64_t>(speeds.layers.size() * sizeof(uint16_t)) * config.hidden;
  const std::vector<Sample> samples = random_samples(config.vocab);
  TrainingSet set;
  for (const Sample& sample : samples) set.training.push_back(&sample);
  AnyFeatures features(speeds.layers, config.hidden);
  set.features = &features;
  AERIE_ASSIGN_OR_RETURN(speeds.training, time_steps(options, *method, set, seconds, false));
  // Without the instructions it would take minutes to find out that it is slower.
  if (!options.device.is_cpu() || !kernels::has_dot(kernels::best_isa(), kernels::Dot::kBfloat)) {
    return {};
  }
  AERIE_ASSIGN_OR_RETURN(const double bf16, time_steps(options, *method, set, seconds, true));
  speeds.bf16 = bf16 > speeds.training;
  speeds.training = std::max(bf16, speeds.training);
  return {};
}

}  // namespace

Expected<SpeedupSpeeds> measure_speeds(const SpeedupOptions& options, const SpeedupHead& head,
                                       const std::vector<Prompt>& prompts, bool chat_template,
                                       double seconds) {
  const auto start = Clock::now();
  if (options.threads > 0) at::set_num_threads(options.threads);
  SpeedupSpeeds speeds;
  AERIE_ASSIGN_OR_RETURN(speeds.plain, plain_speed(options, seconds));
  AERIE_RETURN_IF_ERROR(answering_speed(options, prompts, chat_template, seconds, speeds));
  AERIE_RETURN_IF_ERROR(training_speed(options, head, seconds, speeds));
  speeds.seconds = seconds_since(start);
  return speeds;
}

}  // namespace aerie::train
