// The flags of a training method's own settings.
#pragma once

#include "train/methods/setting_list.h"

namespace CLI {
class App;
}

namespace aerie::train {

// A flag for each, which sets its field; the fields must outlive `app`.
void add_method_flags(CLI::App& app, const SettingList& settings);

}  // namespace aerie::train
