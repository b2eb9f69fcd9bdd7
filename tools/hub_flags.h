// Flags about names of models.
#pragma once

namespace CLI {
class App;
}

namespace aerie {

// --offline, of its subcommands too, and messages about what is fetched on standard error.
void add_hub_flags(CLI::App& app);

}  // namespace aerie
