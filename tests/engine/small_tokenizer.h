// A tokenizer.json for tiny models.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "format/json.h"

namespace aerie::test {

inline constexpr int kSmallTokens = 84;

// Llama 2's kind of tokenizer with an alphabet and a few merges.
Json small_tokenizer();
// A special token, as it is listed there.
Json added_token(int id, const std::string& content);

}  // namespace aerie::test
