// Flags about names of models.
#pragma once

namespace CLI {
class App;
}

namespace aerie {

// --offline, of its subcommands too.
void add_hub_flags(CLI::App& app);

// From now on messages about what is fetched go to standard error.
void show_hub_messages();

}  // namespace aerie
