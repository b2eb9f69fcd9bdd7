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

Expected<std::string> read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0;) text.append(buffer, n);
  if (std::ferror(stdin) != 0) return not_found("-f -: standard input cannot be read");
  return text;
}

Expected<std::string> read_prompt(const RunOptions& options) {
  if (options.has_prompt) return options.prompt;
  if (options.prompt_file == "-") return read_standard_input();
  if (options.prompt_file.empty()) {
    AERIE_ASSIGN_OR_RETURN(std::string text, read_standard_input());
    if (!text.empty()) return text;
    return invalid_argument(
        "there is no prompt: give -p TEXT, -f FILE or a text on standard input, or chat on a "
        "terminal");
  }
  std::ifstream file(options.prompt_file, std::ios::binary);
  if (!file) return not_found("-f {}: the file cannot be read", options.prompt_file);
  // A directory opens and then fails to read.
  if (file.peek() == std::ifstream::traits_type::eof() && !file.eof()) {
    return not_found("-f {}: this is not a file with text", options.prompt_file);
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Whether the prompt is a message, for which the model has a template.
Expected<bool> is_message(const RunOptions& options, const Engine& engine) {
  if (options.form == PromptForm::kText) return false;
  const Status& known = engine.parts().chat_template().status();
  if (known.ok()) return true;
  const bool may_be_text = options.form == PromptForm::kFitting && !options.has_system;
  if (may_be_text && known.code() == StatusCode::kNotFound) return false;
  return known.with_context("--raw goes on with the prompt as a text");
}

// What a chat template makes of the prompt goes into `text`, and how the reply to that is made into
// `form`.
Expected<std::vector<int32_t>> encode_prompt(const RunOptions& options, const Engine& engine,
                                             std::string& text, ReplyForm& form) {
  AERIE_ASSIGN_OR_RETURN(const bool message, is_message(options, engine));
  if (message) {
    std::vector<ChatMessage> messages;
    if (options.has_system) messages.push_back({"system", options.system});
    messages.push_back({"user", text});
    AERIE_ASSIGN_OR_RETURN(text, engine.apply_chat_template(messages));
    form = ReplyForm::of_chat(engine, text);
  } else if (text.empty() && options.max_tokens == 0) {
    return invalid_argument(
        "the prompt is empty, and a text that begins with nothing seldom ends: give a prompt, or "
        "-n TOKENS");
  }
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                         engine.tokenize(text, {.add_special = true, .parse_special = message}));
  // A model without BOS makes nothing of an empty prompt; its text begins after an end token.
  if (ids.empty()) {
    const ModelInfo info = engine.info();
    const int32_t start = info.bos >= 0 ? info.bos : info.eos;
    if (start < 0) {
      return invalid_argument("the prompt is empty, and this model has no token to begin with");
    }
    ids.push_back(start);
  }
  return ids;
}

}  // namespace

Expected<int> run_prompt(const RunOptions& asked) {
  RunOptions options = asked;
  AERIE_ASSIGN_OR_RETURN(ReportFile report, ReportFile::open(options.json_file));
  AERIE_ASSIGN_OR_RETURN(Recorder recorder, Recorder::open(options));
  AERIE_ASSIGN_OR_RETURN(std::string text, read_prompt(options));
  std::string expected;
  if (!options.prediction_file.empty()) {
    AERIE_ASSIGN_OR_RETURN(expected, read_text_file(options.prediction_file, "--prediction"));
  }
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::open(options.engine));
  AERIE_RETURN_IF_ERROR(take_suggested_sampling(*engine, options));
  ReplyForm form;
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, encode_prompt(options, *engine, text, form));
  Request request = make_request(options, *engine, form, std::move(prompt));
  const EncodeOptions as_text = {false, false};
  AERIE_RETURN_IF_ERROR(engine->parts().tokenizer().encode(expected, as_text, request.prediction));
  AERIE_ASSIGN_OR_RETURN(request.grammar, compile_grammar(options, *engine, form));
  catch_interrupts();
  // Where the report goes to standard output, it has the text.
  const bool shows_text = options.json_file != "-";
  AERIE_ASSIGN_OR_RETURN(
      const Generation generation,
      shows_text ? print_reply(*engine, request, form, options) : engine->generate(request));
  if (shows_text && !generation.text.ends_with('\n')) print_output("\n");
  AERIE_RETURN_IF_ERROR(output_status());
  if (!options.quiet) print_message("{}\n", closing_line(generation, *engine));
  AERIE_RETURN_IF_ERROR(recorder.add(*engine, request, text, generation));
  AERIE_RETURN_IF_ERROR(report.write(report_json(generation, options, *engine)));
  if (!generation.problem.empty()) return resource_exhausted("{}", generation.problem);
  return interrupted.load() ? 130 : 0;
}

}  // namespace aerie
