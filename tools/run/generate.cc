#include "tools/run/generate.h"

#include <cstdio>
#include <utility>

#include "base/interrupt.h"

namespace aerie {

GenerateRequest make_request(const RunOptions& options, std::vector<int32_t> prompt,
                             std::vector<int32_t> prediction) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.prediction = std::move(prediction);
  request.sampling = options.sampling;
  request.max_tokens = options.max_tokens;
  request.stop = options.stop;
  request.ignore_eos = options.ignore_eos;
  request.cancel = &interrupted;
  return request;
}

Expected<Generation> print_reply(Engine& engine, const GenerateRequest& request) {
  return engine.generate(request, [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  });
}

Expected<Recorder> Recorder::open(const RunOptions& options) {
  Recorder recorder;
  if (options.record_file.empty()) return recorder;
  auto file = RecordFile::open(options.record_file);
  if (!file.ok()) return file.status().with_context("--record");
  recorder.file_.emplace(std::move(*file));
  return recorder;
}

Status Recorder::add(const Engine& engine, const GenerateRequest& request,
                     const std::string& prompt_text, const Generation& generation) {
  if (!file_) return {};
  if (!engine_) engine_ = recorded_engine(engine);
  return file_->append(make_record(*engine_, request, prompt_text, generation))
      .with_context("--record");
}

}  // namespace aerie
