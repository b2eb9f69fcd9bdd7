#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "tools/run/generate.h"
#include "tools/run/run.h"
#include "tools/run/run_report.h"

namespace aerie {
namespace {

enum class Input { kLine, kInterrupted, kEnd };

// One line from standard input, without its end.
Input read_line(std::string& line) {
  line.clear();
  for (;;) {
    errno = 0;
    const int c = std::fgetc(stdin);
    if (c == '\n') return Input::kLine;
    if (c != EOF) {
      line += static_cast<char>(c);
      continue;
    }
    if (errno == EINTR) {
      std::clearerr(stdin);
      return Input::kInterrupted;
    }
    return line.empty() ? Input::kEnd : Input::kLine;
  }
}

class Chat {
 public:
  Chat(const RunOptions& options, SharedGrammar grammar, Engine& engine, Recorder& recorder)
      : options_(options), grammar_(std::move(grammar)), engine_(engine), recorder_(recorder) {
    clear();
  }

  Expected<int> run();

 private:
  void clear() {
    messages_.clear();
    if (options_.has_system) messages_.push_back({"system", options_.system});
  }
  // Whether to go on.
  bool command(const std::string& line);
  void answer(const std::string& line);
  Expected<Generation> generate();

  const RunOptions& options_;
  SharedGrammar grammar_;
  Engine& engine_;
  Recorder& recorder_;
  std::vector<ChatMessage> messages_;
};

bool Chat::command(const std::string& line) {
  if (line == "/exit" || line == "/quit") return false;
  if (line == "/clear") {
    clear();
    print_message("(a new conversation)\n");
  } else {
    print_message(
        "/clear begins a new conversation, /exit or Ctrl-D leaves, Ctrl-C stops a "
        "reply\n");
  }
  return true;
}

Expected<Generation> Chat::generate() {
  AERIE_ASSIGN_OR_RETURN(const std::string prompt,
                         engine_.parts().chat_template()->render(messages_, true));
  std::vector<int32_t> ids;
  AERIE_RETURN_IF_ERROR(engine_.parts().tokenizer().encode(prompt, {true, true}, ids));
  const Request request = make_request(options_, grammar_, std::move(ids));
  AERIE_ASSIGN_OR_RETURN(Generation generation, print_reply(engine_, request));
  // The conversation goes on without the record.
  const Status recorded = recorder_.add(engine_, request, prompt, generation);
  if (!recorded.ok()) print_message("\nerror: {}\n", recorded.message());
  return generation;
}

void Chat::answer(const std::string& line) {
  messages_.push_back({"user", line});
  interrupted.store(false);
  const Expected<Generation> generation = generate();
  if (!generation.ok()) {
    messages_.pop_back();
    print_message("error: {}\n(/clear begins a new conversation)\n", generation.status().message());
    return;
  }
  print_output("\n");
  messages_.push_back({"assistant", generation->text});
  if (interrupted.load()) print_message("(stopped)\n");
  if (!generation->problem.empty()) print_message("error: {}\n", generation->problem);
  if (!options_.quiet) print_message("{}\n", closing_line(*generation, engine_));
}

Expected<int> Chat::run() {
  std::string line;
  for (;;) {
    interrupted.store(false);
    print_message("> ");
    switch (read_line(line)) {
      case Input::kEnd:
        print_message("\n");
        return 0;
      case Input::kInterrupted:
        print_message("\n(Ctrl-D or /exit leaves)\n");
        continue;
      case Input::kLine:
        break;
    }
    if (line.empty()) continue;
    if (line.front() == '/') {
      if (!command(line)) return 0;
      continue;
    }
    answer(line);
    AERIE_RETURN_IF_ERROR(output_status());
  }
}

}  // namespace

Expected<int> run_chat(const RunOptions& options) {
  AERIE_ASSIGN_OR_RETURN(Recorder recorder, Recorder::open(options));
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::open(options.engine));
  if (!engine->parts().chat_template().ok()) return engine->parts().chat_template().status();
  AERIE_ASSIGN_OR_RETURN(SharedGrammar grammar, compile_grammar(options, *engine));
  catch_interrupts();
  print_message("{}; /help tells the commands\n", engine->parts().config().name.empty()
                                                      ? options.engine.model
                                                      : engine->parts().config().name);
  return Chat(options, std::move(grammar), *engine, recorder).run();
}

}  // namespace aerie
