// Adding flags: what many of them have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

namespace aerie {

// In the help, flags that are added while it lives stand under the title.
class FlagGroup {
 public:
  FlagGroup(CLI::App& app, const char* title)
      : defaults_(*app.option_defaults()), before_(defaults_.get_group()) {
    defaults_.group(title);
  }
  ~FlagGroup() { defaults_.group(before_); }
  FlagGroup(const FlagGroup&) = delete;
  FlagGroup& operator=(const FlagGroup&) = delete;

 private:
  CLI::OptionDefaults& defaults_;
  std::string before_;
};

// A flag whose default the help shows.
template <typename T>
CLI::Option* add_shown(CLI::App& app, std::string name, T& value, std::string help = "") {
  return app.add_option(std::move(name), value, std::move(help))->capture_default_str();
}

// A list with commas between its items, and whose default the help shows.
template <typename T>
CLI::Option* add_list(CLI::App& app, std::string name, T& value, std::string help = "") {
  return add_shown(app, std::move(name), value, std::move(help))->delimiter(',');
}

// --quiet, which main() looks for: no progress is shown.
inline CLI::Option* add_quiet(CLI::App& app) {
  return app.add_flag("-q,--quiet")->description("No progress");
}

// What completion offers for the value; others are not refused here.
inline CLI::Option* offer(CLI::Option* option, std::string choices) {
  return option->check(
      CLI::Validator([](std::string&) { return std::string(); }, "{" + std::move(choices) + "}"));
}

constexpr const char* kThreadsHelp =
    "Threads (default: one for each performance core, within the container's quota; `aerie doctor` "
    "says how many and why)";

// --threads
inline CLI::Option* add_threads(CLI::App& app, int& threads) {
  return app.add_option("--threads", threads, kThreadsHelp)->check(CLI::Range(1, 1024));
}

inline CLI::Option* add_tensor_parallel(CLI::App& app, int& ranks) {
  return app
      .add_option("--tensor-parallel", ranks,
                  "Processes that share the model; they begin together: mpirun -np N aerie ...")
      ->check(CLI::Range(1, 64));
}

}  // namespace aerie
