// What every tokenizer that is read from hostile bytes must do.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/load/gguf_metadata.h"
#include "tokenizer/tokenizer.h"

namespace aerie::test {

inline void check_tokenizer(const Tokenizer& tokenizer) {
  const int size = tokenizer.vocab_size();
  require(size > 0);
  for (const int32_t role : {tokenizer.bos(), tokenizer.eos(), tokenizer.unk(), tokenizer.pad()}) {
    require(role >= -1 && role < size);
  }
  constexpr std::string_view kTexts[] = {"",
                                         "Hello  world 123 ",
                                         "\u2581a \u2581",
                                         "e\u0301 \ufb01\u3000\r\n",
                                         "\xFF\x80 <s>x</s> <unk> word word",
                                         "\u4e2d\u6587 \U0001F44D\U0001F3FD",
                                         "aaaaaaaaaaaaaaaa",
                                         "\xE2\x82",
                                         "a\xF0\x9F b"};
  for (const std::string_view text : kTexts) {
    for (const bool special : {false, true}) {
      std::vector<int32_t> ids = {7};
      const Status status = tokenizer.encode(text, {special, special}, ids);
      require(!ids.empty() && ids[0] == 7 && (status.ok() || ids.size() == 1));
      Detokenizer detokenizer(tokenizer, special, DetokenizeFrom::kBeginning);
      std::string back;
      for (size_t i = 1; i < ids.size(); ++i) {
        require(ids[i] >= 0 && ids[i] < size);
        detokenizer.push(ids[i], back);
      }
      detokenizer.finish(back);
    }
  }
  const auto metadata = tokenizer.gguf_metadata();
  if (!metadata.ok()) return;
  require(metadata->tokens.size() == static_cast<size_t>(size));
}

}  // namespace aerie::test
