// A reply's text, while it arrives, as what was thought, said and called.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/dialect.h"
#include "format/json.h"

namespace aerie::chat {

// A function that may be called.
struct Tool {
  std::string name;
  const Json* parameters = nullptr;  // its JSON schema; null: it has none. Not owned
};

struct ReplyPart {
  enum class Kind : uint8_t {
    kReasoning,
    kContent,
    kCall,       // a call begins; `text` is the function's name
    kArguments,  // the next piece of its arguments, which together are JSON
    kCallEnd,
  };
  Kind kind = Kind::kContent;
  std::string text = {};
};

// A text gives the same parts however it is cut, but for where reasoning, content and arguments are
// cut into pieces. What is no call of one of the tools is content. A call that is not complete when
// the reply ends has the arguments that it had by then.
class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  // Appends what has become certain.
  virtual void push(std::string_view text, std::vector<ReplyPart>& parts) = 0;
  // The end of the reply.
  virtual void finish(std::vector<ReplyPart>& parts) = 0;
};

enum class CallForms : uint8_t {
  kAny,  // forms that models of other dialects write are taken, too
  kOwn,  // the dialect's alone, as a grammar of calls has them (reply_grammar.h)
};

// `tools`: those that were offered; none: calls are not looked for.
std::unique_ptr<ReplyParser> make_reply_parser(const Dialect& dialect, ReasoningStart start,
                                               std::vector<Tool> tools,
                                               CallForms forms = CallForms::kAny);

}  // namespace aerie::chat
