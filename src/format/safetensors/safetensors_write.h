// Writes safetensors files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/output_file.h"
#include "format/safetensors/safetensors.h"

namespace aerie {

struct SafetensorsEntry {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;  // outermost first; empty for a single value
};

using ByteSink = std::function<Status(std::span<const std::byte>)>;

// Puts a file with these tensors at `path`, whole or not at all (format/output_file.h), in the
// order of the format's own library: wider types first, then by name, so that all are aligned.
// `values(i, sink)` hands the bytes of tensor i to the sink, in as many parts as it likes; it is
// called once for each, and its error ends the writing. `metadata` is what the writer has to say.
//
// kInvalidArgument, naming it, for a name that is empty, not UTF-8, "__metadata__" or there twice,
// for a key of the metadata that is there twice, for a negative size, and for elements that do not
// fill whole bytes; kInternal if a tensor's
// values are not as many bytes as it has. `mode` as OutputFile::create() has it. Returns the bytes
// written.
Expected<int64_t> write_safetensors(
    const std::string& path, std::span<const SafetensorsEntry> tensors,
    std::span<const std::pair<std::string, std::string>> metadata,
    const std::function<Status(size_t index, const ByteSink& sink)>& values,
    unsigned mode = OutputFile::kUsualMode);

}  // namespace aerie
