// Flags about names of models.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace aerie {

// --offline, and messages about what is fetched on standard error.
void add_hub_flags(CLI::App& app);

// A command line in which llama.cpp's -hf and --hf-repo are -m: CLI11 has no flags of several
// letters behind one dash. What stands behind "--" stays. `argv` must outlive it.
class HubWords {
 public:
  HubWords(int argc, char** argv);
  int count() const { return static_cast<int>(words_.size()) - 1; }
  char** values() { return words_.data(); }

 private:
  std::vector<std::string> changed_;
  std::vector<char*> words_;
};

}  // namespace aerie
