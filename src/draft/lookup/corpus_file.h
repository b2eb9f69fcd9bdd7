// A file of text as the tokens that a target makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

inline constexpr int64_t kMaxCorpusBytes = int64_t{128} << 20;

// Of a file NAME.jsonl, what each line's object has under "text"; any other file is one text. What
// is no token below `vocab` and the borders of texts are CorpusIndex::kEnd. Messages begin with the
// path: kNotFound if there is no such file, kInvalidData for what is empty, or no text in UTF-8, or
// a line that has no such object, kResourceExhausted beyond kMaxCorpusBytes.
Expected<std::vector<int32_t>> read_corpus(const std::string& path, const Tokenizer& tokenizer,
                                           int vocab);

}  // namespace aerie
