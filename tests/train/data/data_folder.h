// A folder with a tiny target, prompts, and what is made of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/testing/tiny_model.h"
#include "train/data/generate_data.h"

namespace aerie::train::test {

// Removed with all that is in it when the object goes.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // Returns the file's path.
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::string folder_;
};

std::string read_file(const std::string& path);

// Fails the test if the file cannot be written. `seed` is of the weights.
std::string write_target(const Scratch& scratch, const std::string& name = "target.gguf",
                         uint64_t seed = 1);

// Chats of one and two turns, a question, a text and messages: `count` lines.
std::string write_prompts(const Scratch& scratch, const std::string& name, int count);

// Replies of at most 24 tokens at temperatures 0 and 1, in scratch.path("out"); one thread.
GenerateOptions options_for(const Scratch& scratch, const std::string& model,
                            std::vector<std::string> prompts);

// Fails the test for an error.
GenerateResult generate(const GenerateOptions& options);

// The lines of all samples in a folder, by id. Fails the test for what read_dataset() refuses.
std::map<std::string, std::string> lines_in(const std::string& folder);

}  // namespace aerie::train::test
