// A prompt as token ids: what the target reads before its first reply, and between replies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/model_source.h"
#include "report/prompt_set.h"
#include "tokenizer/chat_template.h"

namespace aerie::train {

// How turns become tokens: a prompt with `chat` by the model's template; of others the first turn
// is a text to go on with, and later turns do not count. The source is not owned.
class ConversationFormat {
 public:
  // `use_template` false: there will be no prompts with `chat`. Otherwise kNotFound or kUnsupported
  // if the source has no template.
  static Expected<ConversationFormat> make(const ModelSource& source, bool use_template);

  // A message in the template, for people and for comparing; empty without a template.
  const std::string& example() const { return example_; }

  // How many turns of the prompt are answered.
  int turns(const Prompt& prompt) const;

  // The tokens before the first reply.
  Expected<std::vector<int32_t>> first(const Prompt& prompt) const;

  // The tokens between the reply to turn `turn` - 1 and that to turn `turn`. `replies` are the
  // texts of the replies so far, one for each turn before; `ended_with` is the last token of the
  // last one if it is an end token, else -1: it is not written twice.
  // kInvalidArgument if the template does not show a reply as it is.
  Expected<std::vector<int32_t>> next(const Prompt& prompt, const std::vector<std::string>& replies,
                                      int32_t ended_with) const;

 private:
  explicit ConversationFormat(const ModelSource& source) : source_(&source) {}
  Expected<std::string> render(const std::vector<ChatMessage>& messages) const;

  const ModelSource* source_;
  std::string example_;
};

}  // namespace aerie::train
