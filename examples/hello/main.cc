// Goes on with a text, as `aerie run -m MODEL --raw -p PROMPT -n 24 --temp 0` does, and says by
// which ids.
//   hello MODEL PROMPT

#include <aerie/engine.h>
#include <aerie/version.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: hello MODEL PROMPT\n"), 2;
  const auto fail = [](const aerie::Status& status) {
    return std::fprintf(stderr, "error: %s\n", status.message().c_str()), 1;
  };

  auto engine = aerie::Engine::open({.model = argv[1]});
  if (!engine.ok()) return fail(engine.status());
  auto prompt = (*engine)->tokenize(argv[2]);
  if (!prompt.ok()) return fail(prompt.status());
  auto reply = (*engine)->generate({.prompt = *prompt, .max_tokens = 24});
  if (!reply.ok()) return fail(reply.status());

  std::fprintf(stderr, "Aerie %s, %s\n", AERIE_VERSION_STRING, (*engine)->info().name.c_str());
  std::puts(reply->text.c_str());
  for (const int32_t id : reply->tokens) std::printf("%d ", id);
  std::puts("");
}
