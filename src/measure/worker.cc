#include "measure/worker.h"

#include <algorithm>
#include <chrono>
#include <istream>
#include <optional>
#include <ostream>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/thread_pool.h"
#include "decode/decoder.h"
#include "measure/passes/loaded_model.h"
#include "measure/passes/machine.h"
#include "measure/report_head.h"
#include "measure/statistics.h"

namespace aerie::measure {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostSeconds = 60.0;

// An integer of a request, between `least` and `most`.
Expected<int> number(const Json& request, const char* key, int least, int most) {
  const auto found = request.find(key);
  if (found != request.end() && found->is_number_integer()) {
    const auto value = found->get<int64_t>();
    if (value >= least && value <= most) return static_cast<int>(value);
  }
  return invalid_argument("'{}' must be {} to {}", key, least, most);
}

class Worker {
 public:
  Worker(const WorkerOptions& options, LoadedModel& model) : options_(options), model_(model) {
    decoder_options_.max_positions = options.positions;
    decoder_options_.prefill_chunk = LoadedModel::kPrefillChunk;
    decoder_options_.max_rows = std::max(options.rows, LoadedModel::kPrefillChunk);
    decoder_options_.max_logits = options.rows;
  }

  Json answer(const std::string& line);

 private:
  Expected<Json> dispatch(const Json& request);
  Expected<Json> fill(const Json& request);
  Expected<Json> pass(const Json& request);
  Expected<Json> generate(int context, int tokens);
  Expected<Json> limits();

  const WorkerOptions& options_;
  LoadedModel& model_;
  DecoderOptions decoder_options_;
  std::optional<Machine> machine_;
  int context_ = 0;
};

Expected<Json> Worker::fill(const Json& request) {
  AERIE_ASSIGN_OR_RETURN(const int context,
                         number(request, "context", 1, options_.positions - options_.rows));
  AERIE_RETURN_IF_ERROR(model_.fill(context));
  context_ = context;
  return Json::object();
}

Expected<Json> Worker::pass(const Json& request) {
  AERIE_ASSIGN_OR_RETURN(const int rows, number(request, "rows", 1, options_.rows));
  if (context_ == 0) return invalid_argument("'fill' comes first");
  const auto wanted = request.find("seconds");
  const double seconds = wanted != request.end() && wanted->is_number()
                             ? std::clamp(wanted->get<double>(), 0.0, kMostSeconds)
                             : 0.0;
  std::vector<double> passes;
  const auto start = Clock::now();
  do {
    AERIE_ASSIGN_OR_RETURN(const double one, model_.pass(context_, rows));
    passes.push_back(one);
  } while (seconds_since(start) < seconds);
  return Json{{"ms", 1e3 * median(passes)}};
}

// Time for `tokens` tokens after the one that ends the prompt, or for the prompt if there are none.
Expected<Json> Worker::generate(int context, int tokens) {
  std::vector<int32_t> prompt(static_cast<size_t>(context));
  for (int32_t& token : prompt) token = model_.random_token();
  Decoder decoder(model_.model(), model_.cache(), nullptr, decoder_options_);
  SequenceOptions options;
  options.max_tokens = tokens + 1;
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence, decoder.open(prompt, options));
  auto start = Clock::now();
  Status status = decoder.prefill(*sequence);
  if (tokens > 0) start = Clock::now();
  Sequence* const batch[] = {sequence.get()};
  for (int i = 0; i < tokens && status.ok(); ++i) status = decoder.round(batch);
  const double seconds = seconds_since(start);
  decoder.close(*sequence);
  if (!status.ok()) return status;
  return Json{{"ms", 1e3 * seconds}};
}

Expected<Json> Worker::limits() {
  if (!machine_) {
    AERIE_ASSIGN_OR_RETURN(Machine machine, Machine::open(options_.isa, model_.pool()));
    machine_ = std::move(machine);
  }
  const Limits limits = machine_->measure({true, true, true});
  Json out = {{"bandwidth", limits.bandwidth}};
  for (int d = 0; d < kernels::kDotCount; ++d) {
    const auto dot = static_cast<kernels::Dot>(d);
    if (machine_->has(dot)) out[std::string(kernels::dot_name(dot))] = limits.dot(dot);
  }
  return out;
}

Expected<Json> Worker::dispatch(const Json& request) {
  const auto found = request.is_object() ? request.find("do") : request.end();
  if (!request.is_object() || found == request.end() || !found->is_string()) {
    return invalid_argument("not a JSON object with a string 'do'");
  }
  const auto what = found->get<std::string>();
  if (what == "fill") return fill(request);
  if (what == "pass") return pass(request);
  if (what == "limits") return limits();
  const int most = options_.positions - 1;
  if (what == "prompt") {
    AERIE_ASSIGN_OR_RETURN(const int tokens, number(request, "tokens", 1, most));
    return generate(tokens, 0);
  }
  if (what == "decode") {
    AERIE_ASSIGN_OR_RETURN(const int context, number(request, "context", 1, most - 1));
    AERIE_ASSIGN_OR_RETURN(const int tokens, number(request, "tokens", 1, most - context));
    return generate(context, tokens);
  }
  return invalid_argument("'do' must be fill, pass, prompt, decode or limits");
}

Json Worker::answer(const std::string& line) {
  const Expected<Json> result = dispatch(Json::parse(line, nullptr, false));
  return result.ok() ? *result : Json{{"error", result.status().message()}};
}

void write_line(const Json& json, std::ostream& out) {
  out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

}  // namespace

Status run_worker(const WorkerOptions& options, std::istream& in, std::ostream& out) {
  if (options.rows < 1 || options.positions <= options.rows) {
    return invalid_argument(
        "--rows {} and --positions {}: give one row or more, and more positions", options.rows,
        options.positions);
  }
  LoadOptions load;
  load.engine.model = options.model;
  load.engine.threads = options.threads;
  load.engine.isa = options.isa;
  load.engine.device = "cpu";
  load.most_rows = options.rows;
  load.positions = options.positions;
  load.sequences = 2;  // the filled one, and one that is generated
  AERIE_ASSIGN_OR_RETURN(const auto model, LoadedModel::load(load));
  Worker worker(options, *model);
  write_line({{"ready", true}}, out);
  for (std::string line; out && std::getline(in, line);) write_line(worker.answer(line), out);
  return out ? Status() : resource_exhausted("the answer cannot be written");
}

}  // namespace aerie::measure
