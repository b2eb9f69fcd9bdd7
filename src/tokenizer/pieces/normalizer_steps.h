// The steps of Hugging Face's tokenizers, under their names. Texts are valid UTF-8.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/pieces/charsmap.h"
#include "tokenizer/pieces/normalizer.h"
#include "tokenizer/pieces/regex.h"
#include "tokenizer/pieces/unicode.h"

namespace aerie {

std::unique_ptr<NormalizerStep> normal_form_step(NormalForm form);
std::unique_ptr<NormalizerStep> lowercase_step();
// White space at the beginning and the end of the text.
std::unique_ptr<NormalizerStep> strip_step(bool left, bool right);
std::unique_ptr<NormalizerStep> strip_accents_step();
// Every match becomes `content`.
std::unique_ptr<NormalizerStep> replace_step(Regex pattern, std::string content);
// Every occurrence of `pattern`, which is not empty, becomes `content`.
std::unique_ptr<NormalizerStep> replace_text_step(std::string pattern, std::string content);
// Before a text that is not empty.
std::unique_ptr<NormalizerStep> prepend_step(std::string text);
// A character map, the way that Hugging Face applies it: to whole grapheme clusters of up to five
// bytes, of which the shortest key counts, else to single characters.
std::unique_ptr<NormalizerStep> precompiled_step(Charsmap map);
// GPT-2's spelling of bytes.
std::unique_ptr<NormalizerStep> byte_level_step();
// Control characters go, unusual white space becomes spaces.
std::unique_ptr<NormalizerStep> nmt_step();

}  // namespace aerie
