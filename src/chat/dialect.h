// How a model marks what it thinks and what it calls, as its chat template shows it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace aerie::chat {

// What stands around a part of a reply; a tag is a control token's name or plain text. Empty: there
// is none.
struct Tags {
  std::string open;
  std::string close;
};

// What stands between the tags of a call.
enum class CallBody : uint8_t {
  kNone,        // the template has no calls that are known here
  kJson,        // {"name": "f", "arguments": {...}}, of Llama 3 "parameters"
  kJsonList,    // [{"name": "f", "arguments": {...}}, ...]
  kNamed,       // f, CallSyntax::separator, {...}
  kParameters,  // <function=f><parameter=a>...</parameter></function>
  kKeyValues,   // f<arg_key>a</arg_key><arg_value>...</arg_value>
};

// Llama 3 may put it before a call without tags.
inline constexpr std::string_view kPythonTag = "<|python_tag|>";

struct CallSyntax {
  CallBody body = CallBody::kNone;
  Tags section = {};           // around all calls
  Tags call = {};              // around one; without an opening one a reply is calls or text
  std::string separator = {};  // of kNamed
  std::string arguments = {};  // the member of kJson and kJsonList that has them
  std::string space = {};      // behind an opening tag and before a closing one
  bool has_fence = false;      // of kNamed: "function", separator, f, and the JSON as a code block
};

struct Dialect {
  std::string calls_name = "none";      // of the call syntax: "hermes"
  std::string reasoning_name = "none";  // of the tags around reasoning: "think"
  Tags reasoning = {};
  CallSyntax calls = {};
  // Messages have headers, and their channel says what they are (OpenAI's "harmony").
  bool harmony = false;
  // Ids of calls have nine letters and digits; else any.
  bool short_ids = false;
};

// By what the template's source writes. What it does not show is "none".
Dialect detect_dialect(std::string_view template_source);

// In the place of what was detected: "auto" leaves it, "none" takes it away. kInvalidArgument,
// listing the names, for one that is not known.
Status choose_calls(std::string_view name, Dialect& dialect);
Status choose_reasoning(std::string_view name, Dialect& dialect);

// The control tokens that a reply's text has to show for its parser. End tokens are never shown.
std::vector<int32_t> shown_tokens(const Dialect& dialect, bool with_calls,
                                  const Tokenizer& tokenizer);

// Where a reply to a prompt begins.
enum class ReasoningStart : uint8_t {
  kNever,  // there is no reasoning, or the prompt has ended it
  kMaybe,  // if the reply begins with the opening tag
  kOpen,   // the prompt ends with it
};
ReasoningStart reasoning_start(const Dialect& dialect, std::string_view rendered_prompt);

}  // namespace aerie::chat
