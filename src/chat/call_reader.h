// Reads calls of one form.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "chat/reply_parser.h"

namespace aerie::chat {

inline constexpr std::string_view kSpace = " \t\r\n";
inline constexpr size_t kMaxName = 1024;  // bytes of a function's name

// Of what stands behind an opening tag, one call (of a list: all its calls).
class CallReader {
 public:
  enum class State : uint8_t {
    kMore,    // what is left of the text is not decided yet
    kDone,    // the text is what follows
    kNoCall,  // nothing that may follow makes it a call
  };

  virtual ~CallReader() = default;
  // Takes off `text` what is decided. It begins where the last call left it.
  virtual State read(std::string_view& text, std::vector<ReplyPart>& parts) = 0;
};

// `tools` must outlive the reader.
std::unique_ptr<CallReader> make_json_calls(const std::vector<Tool>& tools);
std::unique_ptr<CallReader> make_named_call(const CallSyntax& syntax,
                                            const std::vector<Tool>& tools);
std::unique_ptr<CallReader> make_parameters_call(const std::vector<Tool>& tools);
std::unique_ptr<CallReader> make_key_values_call(const CallSyntax& syntax,
                                                 const std::vector<Tool>& tools);

// Without white space at its ends.
std::string_view trimmed(std::string_view text);

// Null if there is none of this name.
const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name);

// Whether an argument that is not written as JSON is a text as it stands: its schema's type is
// "string". Of others the text is JSON where it can be read as that.
bool is_text(const Json& schema);
// The argument as JSON.
std::string argument_json(const Tool& tool, std::string_view argument, std::string_view text);

// Finds the end of a JSON value. That brackets match and literals are spelled right is not looked
// at.
class JsonValueEnd {
 public:
  // How many bytes at the beginning of `text` belong to the value.
  size_t push(std::string_view text);
  bool done() const { return done_; }

 private:
  bool done_ = false;
  bool begun_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
  bool plain_ = false;  // a number or a literal
  int depth_ = 0;
};

// Whether a text begins with the tag; nothing if that is not known yet.
std::optional<bool> begins(std::string_view text, std::string_view tag);

// The length of the longest end of `text` that one of the words begins with; whole words are none.
size_t held_length(std::string_view text, std::string_view word);

}  // namespace aerie::chat
