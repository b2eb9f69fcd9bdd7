#include "tools/hub_flags.h"

#include <CLI/CLI.hpp>

#include "base/standard_streams.h"
#include "hub/hub_settings.h"

namespace aerie {

void add_hub_flags(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    add_hub_flags(*command);
  }
  app.add_flag_callback("--offline", set_offline, "Take models from the cache alone");
}

void show_hub_messages() {
  set_hub_listener([](const std::string& line) { print_message("{}\n", line); });
}

}  // namespace aerie
