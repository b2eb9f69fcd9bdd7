// References between schemas (RFC 3986, section 5.2, as far as identifiers of schemas use it).
#pragma once

#include <string>
#include <string_view>

namespace aerie::grammar {

// The reference as seen from `base`, with its fragment; the base's own is left out.
std::string join_uri(std::string_view base, std::string_view reference);

}  // namespace aerie::grammar
