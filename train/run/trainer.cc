#include "train/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/progress.h"
#include "train/batches/gather.h"
#include "train/batches/loader.h"
#include "train/run/checkpoint_files.h"
#include "train/run/curves.h"
#include "train/run/run_log.h"
#include "train/run/stepper.h"

namespace aerie::train {
namespace {

using Clock = std::chrono::steady_clock;

bool is_due(const Interval& interval, int64_t step, double seconds) {
  return (interval.steps > 0 && step % interval.steps == 0) ||
         (interval.seconds > 0.0 && seconds >= interval.seconds);
}

Status check(const TrainOptions& options, const TrainingSet& set) {
  AERIE_RETURN_IF_ERROR(check(options.budget));
  AERIE_RETURN_IF_ERROR(check(options.schedule));
  if (options.plan.batch_tokens < 1 || options.plan.max_length < 1 || options.accumulate < 1 ||
      options.log_steps < 1 || options.patience < 0 || !(options.clip_norm >= 0.0) ||
      !(options.clip_value >= 0.0)) {
    return {StatusCode::kInvalidArgument,
            "--batch-tokens, --max-length, --accumulate and --log-steps are at least 1, --patience "
            "and clipping at least 0"};
  }
  if (set.training.empty()) {
    return {StatusCode::kInvalidArgument, "there are no samples to train on"};
  }
  return {};
}

class Run {
 public:
  Run(Method& method, const TrainingSet& set, const TrainOptions& options, Group& group,
      const TrainCalls& calls)
      : method_(method),
        set_(set),
        options_(options),
        group_(group),
        calls_(calls),
        lengths_(lengths_of(set.training)),
        optimizer_(method.parameters(), options.adamw),
        stepper_(method, optimizer_, group,
                 {options.seed, options.clip_norm, options.clip_value, options.autocast,
                  options.draft_type, options.device}) {
    options_.plan.seed = options.seed;
  }

  Status begin_with(const std::string& folder);
  Status open();
  Expected<TrainResult> go();

 private:
  // What process 0 decides for all, after each step.
  struct Orders {
    double share = 0.0;  // of the training that is done
    bool evaluate = false, checkpoint = false, interrupted = false;
  };

  bool leads() const { return group_.rank() == 0; }
  int step_batches() const { return options_.accumulate * group_.world(); }
  double seconds() const { return seconds_before_ + seconds_since(start_); }
  std::string path(const char* name) const { return options_.folder + "/" + name; }
  void say(const std::string& line) const {
    if (leads() && calls_.say) calls_.say(line);
  }

  void count_steps();
  Expected<Orders> decide();
  Status step();
  Status write_log(double rate, const StepResult& result);
  // False: interrupted; it is done anew when the run goes on.
  Expected<bool> evaluate();
  Expected<Figures> validate();
  // None: interrupted.
  Expected<std::optional<double>> score(Evaluation& evaluation);
  Status judge(const Evaluation& evaluation, double score);
  Status write(const std::string& folder);
  Status write_folder(const std::string& folder, const Evaluation& evaluation);
  Status checkpoint();
  void show_progress();
  Status compare_processes();
  Expected<TrainResult> finish(TrainEnd end);

  Method& method_;
  const TrainingSet& set_;
  TrainOptions options_;
  Group& group_;
  const TrainCalls& calls_;
  std::vector<int64_t> lengths_;
  AdamW optimizer_;
  Stepper stepper_;
  std::optional<RunLog> log_;  // of process 0
  std::optional<Loader> loader_;

  RunState state_;
  int64_t planned_epoch_ = -1, epoch_batches_ = 0;  // the epoch that is gone through
  int64_t steps_ = 0;                               // of the whole run; 0: time decides
  double share_ = 0.0;
  Clock::time_point start_ = Clock::now();
  double seconds_before_ = 0.0;
  double saved_at_ = 0.0;
  int64_t saved_step_ = -1;
  std::optional<Evaluation> last_;
  // Since the last line of the log.
  Figures logged_;
  int64_t logged_steps_ = 0, clipped_ = 0;
  double logged_norm_ = 0.0;
  StepSeconds logged_seconds_;
  // Since this call.
  int64_t rows_ = 0;
  StepSeconds step_seconds_;
  std::optional<Progress> progress_;  // of process 0, from the first step on
};

Status Run::begin_with(const std::string& folder) {
  const bool is_run = std::filesystem::exists(folder + "/log.jsonl");
  if (is_run) return load_values(folder, method_.parameters(), optimizer_);
  AERIE_ASSIGN_OR_RETURN(const auto missing, read_parameters(folder, method_.parameters()));
  if (!missing.empty()) say(fmt::format("{} has no {}", folder, fmt::join(missing, ", ")));
  return {};
}

Status Run::open() {
  if (leads()) {
    AERIE_RETURN_IF_ERROR(claim_run(options_.folder, options_.config));
    AERIE_RETURN_IF_ERROR(recover_folder(path("best")));
    AERIE_RETURN_IF_ERROR(recover_folder(path("final")));
  }
  // Nobody reads the folder before process 0 has claimed it.
  at::Tensor claimed = at::ones({1}, at::kDouble);
  AERIE_RETURN_IF_ERROR(group_.broadcast(claimed));
  AERIE_ASSIGN_OR_RETURN(const auto state,
                         load_state(options_.folder, method_.parameters(), optimizer_));
  if (state) {
    state_ = *state;
    say(fmt::format("Going on after step {}", state_.step));
  } else if (!options_.init.empty()) {
    AERIE_RETURN_IF_ERROR(begin_with(options_.init));
  }
  seconds_before_ = saved_at_ = state_.seconds;
  if (state) saved_step_ = state_.step;
  if (leads()) {
    AERIE_ASSIGN_OR_RETURN(RunLog log, RunLog::open(path("log.jsonl"), state_.step));
    log_.emplace(std::move(log));
  }
  AERIE_RETURN_IF_ERROR(compare_processes());
  count_steps();
  return {};
}

void Run::count_steps() {
  steps_ = options_.budget.steps;
  for (int64_t epoch = 0; epoch < options_.budget.epochs; ++epoch) {
    const auto batches = static_cast<int64_t>(plan_epoch(lengths_, options_.plan, epoch).size());
    steps_ += (batches + step_batches() - 1) / step_batches();
  }
}

Expected<Run::Orders> Run::decide() {
  Orders orders;
  orders.share = steps_ > 0 ? static_cast<double>(state_.step) / static_cast<double>(steps_)
                            : seconds() / options_.budget.seconds;
  orders.evaluate = state_.step > state_.evaluated &&
                    is_due(options_.evaluation, state_.step, seconds() - state_.evaluated_at);
  orders.checkpoint = state_.step > saved_step_ && saved_step_ >= 0 &&
                      is_due(options_.checkpoint, state_.step, seconds() - saved_at_);
  orders.interrupted = calls_.cancel != nullptr && calls_.cancel->load();
  at::Tensor values = at::empty({4}, at::kDouble);
  double* const value = values.data_ptr<double>();
  value[0] = orders.share;
  value[1] = orders.evaluate ? 1.0 : 0.0;
  value[2] = orders.checkpoint ? 1.0 : 0.0;
  value[3] = orders.interrupted ? 1.0 : 0.0;
  AERIE_RETURN_IF_ERROR(group_.broadcast(values));
  return Orders{std::min(value[0], 1.0), value[1] != 0.0, value[2] != 0.0, value[3] != 0.0};
}

Status Run::step() {
  if (planned_epoch_ != state_.position.epoch) {
    planned_epoch_ = state_.position.epoch;
    epoch_batches_ =
        static_cast<int64_t>(plan_epoch(lengths_, options_.plan, planned_epoch_).size());
  }
  const int64_t begin = state_.position.next;
  const int64_t end = std::min(begin + step_batches(), epoch_batches_);
  // Of a known number of steps, the last one is at the end of the schedule.
  const double rate =
      rate_at(options_.schedule, steps_ > 0 ? share_ + 1.0 / static_cast<double>(steps_) : share_);
  method_.set_progress(share_);
  AERIE_ASSIGN_OR_RETURN(
      const StepResult result,
      stepper_.step(state_.step + 1, rate, {begin, end, [this] { return loader_->next(); }}));
  ++state_.step;
  state_.rows += result.rows;
  rows_ += result.rows;
  logged_seconds_.add(result.seconds);
  step_seconds_.add(result.seconds);
  state_.position.next = end;
  if (end == epoch_batches_) state_.position = {state_.position.epoch + 1, 0};
  return write_log(rate, result);
}

Status Run::write_log(double rate, const StepResult& result) {
  logged_.merge(result.figures);
  logged_norm_ += result.gradient_norm;
  clipped_ += result.clipped ? 1 : 0;
  ++logged_steps_;
  if (state_.step % options_.log_steps != 0 && state_.step != steps_) return {};
  AERIE_ASSIGN_OR_RETURN(const Figures figures, gather(logged_, group_));
  if (leads()) {
    const double share_after =
        steps_ > 0 ? static_cast<double>(state_.step) / static_cast<double>(steps_) : share_;
    Json line = {{"step", state_.step},   {"share", share_after}, {"epoch", state_.position.epoch},
                 {"tokens", state_.rows}, {"seconds", seconds()}, {"rate", rate}};
    for (const auto& [name, mean] : means(figures)) line[name] = mean;
    line["gradient_norm"] = logged_norm_ / static_cast<double>(logged_steps_);
    line["clipped"] = static_cast<double>(clipped_) / static_cast<double>(logged_steps_);
    line["seconds_of"] = json_of(logged_seconds_);
    AERIE_RETURN_IF_ERROR(log_->add(line));
    const std::string of = steps_ > 0 ? fmt::format(" of {}", steps_) : "";
    if (calls_.progress) {
      calls_.progress(
          fmt::format("step {}{}  {:.0f} %  loss {:.4f}  rate {:.2e}  norm {:.3f}  {:.0f} s  "
                      "{:.0f} tokens/s",
                      state_.step, of, 100.0 * share_after, mean_of(figures, "loss"), rate,
                      line["gradient_norm"].get<double>(), seconds(),
                      static_cast<double>(rows_) / seconds_since(start_)));
    }
  }
  logged_ = {};
  logged_norm_ = 0.0;
  logged_seconds_ = {};
  logged_steps_ = clipped_ = 0;
  return {};
}

Expected<Figures> Run::validate() {
  Figures own;
  const auto plan = plan_in_order(lengths_of(set_.validation), options_.plan);
  int64_t rows = 0;
  for (size_t i = 0; i < plan.size() && rows < options_.validation_tokens; ++i) {
    std::vector<const Sample*> samples;
    for (const int32_t place : plan[i]) {
      samples.push_back(set_.validation[static_cast<size_t>(place)]);
      rows +=
          std::min(static_cast<int64_t>(samples.back()->tokens.size()), options_.plan.max_length);
    }
    if (static_cast<int>(i % static_cast<size_t>(group_.world())) != group_.rank()) continue;
    AERIE_ASSIGN_OR_RETURN(const Batch batch, loader_->read(samples));
    AERIE_ASSIGN_OR_RETURN(const Figures figures,
                           stepper_.evaluate(batch, static_cast<int64_t>(i)));
    own.merge(figures);
  }
  return gather(own, group_);
}

Expected<std::optional<double>> Run::score(Evaluation& evaluation) {
  Status status;
  if (leads() && calls_.acceptance) {
    const std::string folder = path("eval");
    status = replace_folder(folder, [this](const std::string& at) { return write(at); });
    if (status.ok()) {
      auto acceptance = calls_.acceptance(folder);
      status = acceptance.status();
      if (acceptance.ok()) evaluation.acceptance = *std::move(acceptance);
    }
  }
  const bool interrupted = status.code() == StatusCode::kCancelled;
  at::Tensor told = at::empty({3}, at::kDouble);
  double* const values = told.data_ptr<double>();
  values[0] = evaluation.score();
  values[1] = interrupted ? 1.0 : 0.0;
  values[2] = status.ok() || interrupted ? 0.0 : 1.0;
  AERIE_RETURN_IF_ERROR(group_.broadcast(told));
  if (values[1] != 0.0) return std::optional<double>();
  AERIE_RETURN_IF_ERROR(status);
  if (values[2] != 0.0) {
    return Status(StatusCode::kInternal, "process 0 could not measure acceptance; it says why");
  }
  return std::optional(values[0]);
}

Expected<bool> Run::evaluate() {
  Evaluation evaluation;
  evaluation.step = state_.step;
  AERIE_ASSIGN_OR_RETURN(evaluation.figures, validate());
  AERIE_ASSIGN_OR_RETURN(const std::optional<double> scored, score(evaluation));
  if (!scored) return false;
  state_.evaluated = state_.step;
  state_.evaluated_at = state_.seconds = seconds();
  AERIE_RETURN_IF_ERROR(judge(evaluation, *scored));
  last_ = std::move(evaluation);
  return true;
}

Status Run::judge(const Evaluation& evaluation, double score) {
  const bool better = !state_.best || score > *state_.best;
  if (better) {
    state_.best = score;
    state_.best_step = state_.step;
  }
  state_.stale = better ? 0 : state_.stale + 1;
  if (!leads()) return {};
  Json figures = Json::object();
  for (const auto& [name, mean] : means(evaluation.figures)) figures[name] = mean;
  std::string text;
  if (evaluation.figures.weight > 0.0) {
    text += fmt::format("  loss {:.4f}", mean_of(evaluation.figures, "loss"));
  }
  if (const auto& acceptance = evaluation.acceptance) {
    figures["tau"] = acceptance->tau;
    figures["acceptance"] = acceptance->per_position;
    figures["replies"] = acceptance->replies;
    figures["rounds"] = acceptance->rounds;
    text += fmt::format("  tau {:.3f}  acceptance {:.2f}", acceptance->tau,
                        fmt::join(acceptance->per_position, " "));
  }
  AERIE_RETURN_IF_ERROR(log_->add({{"step", state_.step},
                                   {"epoch", state_.position.epoch},
                                   {"tokens", state_.rows},
                                   {"seconds", seconds()},
                                   {"evaluation", figures}}));
  say(fmt::format("evaluation after step {}:{}{}", state_.step, text, better ? "  (best)" : ""));
  AERIE_RETURN_IF_ERROR(write_curves(path("curves.html"), options_.config.method, log_->lines()));
  if (!better) return {};
  return replace_folder(
      path("best"), [&](const std::string& folder) { return write_folder(folder, evaluation); });
}

Status Run::write(const std::string& folder) {
  AERIE_RETURN_IF_ERROR(method_.write(folder));
  if (!options_.draft_type) return {};
  return add_to_config(folder, "draft_type", std::string(dtype_info(*options_.draft_type).name));
}

Status Run::write_folder(const std::string& folder, const Evaluation& evaluation) {
  AERIE_RETURN_IF_ERROR(write(folder));
  return calls_.describe ? calls_.describe(folder, state_, evaluation) : Status();
}

// Parameters that drifted apart would go unnoticed otherwise: every process would train on.
Status Run::compare_processes() {
  const uint64_t own = values_checksum(optimizer_);
  at::Tensor first = at::empty({1}, at::kLong);
  *first.data_ptr<int64_t>() = static_cast<int64_t>(own);
  AERIE_RETURN_IF_ERROR(group_.broadcast(first));
  at::Tensor different = at::zeros({1}, at::kDouble);
  if (*first.data_ptr<int64_t>() != static_cast<int64_t>(own)) different += 1.0;
  AERIE_RETURN_IF_ERROR(group_.sum(different));
  if (different.item<double>() == 0.0) return {};
  return {StatusCode::kInternal,
          fmt::format("step {}: the processes' parameters are not the same; all of them need the "
                      "same program, kind of processor, options and folder",
                      state_.step)};
}

Status Run::checkpoint() {
  AERIE_RETURN_IF_ERROR(compare_processes());
  state_.seconds = seconds();
  Status status;
  if (leads()) {
    status = save_state(options_.folder, state_, method_.parameters(), optimizer_);
  }
  saved_step_ = state_.step;
  saved_at_ = state_.seconds;
  return status;
}

Expected<TrainResult> Run::finish(TrainEnd end) {
  if (end != TrainEnd::kInterrupted && (!last_ || last_->step != state_.step)) {
    AERIE_ASSIGN_OR_RETURN(const bool evaluated, evaluate());
    if (!evaluated) end = TrainEnd::kInterrupted;
  }
  state_.finished = end != TrainEnd::kInterrupted;
  if (state_.finished && leads()) {
    AERIE_RETURN_IF_ERROR(replace_folder(
        path("final"), [this](const std::string& folder) { return write_folder(folder, *last_); }));
  }
  AERIE_RETURN_IF_ERROR(checkpoint());
  return TrainResult{end, state_, last_, rows_, seconds_since(start_), step_seconds_};
}

void Run::show_progress() {
  const bool counts_steps = steps_ > 0;
  const int64_t done = counts_steps ? state_.step : static_cast<int64_t>(seconds());
  if (progress_) return progress_->set(done);
  progress_.emplace("training",
                    counts_steps ? steps_ : static_cast<int64_t>(options_.budget.seconds),
                    counts_steps ? ProgressUnit::kCount : ProgressUnit::kSeconds);
  progress_->skip(done);
}

Expected<TrainResult> Run::go() {
  if (state_.finished) return TrainResult{TrainEnd::kDone, state_, std::nullopt, 0, 0.0, {}};
  loader_.emplace(set_, method_.needs(),
                  LoaderOptions{.plan = options_.plan,
                                .step_batches = step_batches(),
                                .rank = group_.rank(),
                                .world = group_.world(),
                                .ahead = options_.device.is_cpu() ? 2 : 8,
                                .for_device = !options_.device.is_cpu()},
                  state_.position);
  // So that a run that is killed soon has something to go on from.
  if (saved_step_ < 0) AERIE_RETURN_IF_ERROR(checkpoint());
  if (options_.evaluates_first && state_.step == 0 && !state_.best) {
    AERIE_ASSIGN_OR_RETURN(const bool evaluated, evaluate());
    if (!evaluated) return finish(TrainEnd::kInterrupted);
  }
  for (;;) {
    AERIE_ASSIGN_OR_RETURN(const Orders orders, decide());
    share_ = orders.share;
    if (leads()) show_progress();
    if (orders.evaluate) {
      AERIE_ASSIGN_OR_RETURN(const bool evaluated, evaluate());
      if (!evaluated) return finish(TrainEnd::kInterrupted);
    }
    const bool enough = options_.patience > 0 && state_.stale >= options_.patience;
    if (orders.interrupted) return finish(TrainEnd::kInterrupted);
    if (share_ >= 1.0) return finish(TrainEnd::kDone);
    if (enough) return finish(TrainEnd::kStoppedEarly);
    if (orders.checkpoint || orders.evaluate) AERIE_RETURN_IF_ERROR(checkpoint());
    AERIE_RETURN_IF_ERROR(step());
  }
}

}  // namespace

double Evaluation::score() const {
  return acceptance ? acceptance->tau : -mean_of(figures, "loss");
}

Expected<TrainResult> train(Method& method, const TrainingSet& set, const TrainOptions& options,
                            Group& group, const TrainCalls& calls) {
  AERIE_RETURN_IF_ERROR(check(options, set));
  Run run(method, set, options, group, calls);
  AERIE_RETURN_IF_ERROR(run.open());
  return run.go();
}

}  // namespace aerie::train
