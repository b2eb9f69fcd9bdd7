#include "train/command/method_flags.h"

#include <CLI/CLI.hpp>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace aerie::train {
namespace {

std::string flag_of(const std::string& name) {
  return "--" + name;
}

// Adds the flag of a setting by the type of its field.
struct FlagAdder {
  CLI::App& app;
  const Setting& setting;
  std::string flag;

  CLI::Option* operator()(bool* field) const {
    return app.add_flag((setting.negated ? "!" : "") + flag, *field, setting.what);
  }
  CLI::Option* operator()(std::vector<int32_t>* field) const {
    return app.add_option(flag, *field, setting.what)->delimiter(',')->allow_extra_args(false);
  }
  CLI::Option* operator()(const Setting::Parse& parse) const {
    const auto take = [parse, name = flag](const std::string& word) {
      const Status status = parse(word);
      if (!status.ok()) throw CLI::ValidationError(name, status.message());
    };
    return app.add_option_function<std::string>(flag, take, setting.what)
        ->default_str(setting.word);
  }
  template <typename Field>
  CLI::Option* operator()(Field* field) const {
    CLI::Option* option = app.add_option(flag, *field, setting.what);
    if constexpr (std::is_arithmetic_v<Field>) {
      if (setting.range) {
        // Printed as what they are: "INT in [1 - 64]".
        option->check(CLI::Range(static_cast<Field>(setting.range->least),
                                 static_cast<Field>(setting.range->most)));
      }
    }
    return option;
  }
};

}  // namespace

void add_method_flags(CLI::App& app, const SettingList& settings) {
  for (const Setting& setting : settings.all()) {
    CLI::Option* option = std::visit(FlagAdder{app, setting, flag_of(setting.name)}, setting.field);
    if (setting.shows_default) option->capture_default_str();
    if (!setting.needs.empty()) option->needs(flag_of(setting.needs));
    for (const std::string& other : setting.excludes) {
      option->excludes(app.get_option(flag_of(other)));
    }
  }
}

}  // namespace aerie::train
