#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings.h"
#include "mailbox.h"
#include "reply_handle.h"
#include "status_error.h"

namespace aerie::python {

namespace nb = nanobind;

void ReplyHandle::cancel() {
  if (mailbox_->ended()) return;
  if (const std::shared_ptr<Engine> engine = engine_.lock()) engine->cancel(id_);
}

ReplyHandle::~ReplyHandle() {
  if (mailbox_->ended()) return;
  const nb::gil_scoped_release released;
  cancel();
}

namespace {

// How late Ctrl-C may be seen.
constexpr std::chrono::milliseconds kSignalPoll{50};

const char* outcome_name(ReplyOutcome outcome) {
  switch (outcome) {
    case ReplyOutcome::kDone:
      return "done";
    case ReplyOutcome::kCancelled:
      return "cancelled";
    case ReplyOutcome::kDeadline:
      return "deadline";
    case ReplyOutcome::kFailed:
      break;
  }
  return "failed";
}

const char* origin_name(TokenOrigin origin) {
  switch (origin) {
    case TokenOrigin::kTarget:
      return "target";
    case TokenOrigin::kAccepted:
      return "accepted";
    case TokenOrigin::kCorrection:
      return "correction";
    case TokenOrigin::kBonus:
      break;
  }
  return "bonus";
}

void wait(ReplyHandle& reply, bool for_end) {
  for (;;) {
    {
      const nb::gil_scoped_release released;
      if (reply.mailbox().wait(for_end, kSignalPoll)) return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::list pairs_of(const std::vector<TokenLogprob>& logprobs) {
  nb::list tops;
  for (const TokenLogprob& top : logprobs) tops.append(nb::make_tuple(top.token, top.logprob));
  return tops;
}

// (text, ids, origins, log-probabilities, those of the prompt, end or None)
nb::tuple take(ReplyHandle& reply) {
  Mailbox::News news = reply.mailbox().take();
  nb::list ids, origins, logprobs, of_prompt;
  for (const EmittedToken& token : news.tokens) {
    ids.append(token.id);
    origins.append(origin_name(token.origin));
    if (!token.logprobs.empty()) logprobs.append(pairs_of(token.logprobs));
  }
  for (const auto& of_token : news.prompt_logprobs) of_prompt.append(pairs_of(of_token));
  nb::object end = news.end ? nb::cast(std::move(*news.end)) : nb::none();
  return nb::make_tuple(text_of(news.text), ids, origins, logprobs, of_prompt, end);
}

void bind_end(nb::module_& module) {
  nb::class_<SequenceStats>(module, "SequenceStats", "Figures of one reply's speculation.")
      .def_ro("rounds", &SequenceStats::rounds)
      .def_ro("round_tokens", &SequenceStats::round_tokens)
      .def_ro("drafted", &SequenceStats::drafted)
      .def_ro("accepted", &SequenceStats::accepted)
      .def_ro("proposed_at", &SequenceStats::proposed_at)
      .def_ro("accepted_at", &SequenceStats::accepted_at);
  nb::class_<ReplyEnd>(module, "ReplyEnd", "How a reply ended: aerie::ReplyEnd.")
      .def_prop_ro("outcome", [](const ReplyEnd& end) { return outcome_name(end.outcome); })
      .def_prop_ro("code", [](const ReplyEnd& end) { return code_name(end.status.code()); })
      .def_prop_ro("message", [](const ReplyEnd& end) { return end.status.message(); })
      .def_prop_ro("finish",
                   [](const ReplyEnd& end) { return std::string(finish_reason_name(end.finish)); })
      .def_ro("stop_string", &ReplyEnd::stop_string)
      .def_ro("stats", &ReplyEnd::stats)
      .def_ro("prompt_tokens", &ReplyEnd::prompt_tokens)
      .def_ro("cached_tokens", &ReplyEnd::cached_tokens)
      .def_ro("generated_tokens", &ReplyEnd::generated_tokens)
      .def_ro("preemptions", &ReplyEnd::preemptions)
      .def_ro("queue_seconds", &ReplyEnd::queue_seconds)
      .def_ro("prompt_seconds", &ReplyEnd::prompt_seconds)
      .def_ro("generation_seconds", &ReplyEnd::generation_seconds);
}

}  // namespace

void bind_replies(nb::module_& module) {
  bind_end(module);
  nb::class_<Notifier>(module, "Notifier",
                       "A file descriptor that becomes readable when replies have news.")
      .def(nb::new_([] { return std::make_shared<Notifier>(); }))
      .def_prop_ro("descriptor", &Notifier::descriptor)
      .def("drain", &Notifier::drain, "The tags of the replies with news since the last call.");
  nb::class_<ReplyHandle>(module, "Reply", "A request that was submitted; dropping it cancels it.")
      .def("wait", &wait, nb::arg("for_end") = false,
           "Waits for news, or for the end, without the GIL; signals are heard.")
      .def("take", &take,
           "What came since the last call: (text, ids, origins, logprobs, prompt_logprobs, end or "
           "None).")
      .def("cancel", &ReplyHandle::cancel, nb::call_guard<nb::gil_scoped_release>(),
           "Ends it within a pass of the model.")
      .def_prop_ro("ended", [](ReplyHandle& reply) { return reply.mailbox().ended(); });
}

}  // namespace aerie::python
