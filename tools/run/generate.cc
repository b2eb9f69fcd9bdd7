#include "tools/run/generate.h"

#include <utility>

#include "base/interrupt.h"
#include "base/standard_streams.h"

namespace aerie {

Request make_request(const RunOptions& options, const Engine& engine, const ReplyForm& form,
                     std::vector<int32_t> prompt) {
  Request request;
  request.prompt = std::move(prompt);
  request.shown_tokens = chat::shown_tokens(form.dialect, false, engine.parts().tokenizer());
  request.sampling = options.sampling;
  request.max_tokens = options.max_tokens;
  request.stop = options.stop;
  request.ignore_eos = options.ignore_eos;
  request.cancel = &interrupted;
  return request;
}

Status take_suggested_sampling(const Engine& engine, RunOptions& options) {
  if (!options.use_suggested) return {};
  AERIE_ASSIGN_OR_RETURN(const SuggestedSampling suggested,
                         read_suggested_sampling(engine.parts().file()));
  suggested.apply_to(options.sampling);
  options.asked.apply_to(options.sampling);
  if (!suggested.empty() && !options.quiet) {
    print_message("sampling as the model's makers recommend: {} (--generation-config none: not)\n",
                  to_string(suggested));
  }
  return {};
}

Expected<Generation> print_reply(Engine& engine, const Request& request, const ReplyForm& form,
                                 const RunOptions& options) {
  ReplyPrinter printer(engine, form, options.color, options.dim_reasoning);
  auto generation = engine.generate_by_rounds(request, [&](const ReplyDelta& delta) {
    // Nobody would see the rest.
    if (!printer.add(delta)) interrupted.store(true);
  });
  printer.finish();
  return generation;
}

Expected<Recorder> Recorder::open(const RunOptions& options) {
  Recorder recorder;
  if (options.record_file.empty()) return recorder;
  auto file = RecordFile::open(options.record_file);
  if (!file.ok()) return file.status().with_context("--record");
  recorder.file_.emplace(std::move(*file));
  return recorder;
}

Status Recorder::add(const Engine& engine, const Request& request, const std::string& prompt_text,
                     const Generation& generation) {
  if (!file_) return {};
  if (!engine_) engine_ = recorded_engine(engine.parts());
  return file_->append(make_record(*engine_, request, prompt_text, generation))
      .with_context("--record");
}

}  // namespace aerie
