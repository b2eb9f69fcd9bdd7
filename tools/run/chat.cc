#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <utility>

#include "base/errors.h"
#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "chat/whole_reply.h"
#include "draft/speculative_config.h"
#include "tools/run/chat_settings.h"
#include "tools/run/dialogue.h"
#include "tools/run/generate.h"
#include "tools/run/line_reader.h"
#include "tools/run/run.h"
#include "tools/run/run_report.h"
#include "tools/run/tinted_text.h"

namespace aerie {
namespace {

// Replies so far.
struct ChatTotals {
  int replies = 0;
  int64_t tokens = 0;
  double seconds = 0;
  SequenceStats stats;
};

class Chat {
 public:
  Chat(const RunOptions& options, Engine& engine, Recorder& recorder);

  Expected<int> run();
  static std::vector<std::string> command_names();

 private:
  struct Command {
    const char* name;
    const char* argument;
    const char* what;
    Status (Chat::*run)(const std::string& argument);
  };
  static const std::vector<Command>& commands();

  Status help(const std::string& argument);
  Status clear(const std::string& argument);
  Status regenerate(const std::string& argument);
  Status undo(const std::string& argument);
  Status system(const std::string& argument);
  Status set(const std::string& argument);
  Status save(const std::string& argument);
  Status load(const std::string& argument);
  Status show_stats(const std::string& argument);
  Status speculate(const std::string& argument);
  Status leave(const std::string& argument);

  void command(const std::string& line);
  void answer(const std::string& text);
  // Leaves in `form` how the reply is made.
  Expected<Generation> generate(ReplyForm& form);
  void count(const Generation& generation);
  // What requests may pick: "none", then what the engine was opened with.
  std::vector<std::string> speculations() const;

  const RunOptions& options_;
  std::map<chat::ReasoningStart, SharedGrammar> grammars_;  // by where replies begin
  Engine& engine_;
  Recorder& recorder_;
  ChatSettings settings_;
  Dialogue dialogue_;
  int speculation_ = 0;  // Request::speculation; -1: none
  std::string last_line_;
  ChatTotals totals_;
  bool leaves_ = false;
};

Chat::Chat(const RunOptions& options, Engine& engine, Recorder& recorder)
    : options_(options),
      engine_(engine),
      recorder_(recorder),
      settings_{options.sampling, options.max_tokens} {
  if (options_.has_system) dialogue_.set_system(options_.system);
}

const std::vector<Chat::Command>& Chat::commands() {
  static const std::vector<Command> table = {
      {"/help", "", "these commands", &Chat::help},
      {"/clear", "", "a new conversation", &Chat::clear},
      {"/regenerate", "", "another reply to the last message", &Chat::regenerate},
      {"/undo", "", "take the last message and its reply back", &Chat::undo},
      {"/system", "TEXT", "the system message; without TEXT there is none", &Chat::system},
      {"/set", "NAME VALUE", "a setting, as in /set temperature 0.7; alone: all", &Chat::set},
      {"/speculate", "METHOD", "what drafts: none, auto, ngram; alone: what there is",
       &Chat::speculate},
      {"/stats", "", "figures of the last reply and of all", &Chat::show_stats},
      {"/save", "FILE", "write the conversation to a JSON file", &Chat::save},
      {"/load", "FILE", "go on with one that was saved", &Chat::load},
      {"/exit", "", "leave, as Ctrl-D does (/quit, /bye)", &Chat::leave},
      {"/quit", "", nullptr, &Chat::leave},
      {"/bye", "", nullptr, &Chat::leave},
  };
  return table;
}

std::vector<std::string> Chat::command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.push_back(*command.argument == '\0' ? command.name : std::string(command.name) + ' ');
  }
  for (const std::string& name : setting_names()) names.push_back("/set " + name + ' ');
  return names;
}

Status Chat::help(const std::string& /*argument*/) {
  for (const Command& command : commands()) {
    if (command.what == nullptr) continue;
    print_message("  {:<22}{}\n", fmt::format("{} {}", command.name, command.argument),
                  command.what);
  }
  print_message("  Ctrl-C                stops a reply and keeps it; drops what is being typed\n");
  return {};
}

Status Chat::clear(const std::string& /*argument*/) {
  dialogue_.clear();
  print_message("(a new conversation)\n");
  return {};
}

Status Chat::regenerate(const std::string& /*argument*/) {
  const std::optional<std::string> message = dialogue_.take_back();
  if (!message) return invalid_argument("nothing was said yet");
  // The same seed would draw the same reply.
  ++settings_.sampling.seed;
  answer(*message);
  return {};
}

Status Chat::undo(const std::string& /*argument*/) {
  const std::optional<std::string> message = dialogue_.take_back();
  if (!message) return invalid_argument("nothing was said yet");
  print_message("(taken back: {})\n", *message);
  return {};
}

Status Chat::system(const std::string& argument) {
  dialogue_.set_system(argument);
  print_message(argument.empty() ? "(no system message)\n" : "(from the next reply on)\n");
  return {};
}

Status Chat::set(const std::string& argument) {
  if (argument.empty()) {
    print_message(settings_text(settings_));
    return {};
  }
  const size_t space = argument.find(' ');
  if (space == std::string::npos) {
    return invalid_argument("/set {}: give a value, too", argument);
  }
  const size_t value = argument.find_first_not_of(' ', space);
  return change_setting(argument.substr(0, space), argument.substr(value),
                        engine_.info().vocabulary, settings_);
}

Status Chat::save(const std::string& argument) {
  if (argument.empty()) return invalid_argument("/save: give the file to write");
  AERIE_RETURN_IF_ERROR(dialogue_.save(argument));
  print_message("(saved: {})\n", argument);
  return {};
}

Status Chat::load(const std::string& argument) {
  if (argument.empty()) return invalid_argument("/load: give a file that /save wrote");
  AERIE_ASSIGN_OR_RETURN(dialogue_, Dialogue::load(argument));
  print_message("({} messages)\n", dialogue_.messages().size());
  return {};
}

Status Chat::show_stats(const std::string& /*argument*/) {
  if (totals_.replies == 0) return invalid_argument("nothing was said yet");
  print_message("last: {}\nall:  {} replies, {} tokens, {:.1f} tokens/s, τ {:.2f}\n", last_line_,
                totals_.replies, totals_.tokens,
                totals_.seconds > 0 ? static_cast<double>(totals_.tokens) / totals_.seconds : 0.0,
                totals_.stats.mean_accepted_length());
  return {};
}

std::vector<std::string> Chat::speculations() const {
  std::vector<std::string> names = {std::string(kPlainWord),
                                    to_string(engine_.parts().options.speculation)};
  for (const SpeculativeConfig& more : options_.engine.more_speculations) {
    names.push_back(to_string(more));
  }
  return names;
}

Status Chat::speculate(const std::string& argument) {
  const std::vector<std::string> names = speculations();
  if (argument.empty()) {
    print_message("{} (now: {})\n", fmt::join(names, ", "),
                  names[static_cast<size_t>(speculation_ + 1)]);
    return {};
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != argument) continue;
    speculation_ = static_cast<int>(i) - 1;
    return {};
  }
  return invalid_argument(
      "/speculate {}: there is {}; others, such as draft models and heads, are opened with "
      "`--speculate` at the start",
      argument, fmt::join(names, ", "));
}

Status Chat::leave(const std::string& /*argument*/) {
  leaves_ = true;
  return {};
}

void Chat::command(const std::string& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const size_t from = line.find_first_not_of(' ', end);
  std::string argument = from == std::string::npos ? "" : line.substr(from);
  while (argument.ends_with(' ')) argument.pop_back();
  for (const Command& command : commands()) {
    if (line.compare(0, end, command.name) != 0) continue;
    const Status status = (this->*command.run)(argument);
    if (!status.ok()) print_message("error: {}\n", status.message());
    return;
  }
  print_message("error: there is no {}; /help tells the commands\n", line.substr(0, end));
}

Expected<Generation> Chat::generate(ReplyForm& form) {
  AERIE_ASSIGN_OR_RETURN(const std::string prompt,
                         engine_.apply_chat_template(dialogue_.messages()));
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                         engine_.tokenize(prompt, {.add_special = true, .parse_special = true}));
  form = ReplyForm::of_chat(engine_, prompt);
  Request request = make_request(options_, engine_, form, std::move(ids));
  SharedGrammar& grammar = grammars_[form.start];
  if (grammar == nullptr) {
    AERIE_ASSIGN_OR_RETURN(grammar, compile_grammar(options_, engine_, form));
  }
  request.grammar = grammar;
  request.sampling = settings_.sampling;
  request.max_tokens = settings_.max_tokens;
  request.speculate = speculation_ >= 0;
  request.speculation = std::max(0, speculation_);
  AERIE_ASSIGN_OR_RETURN(Generation generation, print_reply(engine_, request, form, options_));
  // The conversation goes on without the record.
  const Status recorded = recorder_.add(engine_, request, prompt, generation);
  if (!recorded.ok()) print_message("\nerror: {}\n", recorded.message());
  return generation;
}

void Chat::count(const Generation& generation) {
  ++totals_.replies;
  totals_.tokens += static_cast<int64_t>(generation.tokens.size());
  totals_.seconds += generation.generation_seconds;
  totals_.stats.rounds += generation.stats.rounds;
  totals_.stats.round_tokens += generation.stats.round_tokens;
  last_line_ = closing_line(generation, engine_);
}

void Chat::answer(const std::string& text) {
  dialogue_.add("user", text);
  interrupted.store(false);
  ReplyForm form;
  const Expected<Generation> generation = generate(form);
  if (!generation.ok()) {
    dialogue_.take_back();
    print_message("error: {}\n(/clear begins a new conversation)\n", generation.status().message());
    return;
  }
  print_output("\n");
  // What was thought is no part of the conversation.
  dialogue_.add("assistant",
                chat::read_reply(form.dialect, form.start, {}, generation->text).content);
  count(*generation);
  if (interrupted.load()) print_message("(stopped)\n");
  if (generation->finish == FinishReason::kLength && settings_.max_tokens == 0) {
    print_message(
        "(the context is full: /clear begins a new conversation, --ctx gives more room)\n");
  }
  if (!generation->problem.empty()) print_message("error: {}\n", generation->problem);
  if (!options_.quiet) print_message("{}\n", short_closing_line(*generation));
}

Expected<int> Chat::run() {
  const std::unique_ptr<LineReader> reader =
      open_line_reader(options_.history_file, command_names());
  std::string line;
  while (!leaves_) {
    interrupted.store(false);
    switch (reader->read("> ", line)) {
      case Input::kEnd:
        print_message("\n");
        return 0;
      case Input::kInterrupted:
        print_message("\n(Ctrl-D or /exit leaves)\n");
        continue;
      case Input::kLine:
        break;
    }
    if (line.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    if (line.front() == '/') {
      command(line);
    } else {
      answer(line);
    }
    AERIE_RETURN_IF_ERROR(output_status());
  }
  return 0;
}

}  // namespace

Expected<int> run_chat(const RunOptions& asked) {
  RunOptions options = asked;
  AERIE_ASSIGN_OR_RETURN(Recorder recorder, Recorder::open(options));
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::open(options.engine));
  const auto& chat_template = engine->parts().chat_template();
  if (!chat_template.ok()) {
    return chat_template.status().with_context(
        "a chat needs a chat template (-p TEXT --raw goes on with a text)");
  }
  AERIE_RETURN_IF_ERROR(take_suggested_sampling(*engine, options));
  // What is wrong with it is said now.
  AERIE_RETURN_IF_ERROR(compile_grammar(options, *engine, {}).status());
  catch_interrupts();
  print_message("{}; /help tells the commands\n", engine->parts().config().name.empty()
                                                      ? options.engine.model
                                                      : engine->parts().config().name);
  if (options.color) print_message("{}\n", tint_legend());
  return Chat(options, *engine, recorder).run();
}

}  // namespace aerie
