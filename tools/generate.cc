#include "tools/generate.h"

#include <cstdio>
#include <utility>

#include "tools/interrupt.h"

namespace aerie {

Expected<Generation> print_reply(Engine& engine, const RunOptions& options,
                                 std::vector<int32_t> prompt, std::vector<int32_t> prediction) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.prediction = std::move(prediction);
  request.sampling = options.sampling;
  request.max_tokens = options.max_tokens;
  request.stop = options.stop;
  request.ignore_eos = options.ignore_eos;
  request.cancel = &interrupted;
  return engine.generate(request, [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  });
}

}  // namespace aerie
