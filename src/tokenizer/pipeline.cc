#include "tokenizer/pipeline.h"

#include "base/utf8.h"

namespace aerie {

// What a call of encode() needs for itself.
struct PipelineTokenizer::Scratch {
  std::vector<int32_t> ids;
  ModelScratch model;
  PreTokenizer::Scratch pre;
  std::vector<std::string_view> words;
  std::string normal;
  std::vector<AddedTokens::Part> parts;
};

Status PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options,
                                 std::vector<int32_t>& ids) const {
  // Encoded apart, so that BOS is looked for in this text and not in what `ids` held, and nothing
  // is left in it after an error.
  Scratch scratch;
  scratch.pre = parts_.pre_tokenizer.make_scratch();
  scratch.model.cache.reserve(text.size());
  std::vector<AddedTokens::Part> parts;
  parts_.added.split(text, AddedTokens::Pass::kRaw, options.parse_special, parts);
  for (const AddedTokens::Part& part : parts) {
    if (part.id >= 0) {
      scratch.ids.push_back(part.id);
    } else {
      const bool first = part.text.data() == text.data();
      AERIE_RETURN_IF_ERROR(encode_between(part.text, first, options, scratch));
    }
  }
  const Vocabulary& vocabulary = *parts_.vocabulary;
  const std::vector<int32_t>& found = scratch.ids;
  const bool bos = options.add_special && vocabulary.add_bos() &&
                   (found.empty() || found.front() != vocabulary.bos());
  const bool eos = options.add_special && vocabulary.add_eos() &&
                   (found.empty() || found.back() != vocabulary.eos());
  if (bos) ids.push_back(vocabulary.bos());
  ids.insert(ids.end(), found.begin(), found.end());
  if (eos) ids.push_back(vocabulary.eos());
  return {};
}

// The normaliser and the pre-tokenizer see valid UTF-8 only. Other bytes are tokens of their own.
Status PipelineTokenizer::encode_between(std::string_view text, bool first,
                                         const EncodeOptions& options, Scratch& scratch) const {
  bool begins = first || parts_.begins_after_added;
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix(text);
    if (valid > 0) {
      const Place place{begins, valid == text.size()};
      AERIE_RETURN_IF_ERROR(encode_valid(text.substr(0, valid), first, place, options, scratch));
    }
    if (valid == text.size()) break;
    parts_.model->encode_byte(static_cast<uint8_t>(text[valid]), scratch.model, scratch.ids);
    text.remove_prefix(valid + 1);
    begins = first = false;
  }
  return {};
}

Status PipelineTokenizer::encode_valid(std::string_view text, bool first, Place place,
                                       const EncodeOptions& options, Scratch& scratch) const {
  AERIE_ASSIGN_OR_RETURN(const std::string_view normal,
                         parts_.normalizer.apply(text, place, scratch.normal));
  scratch.parts.clear();
  parts_.added.split(normal, AddedTokens::Pass::kNormalized, options.parse_special, scratch.parts);
  bool begins = place.begins;
  for (const AddedTokens::Part& part : scratch.parts) {
    if (part.id >= 0) {
      scratch.ids.push_back(part.id);
      first = false;
      begins = true;
      continue;
    }
    scratch.words.clear();
    scratch.pre.texts.clear();
    AERIE_RETURN_IF_ERROR(
        parts_.pre_tokenizer.split(part.text, {first, !begins}, scratch.pre, scratch.words));
    for (const std::string_view word : scratch.words) encode_word(word, scratch);
  }
  return {};
}

void PipelineTokenizer::encode_word(std::string_view word, Scratch& scratch) const {
  while (word.size() > WordModel::kMostBytes) {
    size_t cut = WordModel::kMostBytes;
    while ((static_cast<uint8_t>(word[cut]) & 0xC0) == 0x80) --cut;
    parts_.model->encode(word.substr(0, cut), scratch.model, scratch.ids);
    word.remove_prefix(cut);
  }
  parts_.model->encode(word, scratch.model, scratch.ids);
}

}  // namespace aerie
