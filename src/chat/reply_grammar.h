// What a reply has to look like in a model's own form, as a constraint.
#pragma once

#include <string>
#include <vector>

#include "aerie/grammar.h"
#include "base/status.h"
#include "chat/dialect.h"
#include "chat/reply_parser.h"

namespace aerie::chat {

// A reply whose content has the given form; reasoning before it is free.
GrammarSpec reply_with_content(const Dialect& dialect, ReasoningStart start, GrammarSpec content);

// A function that may be called, and how its arguments are held to its schema.
struct CallableTool {
  Tool tool;
  bool strict = false;  // where not all of the schema can be enforced it is refused
};

// A reply that calls one of the tools, or with `several` one or more of them, each with arguments
// as its schema has them; reasoning before it is free. kInvalidArgument or kUnsupported, naming the
// tool, for schemas that cannot be enforced in the dialect's form.
Expected<GrammarSpec> reply_with_calls(const Dialect& dialect, ReasoningStart start,
                                       const std::vector<CallableTool>& tools, bool several);

// A reply of free text and calls, as the model likes; the calls' arguments are as their schemas
// have them. Errors as above.
Expected<GrammarSpec> reply_with_optional_calls(const Dialect& dialect, ReasoningStart start,
                                                const std::vector<CallableTool>& tools,
                                                bool several);

// Of reasoning, for counting and bounding it: what opens and what closes it in the text.
Tags reasoning_marks(const Dialect& dialect);

}  // namespace aerie::chat
