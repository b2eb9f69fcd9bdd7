// curves.html of a run: how loss, acceptance and learning rate went.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace aerie::train {

// `lines` are RunLog::lines(). Puts a page that opens without a network at `path`.
Status write_curves(const std::string& path, const std::string& method,
                    const std::vector<Json>& lines);

}  // namespace aerie::train
