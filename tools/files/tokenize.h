// `aerie tokenize`: shows what a model's tokenizer makes of a text, and the reverse.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "base/status.h"

namespace aerie {

struct TokenizeCommand {
  std::string model;         // a GGUF file, a folder, or such a name
  std::string text;          // with `decode`: token ids, between them spaces, commas or brackets
  bool special = false;      // names of control tokens become them; with `decode` they are shown
  bool add_special = false;  // BOS/EOS where the model wants them
  bool ids_only = false;     // "[1, 2, 3]" instead of a line for each token
  bool json = false;         // {"ids": ..., "tokens": [{"id", "piece", "bytes"}]}, or {"text": ...}
  bool decode = false;
  // Instead of a text: files of text, whose tokens are counted.
  std::vector<std::string> frequencies;
};

// With `frequencies`, the ids that occur in the files, the most frequent first (of equally frequent
// ones the smaller id), one in each line, or as a JSON array: a draft vocabulary
// (draft/network/draft_vocabulary.h). A long file is tokenized in parts of some MiB that end with a
// line.
//
// Writes the result to `out`. Bytes that the vocabulary has no token for are reported as a warning.
Status tokenize(const TokenizeCommand& options, std::ostream& out);

}  // namespace aerie
