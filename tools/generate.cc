#include "tools/generate.h"

#include <cstdio>
#include <utility>

#include "tools/interrupt.h"

namespace aerie {

Expected<Generation> print_reply(Engine& engine, const RunOptions& options,
                                 std::vector<int32_t> prompt) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
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
