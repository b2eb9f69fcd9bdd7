#include "tools/run/run.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/errors.h"
#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "report/text_file.h"
#include "tools/report_file.h"
#include "tools/run/generate.h"
#include "tools/run/run_report.h"

namespace aerie {
namespace {

Expected<std::string> read_prompt(const RunOptions& options) {
  if (options.has_prompt) return options.prompt;
  std::ifstream file;
  if (options.prompt_file != "-") {
    file.open(options.prompt_file, std::ios::binary);
    if (!file) return not_found("-f {}: the file cannot be read", options.prompt_file);
    // A directory opens and then fails to read.
    if (file.peek() == std::ifstream::traits_type::eof() && !file.eof()) {
      return not_found("-f {}: this is not a file with text", options.prompt_file);
    }
  }
  if (options.prompt_file == "-") {
    std::string text;
    char buffer[1 << 16];
    for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0;) text.append(buffer, n);
    if (std::ferror(stdin) != 0) return not_found("-f -: standard input cannot be read");
    return text;
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// What a chat template makes of the prompt goes into `text`, too.
Expected<std::vector<int32_t>> encode_prompt(const RunOptions& options, const Engine& engine,
                                             std::string& text) {
  std::vector<int32_t> ids;
  if (!options.use_template) {
    AERIE_RETURN_IF_ERROR(engine.parts().tokenizer().encode(text, {true, false}, ids));
  } else {
    if (!engine.parts().chat_template().ok()) return engine.parts().chat_template().status();
    std::vector<ChatMessage> messages;
    if (options.has_system) messages.push_back({"system", options.system});
    messages.push_back({"user", text});
    AERIE_ASSIGN_OR_RETURN(text, engine.parts().chat_template()->render(messages, true));
    AERIE_RETURN_IF_ERROR(engine.parts().tokenizer().encode(text, {true, true}, ids));
  }
  // A model without BOS makes nothing of an empty prompt; its text begins after an end token.
  if (ids.empty()) {
    const int32_t start = engine.parts().tokenizer().bos() >= 0 ? engine.parts().tokenizer().bos()
                                                                : engine.parts().tokenizer().eos();
    if (start < 0) {
      return invalid_argument("the prompt is empty, and this model has no token to begin with");
    }
    ids.push_back(start);
  }
  return ids;
}

}  // namespace

Expected<int> run_prompt(const RunOptions& options) {
  AERIE_ASSIGN_OR_RETURN(ReportFile report, ReportFile::open(options.json_file));
  AERIE_ASSIGN_OR_RETURN(Recorder recorder, Recorder::open(options));
  AERIE_ASSIGN_OR_RETURN(std::string text, read_prompt(options));
  if (text.empty() && !options.use_template && options.max_tokens == 0) {
    return invalid_argument(
        "the prompt is empty, and a text that begins with nothing seldom ends: give a prompt, or "
        "-n TOKENS");
  }
  std::string expected;
  if (!options.prediction_file.empty()) {
    AERIE_ASSIGN_OR_RETURN(expected, read_text_file(options.prediction_file, "--prediction"));
  }
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::open(options.engine));
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, encode_prompt(options, *engine, text));
  std::vector<int32_t> prediction;
  AERIE_RETURN_IF_ERROR(engine->parts().tokenizer().encode(expected, {false, false}, prediction));
  AERIE_ASSIGN_OR_RETURN(SharedGrammar grammar, compile_grammar(options, *engine));
  catch_interrupts();
  const Request request =
      make_request(options, std::move(grammar), std::move(prompt), std::move(prediction));
  AERIE_ASSIGN_OR_RETURN(const Generation generation, print_reply(*engine, request));
  if (generation.text.empty() || generation.text.back() != '\n') print_output("\n");
  AERIE_RETURN_IF_ERROR(output_status());
  if (!options.quiet) print_message("{}\n", closing_line(generation, *engine));
  AERIE_RETURN_IF_ERROR(recorder.add(*engine, request, text, generation));
  AERIE_RETURN_IF_ERROR(report.write(report_json(generation, options, *engine)));
  if (!generation.problem.empty()) return resource_exhausted("{}", generation.problem);
  return interrupted.load() ? 130 : 0;
}

}  // namespace aerie
