// One reply to standard output, as it comes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/recording/record_file.h"
#include "tools/run/reply_form.h"
#include "tools/run/run_options.h"

namespace aerie {

// The options' settings; Ctrl-C ends it (interrupt.h).
Request make_request(const RunOptions& options, const Engine& engine, const ReplyForm& form,
                     std::vector<int32_t> prompt);

// Where the command line leaves settings open, takes those that the model's makers recommend and
// says so in a line. Errors are read_suggested_sampling()'s.
Status take_suggested_sampling(const Engine& engine, RunOptions& options);

// Generates and prints the text, if need be in colours (tinted_text.h), and what was thought before
// it apart. A line that the reply leaves open stays open. Ends where nothing can be printed any
// more: output_status().
Expected<Generation> print_reply(Engine& engine, const Request& request, const ReplyForm& form,
                                 const RunOptions& options);

// What --record asks for, if it is given.
class Recorder {
 public:
  // Before the model is loaded, so that a wrong path is no surprise later.
  static Expected<Recorder> open(const RunOptions& options);

  // Adds the reply to the file. `prompt_text` is what the prompt was made of.
  Status add(const Engine& engine, const Request& request, const std::string& prompt_text,
             const Generation& generation);

 private:
  std::optional<RecordFile> file_;
  std::optional<RecordedEngine> engine_;
};

}  // namespace aerie
