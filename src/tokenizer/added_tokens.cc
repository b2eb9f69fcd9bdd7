#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/pieces/unicode.h"

namespace aerie {
namespace {

// The valid UTF-8 that `text` begins and ends with: bytes that are no characters end a word.
std::string_view valid_begin(std::string_view text) {
  const Utf8Unit unit = utf8_next(text);
  return unit.kind == Utf8Kind::kValid ? text.substr(0, unit.length) : std::string_view();
}

std::string_view valid_end(std::string_view text) {
  for (size_t length = 1; length <= 4 && length <= text.size(); ++length) {
    const std::string_view last = text.substr(text.size() - length);
    if ((static_cast<uint8_t>(last[0]) & 0xC0) == 0x80) continue;
    return utf8_valid_prefix(last) == length ? last : std::string_view();
  }
  return {};
}

size_t spaces_before(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    const std::string_view last = valid_end(text.substr(0, end));
    if (last.empty() || !is_white_space(utf8_first(last).code) || end - last.size() < least) break;
    end -= last.size();
  }
  return end;
}

size_t spaces_behind(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const std::string_view first = valid_begin(text.substr(begin));
    if (first.empty() || !is_white_space(utf8_first(first).code)) break;
    begin += first.size();
  }
  return begin;
}

}  // namespace

Expected<AddedTokens> AddedTokens::create(std::vector<AddedToken> tokens,
                                          const Normalizer* normalizer) {
  AddedTokens result;
  result.tokens_ = std::move(tokens);
  std::vector<std::pair<std::string_view, int32_t>> names[2][2];
  for (const AddedToken& token : result.tokens_) {
    std::string buffer(token.content);
    if (token.normalized && normalizer != nullptr &&
        utf8_valid_prefix(token.content) == token.content.size()) {
      std::string normal;
      AERIE_ASSIGN_OR_RETURN(const auto text, normalizer->apply(token.content, {}, normal));
      buffer = std::string(text);
    }
    result.patterns_.push_back(std::move(buffer));
  }
  for (size_t i = 0; i < result.tokens_.size(); ++i) {
    const AddedToken& token = result.tokens_[i];
    // What is cut out of normalised text leaves whole characters behind.
    const std::string& pattern = result.patterns_[i];
    if (token.normalized && utf8_valid_prefix(pattern) != pattern.size()) continue;
    const auto name = std::pair(std::string_view(result.patterns_[i]), static_cast<int32_t>(i));
    auto& pass = names[token.normalized ? 1 : 0];
    pass[1].push_back(name);
    if (!token.special) pass[0].push_back(name);
  }
  for (size_t pass = 0; pass < 2; ++pass) {
    for (size_t special = 0; special < 2; ++special) {
      result.names_[pass][special] = SpecialTokens(std::move(names[pass][special]));
    }
  }
  return result;
}

bool AddedTokens::stands_alone(std::string_view text, size_t begin, size_t end) {
  const std::string_view before = valid_end(text.substr(0, begin));
  if (!before.empty() && is_word_character(utf8_first(before).code)) return false;
  if (end == text.size()) return true;
  const std::string_view behind = valid_begin(text.substr(end));
  return behind.empty() || !is_word_character(utf8_first(behind).code);
}

void AddedTokens::split(std::string_view text, Pass pass, bool special,
                        std::vector<Part>& parts) const {
  const SpecialTokens& searched = names(pass, special);
  size_t done = 0, from = 0;
  while (from < text.size()) {
    const SpecialTokens::Match match = searched.find(text, from);
    if (match.id < 0) break;
    const AddedToken& token = tokens_[static_cast<size_t>(match.id)];
    size_t begin = match.begin, end = match.begin + match.length;
    from = end;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    // White space that a token took before this one is gone.
    if (token.lstrip) begin = spaces_before(text, begin, done);
    if (token.rstrip) end = spaces_behind(text, end);
    if (done < begin) parts.push_back({text.substr(done, begin - done), -1});
    parts.push_back({text.substr(match.begin, match.length), token.id});
    done = std::max(done, end);
  }
  if (done < text.size()) parts.push_back({text.substr(done), -1});
}

}  // namespace aerie
