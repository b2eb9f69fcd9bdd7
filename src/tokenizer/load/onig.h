// Oniguruma's regular expressions, in which tokenizer.json is written, as PCRE2's.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie {

// An expression for PCRE2 with UTF, UCP and MULTILINE that matches what Oniguruma's (Ruby syntax,
// UTF-8) matches. Differences in meaning are spelled out: \s, \w, \b, \h, \v, scripts, "{n,m}+",
// "{,m}", "(?m)". kUnsupported, naming the construct, for what has no exact counterpart here.
Expected<std::string> pcre2_from_onig(std::string_view expression);

}  // namespace aerie
