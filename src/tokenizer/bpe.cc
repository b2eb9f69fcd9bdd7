#include "tokenizer/bpe.h"

#include <algorithm>
#include <utility>

namespace aerie {

// What a call of encode() needs for itself, kept between its words.
struct BpeTokenizer::Scratch {
  explicit Scratch(const MergeTable& table) : merger(table) {}
  std::vector<std::string_view> words;
  std::vector<int32_t> symbols;
  Merger merger;
};

void BpeTokenizer::encode(std::string_view text, const EncodeOptions& options,
                          std::vector<int32_t>& ids) const {
  // Encoded apart, so that BOS is looked for in this text and not in what `ids` held.
  std::vector<int32_t> found;
  Scratch scratch(merges_);
  const SpecialTokens& specials = options.parse_special ? specials_ : user_defined_;
  size_t done = 0;
  while (done < text.size()) {
    const SpecialTokens::Match match = specials.find(text, done);
    encode_plain(text.substr(done, match.id < 0 ? text.npos : match.begin - done), scratch, found);
    if (match.id < 0) break;
    found.push_back(match.id);
    done = match.begin + match.length;
  }
  const bool bos = options.add_special && add_bos_ && (found.empty() || found.front() != bos_);
  const bool eos = options.add_special && add_eos_ && (found.empty() || found.back() != eos_);
  if (bos) ids.push_back(bos_);
  ids.insert(ids.end(), found.begin(), found.end());
  if (eos) ids.push_back(eos_);
}

void BpeTokenizer::encode_plain(std::string_view text, Scratch& scratch,
                                std::vector<int32_t>& ids) const {
  constexpr size_t kMaxWord = size_t{1} << 30;  // the merger counts in 32 bits
  scratch.words.clear();
  pre_tokenizer_.split(text, scratch.words);
  for (std::string_view word : scratch.words) {
    for (; !word.empty(); word.remove_prefix(std::min(word.size(), kMaxWord))) {
      scratch.symbols.clear();
      // Bytes without a token go before merging, so that their neighbours may join.
      for (const char c : word.substr(0, kMaxWord)) {
        const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
        if (id >= 0) scratch.symbols.push_back(id);
      }
      scratch.merger.merge(scratch.symbols);
      ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
    }
  }
}

int32_t BpeTokenizer::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : found->second;
}

}  // namespace aerie
