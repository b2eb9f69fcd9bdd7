// What a model's files are, in a number: for telling later whether they are still the same.
#pragma once

#include <cstdint>
#include <optional>

#include "format/model_file.h"

namespace aerie {

// Of each of file.sources(): size, time of modification, all of what describes the tensors, and
// some of the bytes of every tensor (its first, middle and last 256); and of the file's own table
// of names, types and shapes. None if the sources cannot be told, or are not intact any more
// (ModelFile::check_intact()).
//
// That is enough for files that are replaced or changed by programs: these leave another time.
// Where times are set by hand or by an archive, another model in the same place has other bytes in
// every tensor that training or quantising touched. Only a change of a few weights that keeps size
// and time goes unseen.
std::optional<uint64_t> fingerprint(const ModelFile& file);

// The same without the times: that of a copy, too. A change of a few weights goes unseen.
std::optional<uint64_t> content_fingerprint(const ModelFile& file);

}  // namespace aerie
