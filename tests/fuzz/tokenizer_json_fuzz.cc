// Whatever the bytes are, they are a tokenizer.json that encodes and decodes or they are refused.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_checks.h"
#include "tokenizer/load/hf_folder.h"

AERIE_FUZZ_TARGET(tokenizer_json) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = aerie::tokenizer_from_json(bytes, "fuzz", {});
  if (tokenizer.ok()) {
    aerie::test::check_tokenizer(**tokenizer);
  } else {
    aerie::require(tokenizer.status().message().starts_with("fuzz"));
  }
  return 0;
}
