#include "engine/running_reply.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "grammar/grammar.h"
#include "grammar/span_limit.h"

namespace aerie {
namespace {

// But for its stop condition and its drafter.
SequenceOptions sequence_options(const Request& request, int context) {
  SequenceOptions options;
  options.sampling = request.sampling;
  options.max_tokens = request.max_tokens == 0 ? context : request.max_tokens;
  options.tenant = request.tenant;
  options.trace = request.trace;
  options.pooling = request.pooling;
  options.max_draft_depth = request.max_draft_depth;
  options.prediction = request.prediction;
  return options;
}

std::vector<TracedNode> traced(const Sequence& sequence) {
  std::vector<TracedNode> tree;
  // Of the prompt's pass the last draft is none.
  if (sequence.stats.rounds == 0) return tree;
  for (const TokenTree::Node& node : sequence.draft.nodes) {
    tree.push_back({node.token, node.parent, node.probability, false});
  }
  for (const int32_t node : sequence.accepted) tree[static_cast<size_t>(node)].accepted = true;
  return tree;
}

std::vector<float> embedding_of(const Sequence& sequence) {
  const Pooling pooling = sequence.options.pooling;
  if (pooling == Pooling::kNone) return {};
  const double count = pooling == Pooling::kMean ? sequence.prompt_length : 1.0;
  std::vector<float> out;
  for (const double sum : sequence.pooled) out.push_back(static_cast<float>(sum / count));
  return out;
}

ReplyOutcome outcome_of(JobEnd end) {
  switch (end) {
    case JobEnd::kFinished:
      return ReplyOutcome::kDone;
    case JobEnd::kCancelled:
      return ReplyOutcome::kCancelled;
    case JobEnd::kDeadline:
      return ReplyOutcome::kDeadline;
    case JobEnd::kFailed:
      break;
  }
  return ReplyOutcome::kFailed;
}

}  // namespace

Status check_request(const Request& request, const OpenedModel& opened, int speculations) {
  const int context = opened.options.context;
  AERIE_RETURN_IF_ERROR(check_sequence(request.prompt, sequence_options(request, context),
                                       opened.config().vocab, context));
  if (request.span_limit &&
      (request.span_limit->max_tokens < 0 || request.span_limit->close.empty())) {
    return invalid_argument("a part of the output is bounded to {} tokens, or has no end",
                            request.span_limit->max_tokens);
  }
  if (request.max_draft_depth < 0) {
    return invalid_argument("a draft depth of {}, which is negative", request.max_draft_depth);
  }
  if (request.speculation < 0 || request.speculation >= speculations) {
    return invalid_argument("speculation {}: the engine was opened with 0 to {}",
                            request.speculation, speculations - 1);
  }
  return {};
}

RunningReply::RunningReply(Request request, std::shared_ptr<ReplySink> sink,
                           const Tokenizer& tokenizer, ServiceStats* totals)
    : request_(std::move(request)),
      sink_(std::move(sink)),
      tokenizer_(tokenizer),
      reply_(tokenizer, request_),
      totals_(totals) {}

std::unique_ptr<Job> RunningReply::make_job(JobId id, const Drafters& drafters, int context,
                                            std::shared_ptr<GrammarPool> pool) {
  auto job = std::make_unique<Job>();
  job->id = id;
  job->prompt = request_.prompt;
  job->listener = this;
  job->priority = request_.priority;
  job->client = request_.client;
  job->deadline = request_.deadline;
  SequenceOptions& options = job->options;
  options = sequence_options(request_, context);
  options.stop = &reply_;
  options.speculate =
      (drafters.drafter >= 0 || drafters.shadow >= 0) && request_.pooling == Pooling::kNone;
  options.learn = learning_ != nullptr && request_.learn;
  options.drafter = drafters.drafter;
  options.shadow = drafters.shadow;
  std::unique_ptr<TokenConstraint> constraint;
  if (request_.grammar != nullptr) {
    constraint = make_constraint(request_.grammar, std::move(pool));
  }
  if (request_.span_limit) {
    constraint = make_span_limit(*request_.span_limit, tokenizer_, std::move(constraint));
  }
  options.constraint = std::move(constraint);
  job_ = job.get();
  return job;
}

std::string RunningReply::new_text() {
  std::string text = reply_.text().substr(shown_);
  shown_ = reply_.text().size();
  return text;
}

void RunningReply::count(const Sequence& sequence) {
  if (totals_ == nullptr) return;
  const SequenceStats& now = sequence.stats;
  totals_->generated_tokens +=
      sequence.generated() - std::exchange(counted_tokens_, sequence.generated());
  totals_->draft_tokens += now.drafted - std::exchange(counted_.drafted, now.drafted);
  totals_->accepted_tokens += now.accepted - std::exchange(counted_.accepted, now.accepted);
  counted_.proposed_at.resize(now.proposed_at.size());
  counted_.accepted_at.resize(now.accepted_at.size());
  totals_->accepted_at.resize(std::max(totals_->accepted_at.size(), now.accepted_at.size()));
  if (!now.proposed_at.empty()) {
    totals_->drafts +=
        now.proposed_at[0] - std::exchange(counted_.proposed_at[0], now.proposed_at[0]);
  }
  for (size_t i = 0; i < now.accepted_at.size(); ++i) {
    totals_->accepted_at[i] +=
        now.accepted_at[i] - std::exchange(counted_.accepted_at[i], now.accepted_at[i]);
  }
}

void RunningReply::on_tokens(const Sequence& sequence) {
  count(sequence);
  ReplyDelta delta;
  if (!first_token_) {
    delta.prompt_logprobs = sequence.prompt_logprobs;
    first_token_ = Clock::now();
  }
  delta.text = new_text();
  delta.tokens = sequence.emitted;
  if (request_.trace) delta.tree = traced(sequence);
  sink_->on_delta(std::move(delta));
}

void RunningReply::on_end(JobEnd end, const Status& status, const Sequence* sequence) {
  const auto now = Clock::now();
  reply_.finish();
  if (totals_ != nullptr) ++totals_->requests;
  ReplyEnd out;
  out.outcome = outcome_of(end);
  out.status = status;
  out.text = new_text();
  out.stop_string = reply_.stop_string();
  out.prompt_tokens = static_cast<int>(request_.prompt.size());
  if (sequence != nullptr) {
    if (learning_ != nullptr) learning_->on_end(*sequence, end == JobEnd::kFailed);
    if (end == JobEnd::kFinished) out.finish = sequence->finish;
    if (out.finish == FinishReason::kError) out.status = sequence->constraint->status();
    out.stats = sequence->stats;
    out.cached_tokens = sequence->reused;
    out.generated_tokens = sequence->generated();
    if (end == JobEnd::kFinished) out.embedding = embedding_of(*sequence);
    out.preemptions = job_->preemptions;
    const auto began = job_->began.value_or(now);
    out.queue_seconds = seconds_between(arrival_, began);
    out.prompt_seconds = seconds_between(began, first_token_.value_or(now));
    if (first_token_) out.generation_seconds = seconds_between(*first_token_, now);
  } else {
    out.queue_seconds = seconds_between(arrival_, now);
  }
  ended_ = true;
  sink_->on_end(std::move(out));
  sink_.reset();
}

}  // namespace aerie
