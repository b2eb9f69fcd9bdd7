// What /admin/status says, for people.
#pragma once

#include <string>

#include "format/json.h"

namespace aerie {

// Of one model. Whatever is missing or of another shape is left out.
std::string ctl_report(const Json& model);

}  // namespace aerie
