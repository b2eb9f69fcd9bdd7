#include "engine/engine.h"

#include <fmt/format.h>

#include <chrono>

#include "base/clock.h"

namespace aerie {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

double Generation::tokens_per_second() const {
  const auto after_first = static_cast<double>(tokens.size()) - 1.0;
  return after_first > 0.0 && generation_seconds > 0.0 ? after_first / generation_seconds : 0.0;
}

double Generation::prompt_tokens_per_second() const {
  return prompt_seconds > 0.0 ? prompt_tokens / prompt_seconds : 0.0;
}

Engine::~Engine() = default;

Expected<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  AERIE_ASSIGN_OR_RETURN(OpenedModel opened, open_model(options, {}));
  return std::unique_ptr<Engine>(new Engine(std::move(opened)));
}

Expected<Generation> Engine::generate(const GenerateRequest& request, const OnText& on_text) {
  if (request.speculation < 0 ||
      request.speculation >= static_cast<int>(opened_.speculations.size())) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("speculation {}: the engine was opened with 0 to {}",
                              request.speculation, opened_.speculations.size() - 1));
  }
  const OpenedModel::Speculation& speculation =
      opened_.speculations[static_cast<size_t>(request.speculation)];
  DecoderOptions decoder_options = opened_.decoder;
  decoder_options.max_nodes = speculation.max_nodes;
  // Without its drafter, a plain run computes nothing that only the drafter wants.
  Decoder decoder(*opened_.model, *opened_.cache,
                  request.speculate ? speculation.drafter.get() : nullptr, decoder_options);
  Reply reply(*opened_.source.tokenizer, request.stop, request.ignore_eos);
  SequenceOptions options;
  options.sampling = request.sampling;
  options.max_tokens = request.max_tokens > 0 ? request.max_tokens : opened_.options.context;
  options.stop = &reply;
  options.speculate = request.speculate;
  options.prediction = request.prediction;
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                         decoder.open(request.prompt, options));
  Generation out;
  const Status status = run(decoder, *sequence, request, reply, on_text, out);
  decoder.close(*sequence);
  if (!status.ok()) return status;
  out.finish = sequence->finish;
  out.stats = sequence->stats;
  out.times = decoder.times();
  out.prompt_tokens = sequence->prompt_length;
  out.target_passes = decoder.target_passes();
  return out;
}

void Engine::forget() {
  for (const OpenedModel::Speculation& speculation : opened_.speculations) {
    if (speculation.drafter != nullptr) speculation.drafter->forget();
  }
}

Status Engine::run(Decoder& decoder, Sequence& sequence, const GenerateRequest& request,
                   Reply& reply, const OnText& on_text, Generation& out) {
  size_t shown = 0;
  const auto take = [&] {
    for (EmittedToken& token : sequence.emitted) {
      out.tokens.push_back(token.id);
      out.emitted.push_back(std::move(token));
    }
    if (reply.text().size() > shown && on_text) {
      on_text(std::string_view(reply.text()).substr(shown));
    }
    shown = reply.text().size();
  };
  const auto start = Clock::now();
  if (Status status = decoder.prefill(sequence, request.cancel); !status.ok()) {
    return status.code() == StatusCode::kCancelled ? Status() : status;
  }
  out.prompt_seconds = seconds_since(start);
  out.prompt_times = decoder.times();
  take();
  const auto first = Clock::now();
  auto last = first;
  Sequence* const batch[] = {&sequence};
  while (sequence.finish == FinishReason::kNone) {
    if (request.cancel != nullptr && request.cancel->load()) break;
    AERIE_RETURN_IF_ERROR(decoder.round(batch));
    const auto now = Clock::now();
    out.rounds.push_back({static_cast<int>(sequence.emitted.size()),
                          std::chrono::duration<double>(now - last).count()});
    last = now;
    take();
  }
  out.generation_seconds = seconds_since(first);
  sequence.emitted.clear();
  reply.finish();
  take();
  out.text = reply.text();
  return {};
}

}  // namespace aerie
