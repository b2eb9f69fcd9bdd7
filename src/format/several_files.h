// The error of a folder that holds several files of a kind where one is wanted.
#pragma once

#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "format/text.h"

namespace aerie {

inline Status several_files(const std::string& folder, std::string_view kind,
                            const std::vector<std::string>& names) {
  return invalid_argument("{}: holds several {} files; give one of them: {}", folder, kind,
                          printable(fmt::format("{}", fmt::join(names, ", ")), 300));
}

}  // namespace aerie
