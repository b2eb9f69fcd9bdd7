// Writes the checkpoints of tiny heads.
#pragma once

#include <string>

#include "format/model_file.h"
#include "tests/testing/tiny_heads.h"

namespace aerie::test {

// config.json and model.safetensors of a head as TinyHead describes it, in the folder `path`, whose
// contents are lost. Fails the test for any error.
void write_head(const ModelFile& target, HeadFamily family, bool agrees, const std::string& path);

}  // namespace aerie::test
