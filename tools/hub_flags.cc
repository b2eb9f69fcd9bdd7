#include "tools/hub_flags.h"

#include <CLI/CLI.hpp>
#include <string_view>

#include "base/standard_streams.h"
#include "hub/hub_settings.h"

namespace aerie {

void add_hub_flags(CLI::App& app) {
  app.add_flag_callback("--offline", set_offline, "Take models from the cache alone");
  set_hub_listener([](const std::string& line) { print_message("{}\n", line); });
}

HubWords::HubWords(int argc, char** argv) {
  constexpr std::string_view kLong = "--hf-repo";
  changed_.reserve(static_cast<size_t>(argc));  // pointers into it are kept
  bool flags = true;
  for (int i = 0; i < argc; ++i) {
    const std::string_view word = argv[i];
    flags = flags && word != "--";
    words_.push_back(argv[i]);
    if (!flags) continue;
    if (word == "-hf" || word == "-hfr" || word == kLong) {
      changed_.emplace_back("-m");
    } else if (word.starts_with(kLong) && word.substr(kLong.size()).starts_with('=')) {
      changed_.push_back("--model" + std::string(word.substr(kLong.size())));
    } else {
      continue;
    }
    words_.back() = changed_.back().data();
  }
  words_.push_back(nullptr);
}

}  // namespace aerie
