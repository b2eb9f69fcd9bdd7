#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings.h"
#include "python_drafter.h"

namespace aerie::python {

namespace nb = nanobind;

namespace {

void bind_options(nb::module_& module) {
  nb::class_<OpenOptions>(module, "OpenOptions",
                          "How a model is opened: aerie::OpenOptions of aerie/engine.h.")
      .def(nb::init<>())
      .def_rw("model", &OpenOptions::model)
      .def_rw("type", &OpenOptions::type)
      .def_rw("context", &OpenOptions::context)
      .def_rw("threads", &OpenOptions::threads)
      .def_rw("speculate", &OpenOptions::speculate)
      .def_rw("more_speculations", &OpenOptions::more_speculations)
      .def_rw("verify", &OpenOptions::verify)
      .def_rw("cache_type", &OpenOptions::cache_type)
      .def_rw("isa", &OpenOptions::isa)
      .def_rw("device", &OpenOptions::device)
      .def_rw("weight_cache", &OpenOptions::weight_cache)
      .def_rw("profile", &OpenOptions::profile)
      .def_rw("prefill_chunk", &OpenOptions::prefill_chunk)
      .def_rw("sequences", &OpenOptions::sequences)
      .def_rw("prefix_cache", &OpenOptions::prefix_cache)
      .def(
          "set_drafter",
          [](OpenOptions& options, nb::object adapter) {
            options.drafter = std::make_shared<PythonDrafter>(std::move(adapter));
          },
          nb::arg("adapter"), "What method \"custom\" is: an adapter of aerie/drafter.py.");
}

void bind_sampling(nb::module_& module) {
  nb::class_<SamplingParams>(module, "SamplingSettings",
                             "How tokens are drawn: aerie::SamplingParams of aerie/sampling.h.")
      .def(nb::init<>())
      .def_rw("seed", &SamplingParams::seed)
      .def_rw("choice", &SamplingParams::choice)
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("penalty_window", &SamplingParams::penalty_window)
      .def_rw("logit_bias", &SamplingParams::logit_bias)
      .def_rw("logprobs", &SamplingParams::logprobs)
      .def_rw("prompt_logprobs", &SamplingParams::prompt_logprobs);
}

void bind_request(nb::module_& module) {
  nb::class_<CompiledGrammar>(module, "Grammar", "A constraint that an engine has compiled.");
  nb::class_<Request>(module, "Request", "What an engine is asked: aerie::Request.")
      .def(nb::init<>())
      .def_rw("prompt", &Request::prompt)
      .def_rw("sampling", &Request::sampling)
      .def_rw("max_tokens", &Request::max_tokens)
      .def_rw("stop", &Request::stop)
      .def_rw("stop_tokens", &Request::stop_tokens)
      .def_rw("ignore_eos", &Request::ignore_eos)
      .def_rw("shown_tokens", &Request::shown_tokens)
      .def_rw("prediction", &Request::prediction)
      .def_rw("speculate", &Request::speculate)
      .def_rw("max_draft_depth", &Request::max_draft_depth)
      .def_rw("priority", &Request::priority)
      .def_rw("tenant", &Request::tenant)
      .def(
          "set_grammar",
          [](Request& request, const CompiledGrammar& grammar) {
            request.grammar = grammar.grammar;
          },
          nb::arg("grammar"));
}

}  // namespace

void bind_requests(nb::module_& module) {
  bind_options(module);
  bind_sampling(module);
  bind_request(module);
}

}  // namespace aerie::python
