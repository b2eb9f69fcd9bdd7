#include "draft/lookup/lookup_keys.h"

#include <fmt/format.h>

#include "draft/method_settings.h"

namespace aerie {

Status check_lookup(MethodConfig& config) {
  const int least = config.whole(kShortestKey), most = config.whole(kLongestKey);
  if (least <= most) return {};
  const bool given = config.numbers.contains(kLongestKey);
  return invalid(fmt::format("'{}' {} is above '{}' {}{}", kShortestKey, least, kLongestKey, most,
                             given ? "" : ", its default: set that too"));
}

}  // namespace aerie
