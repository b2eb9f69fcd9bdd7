#include "tools/run/reply_form.h"

#include <utility>

#include "base/standard_streams.h"
#include "chat/reply_grammar.h"

namespace aerie {
ReplyForm ReplyForm::of_chat(const Engine& engine, std::string_view prompt) {
  ReplyForm form;
  const auto& chat_template = engine.parts().chat_template();
  if (!chat_template.ok()) return form;
  form.dialect = chat::detect_dialect(chat_template->source());
  form.start = chat::reasoning_start(form.dialect, prompt);
  return form;
}

Expected<SharedGrammar> compile_grammar(const RunOptions& options, const Engine& engine,
                                        const ReplyForm& form) {
  if (!options.grammar) return SharedGrammar();
  return engine.compile_grammar(
      chat::reply_with_content(form.dialect, form.start, *options.grammar));
}

ReplyPrinter::ReplyPrinter(const Engine& engine, const ReplyForm& form, bool color, bool dim)
    : tints_(engine.parts().tokenizer(), color),
      parser_(chat::make_reply_parser(form.dialect, form.start, {})),
      dim_(dim) {}

bool ReplyPrinter::add(const ReplyDelta& delta) {
  bool heard = true;
  for (const Tint& tint : tints_.add(delta)) {
    parser_->push(tint.text, parts_);
    heard = print(tint.colour) && heard;
  }
  return heard;
}

void ReplyPrinter::finish() {
  parser_->finish(parts_);
  print("");
  if (thinks_) print_message("\n");
}

// What the parser has found.
bool ReplyPrinter::print(const char* colour) {
  std::string thought, said;
  for (const chat::ReplyPart& part : parts_) {
    if (part.kind == chat::ReplyPart::Kind::kReasoning) thought += part.text;
    if (part.kind == chat::ReplyPart::Kind::kContent) {
      append({part.text, colour}, said);
    }
  }
  parts_.clear();
  if (!thought.empty()) {
    std::string shown;
    append({thought, dim_ ? kDim : ""}, shown);
    print_message(std::string_view(shown));
    thinks_ = true;
  }
  if (said.empty()) return true;
  if (std::exchange(thinks_, false)) print_message("\n\n");
  return print_output(said);
}

}  // namespace aerie
