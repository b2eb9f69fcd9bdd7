// Answers speculation.py's requests with llama.cpp's own speculation (its common/speculative.h).
//
//   of_llama_speculation -m TARGET.gguf -md DRAFT.gguf -t 2 -c 4096 --temp 0 --spec-type
//   draft-simple,ngram-simple
//
// The words are llama.cpp's own. After a line when it is ready, it reads one JSON object a line and
// answers with one:
// {"prompt": TEXT, "tokens": N, "type": "none" or one of --spec-type} -> {"ids": [...], "ms": ...,
// "drafted": ..., "accepted": ...}; the time is that of what follows the first round.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <arg.h>
#include <common.h>
#include <llama.h>
#include <log.h>
#include <sampling.h>
#include <speculative.h>

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Engine {
  common_params params;
  common_init_result_ptr target;
  common_speculative_init_result_ptr draft;
  llama_context* context = nullptr;
  llama_context* draft_context = nullptr;
};

struct Reply {
  llama_tokens ids;
  double ms = 0;
  size_t drafted = 0;
  size_t accepted = 0;
};

void forget(llama_context* context, llama_pos from) {
  if (context != nullptr) llama_memory_seq_rm(llama_get_memory(context), 0, from, -1);
}

bool open(int argc, char** argv, Engine& engine) {
  common_init();
  if (!common_params_parse(argc, argv, engine.params, LLAMA_EXAMPLE_SPECULATIVE)) return false;
  const auto limits = common_speculative_get_output_limits(
      engine.params.n_batch, 1, common_speculative_n_max(&engine.params.speculative));
  engine.params.n_outputs_max = limits.total;
  engine.params.n_outputs_max_per_seq = limits.per_seq;
  llama_backend_init();
  engine.target = common_init_from_params(engine.params);
  engine.context = engine.target->context();
  if (engine.context == nullptr) return false;
  common_params of_draft = common_base_params_to_speculative(engine.params);
  engine.draft =
      common_speculative_init_from_params(of_draft, engine.target->model(), engine.context);
  engine.draft_context = engine.draft->context();
  engine.params.speculative.draft.ctx_tgt = engine.context;
  engine.params.speculative.draft.ctx_dft = engine.draft_context;
  return true;
}

// Evaluates `tokens` from position 0 on.
void prefill(Engine& engine, common_speculative* speculation, const llama_tokens& tokens) {
  common_batch batch(engine.context);
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch.add(tokens[i], static_cast<llama_pos>(i), 0, false);
  }
  llama_process(engine.context, LLAMA_PROCESS_TYPE_DECODE, batch.get());
  if (speculation == nullptr) return;
  common_speculative_process(speculation, batch);
  common_speculative_begin(speculation, 0, tokens);
}

// What is drafted for the positions behind `last`, at most `most` tokens.
llama_tokens propose(Engine& engine, common_speculative* speculation, const llama_tokens& past,
                     llama_token last, int most) {
  llama_tokens proposed;
  if (speculation == nullptr) return proposed;
  const auto position = static_cast<llama_pos>(past.size());
  common_speculative_get_draft_params(speculation, 0) = {true, most,  position,
                                                         last, &past, &proposed};
  common_speculative_draft(speculation);
  forget(engine.draft_context, position);
  return proposed;
}

// As their examples do it: the last token of the prompt goes into the first round.
Reply reply(Engine& engine, const std::string& prompt, int tokens, const std::string& type) {
  common_params_speculative settings = engine.params.speculative;
  settings.types = common_speculative_types_from_names({type});
  common_speculative_ptr speculation(type == "none" ? nullptr
                                                    : common_speculative_init(settings, 1));
  common_sampler_ptr sampler(common_sampler_init(engine.target->model(), engine.params.sampling));
  const llama_vocab* vocab = llama_model_get_vocab(engine.target->model());
  forget(engine.context, 0);
  forget(engine.draft_context, 0);

  llama_tokens past = common_tokenize(engine.context, prompt, true, true);
  llama_token last = past.back();
  past.pop_back();
  prefill(engine, speculation.get(), past);
  common_batch batch(engine.context);

  Reply out;
  Clock::time_point first;
  for (bool ended = false; !ended && static_cast<int>(out.ids.size()) < tokens;) {
    const auto position = static_cast<llama_pos>(past.size());
    const llama_tokens proposed = propose(engine, speculation.get(), past, last,
                                          tokens - static_cast<int>(out.ids.size()) - 1);
    batch.clear();
    batch.add(last, position, 0, true);
    for (size_t i = 0; i < proposed.size(); ++i) {
      batch.add(proposed[i], position + 1 + static_cast<llama_pos>(i), 0, true);
    }
    llama_process(engine.context, LLAMA_PROCESS_TYPE_DECODE, batch.get());
    if (speculation) common_speculative_process(speculation.get(), batch);
    const llama_tokens kept =
        common_sampler_sample_and_accept_n(sampler.get(), engine.context, proposed);
    if (speculation) {
      common_speculative_accept(speculation.get(), 0, static_cast<uint16_t>(kept.size() - 1));
    }
    if (out.ids.empty()) first = Clock::now();
    out.drafted += proposed.size();
    out.accepted += kept.size() - 1;
    for (const llama_token id : kept) {
      past.push_back(last);
      last = id;
      out.ids.push_back(id);
      ended = llama_vocab_is_eog(vocab, id);
      if (ended) break;
    }
    forget(engine.context, static_cast<llama_pos>(past.size()));
    forget(engine.draft_context, static_cast<llama_pos>(past.size()));
  }
  out.ms = std::chrono::duration<double, std::milli>(Clock::now() - first).count();
  if (static_cast<int>(out.ids.size()) > tokens) out.ids.resize(static_cast<size_t>(tokens));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  Engine engine;
  if (!open(argc, argv, engine)) return 1;
  std::cout << Json{{"ready", true}} << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    const Reply one = reply(engine, request.at("prompt"), request.at("tokens"), request.at("type"));
    std::cout << Json{{"ids", one.ids},
                      {"ms", one.ms},
                      {"drafted", one.drafted},
                      {"accepted", one.accepted}}
              << std::endl;
  }
  llama_backend_free();
  return 0;
}
