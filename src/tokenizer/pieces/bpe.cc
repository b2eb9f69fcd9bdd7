#include "tokenizer/pieces/bpe.h"

#include <algorithm>
#include <span>

#include "tokenizer/pieces/unicode.h"

namespace aerie {
namespace {

constexpr std::string_view kSign = "\u2581";

// Where the last character of `text`, not empty, begins.
size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

void Bpe::encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const int32_t id = words_.find(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  const size_t first = ids.size();
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = chunk_end(word, begin);
    const std::string_view chunk = word.substr(begin, end - begin);
    begin = end;
    const size_t before = ids.size();
    size_t count = 0;
    if (const int32_t* known = scratch.cache.find(chunk, count)) {
      ids.insert(ids.end(), known, known + count);
    } else {
      encode_chunk(chunk, scratch, ids);
      scratch.cache.insert(chunk, std::span(ids).subspan(before));
    }
    // Unknown characters on both sides of the cut are one.
    const int32_t unk = options_.unk;
    if (options_.fuse_unk && before > first && before < ids.size() && unk >= 0 &&
        ids[before - 1] == unk && ids[before] == unk) {
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(before));
    }
  }
}

size_t Bpe::chunk_end(std::string_view word, size_t begin) const {
  if (!falls_apart_) return word.size();
  for (size_t at = word.find(kSign, begin); at != word.npos; at = word.find(kSign, at + 1)) {
    if (at == begin) continue;
    const std::string_view before = word.substr(begin, at - begin);
    const uint32_t code = utf8_first(before.substr(last_character(before))).code;
    if (!before_sign_.contains(code)) return at;
  }
  return word.size();
}

void Bpe::encode_chunk(std::string_view chunk, ModelScratch& scratch,
                       std::vector<int32_t>& ids) const {
  scratch.symbols.clear();
  append_symbols(chunk, scratch.symbols);
  if (!scratch.merger) scratch.merger.emplace(merges_);
  scratch.merger->merge(scratch.symbols);
  const size_t begin = ids.size();
  for (const int32_t symbol : scratch.symbols) append_token(symbol, begin, ids);
}

void Bpe::append_symbols(std::string_view chunk, std::vector<int32_t>& symbols) const {
  if (options_.bytes) {
    for (const char c : chunk) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0) {
        symbols.push_back(id);
      } else if (options_.unk >= 0) {
        symbols.push_back(options_.unk);
      }
    }
    return;
  }
  while (!chunk.empty()) {
    const Utf8Character character = utf8_first(chunk);
    const int32_t symbol = symbol_of(character.code);
    if (symbol >= 0) {
      symbols.push_back(symbol);
    } else {
      append_unknown(chunk.substr(0, character.length), symbols);
    }
    chunk.remove_prefix(character.length);
  }
}

void Bpe::append_unknown(std::string_view character, std::vector<int32_t>& ids) const {
  const bool bytes = options_.byte_fallback && std::ranges::all_of(character, [this](char c) {
                       return byte_ids_[static_cast<uint8_t>(c)] >= 0;
                     });
  if (bytes) {
    for (const char c : character) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  } else if (options_.unk >= 0) {
    ids.push_back(options_.unk);
  }
}

// `begin`: where the tokens of this chunk begin in `ids`.
void Bpe::append_token(int32_t symbol, size_t begin, std::vector<int32_t>& ids) const {
  if (symbol >= vocabulary_.size()) {
    std::string character;
    append_utf8(extra_codes_[static_cast<size_t>(symbol - vocabulary_.size())], character);
    const size_t before = ids.size();
    append_unknown(character, ids);
    if (ids.size() != before + 1 || ids.back() != options_.unk) return;
    symbol = ids.back();
    ids.pop_back();
  }
  if (!expanded_.empty()) {
    if (const auto found = expanded_.find(symbol); found != expanded_.end()) {
      append_token(found->second.first, begin, ids);
      append_token(found->second.second, begin, ids);
      return;
    }
  }
  const bool fused =
      options_.fuse_unk && symbol == options_.unk && ids.size() > begin && ids.back() == symbol;
  if (!fused) ids.push_back(symbol);
}

void Bpe::encode_byte(uint8_t byte, ModelScratch& scratch, std::vector<int32_t>& ids) const {
  if (options_.bytes || (options_.byte_fallback && byte_ids_[byte] >= 0)) {
    const int32_t id = byte_ids_[byte] >= 0 ? byte_ids_[byte] : options_.unk;
    if (id >= 0) ids.push_back(id);
    return;
  }
  encode("\uFFFD", scratch, ids);
}

int32_t Bpe::symbol_of(uint32_t code) const {
  if (code < plane0_.size()) return plane0_[code];
  const auto found = other_planes_.find(code);
  return found == other_planes_.end() ? -1 : found->second;
}

}  // namespace aerie
