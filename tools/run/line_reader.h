// The lines that a person types at a prompt.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace aerie {

enum class Input { kLine, kInterrupted, kEnd };

// One thread; one at a time.
class LineReader {
 public:
  virtual ~LineReader() = default;
  // Shows the prompt on standard error and gives the line without its end; what is pasted may hold
  // several. kInterrupted: Ctrl-C (base/interrupt.h); what was typed is gone.
  virtual Input read(const std::string& prompt, std::string& line) = 0;
};

// On a terminal that can move its cursor, a line that can be edited, with the history of `file`
// (empty: none is kept) and Tab for the beginnings of `words`; else lines of standard input as they
// come.
std::unique_ptr<LineReader> open_line_reader(const std::string& file,
                                             std::vector<std::string> words);

}  // namespace aerie
