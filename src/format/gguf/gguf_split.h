// Models split over several GGUF files, as llama.cpp's gguf-split writes them: NAME-00001-of-0000N
// .gguf and so on. Each part is a GGUF file with the keys split.no (from 0), split.count and
// split.tensors.count (of all parts together); the first has the model's metadata.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "format/model_file.h"

namespace aerie {

struct GgufSplit {
  int64_t number = 0;  // of the part, from 0
  int64_t count = 1;
  std::optional<int64_t> tensors;  // in all parts
};

// What the keys say; a count of 1 for a file that is whole. kInvalidData if they make no sense.
// Messages do not name the file.
Expected<GgufSplit> read_gguf_split(const Metadata& metadata);

bool is_gguf_split_key(std::string_view key);

// What comes before "-00001-of-0000N.gguf" in the path of a part. kInvalidData if the path does not
// end in that with the numbers of `split`.
Expected<std::string> gguf_split_prefix(const std::string& path, const GgufSplit& split);
// The path of part `number` (from 0).
std::string gguf_split_path(const std::string& prefix, int64_t number, int64_t count);

}  // namespace aerie
