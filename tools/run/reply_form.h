// How the model marks what it thinks before it answers, for one reply.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/dialect.h"
#include "chat/reply_parser.h"
#include "tools/run/run_options.h"
#include "tools/run/tinted_text.h"

namespace aerie {

// Of a text that the model goes on with, all is answer.
struct ReplyForm {
  chat::Dialect dialect;
  chat::ReasoningStart start = chat::ReasoningStart::kNever;

  // Of the reply to a prompt that the model's chat template wrote.
  static ReplyForm of_chat(const Engine& engine, std::string_view prompt);
};

// What replies keep to, behind their reasoning; null: nothing in particular.
using SharedGrammar = std::shared_ptr<const Grammar>;
Expected<SharedGrammar> compile_grammar(const RunOptions& options, const Engine& engine,
                                        const ReplyForm& form);

// Prints a reply while it comes: what is thought to standard error, the answer to standard output.
class ReplyPrinter {
 public:
  // `dim`: reasoning is shown so.
  ReplyPrinter(const Engine& engine, const ReplyForm& form, bool color, bool dim);

  // False where nobody would see the rest.
  bool add(const ReplyDelta& delta);
  // The reply has ended.
  void finish();

 private:
  bool print(const char* colour);

  TintedText tints_;
  std::unique_ptr<chat::ReplyParser> parser_;
  bool dim_;
  bool thinks_ = false;  // the last that was printed is reasoning
  std::vector<chat::ReplyPart> parts_;
};

}  // namespace aerie
