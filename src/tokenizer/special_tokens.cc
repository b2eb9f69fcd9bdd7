#include "tokenizer/special_tokens.h"

#include <algorithm>

namespace aerie {

SpecialTokens::SpecialTokens(std::vector<std::pair<std::string_view, int32_t>> tokens)
    : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const auto& token) { return token.first.empty(); });
  std::ranges::sort(tokens_);
  for (const auto& token : tokens_) begins_[static_cast<uint8_t>(token.first[0])] = true;
}

SpecialTokens::Match SpecialTokens::find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return {};
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<uint8_t>(text[at])]) continue;
    const Match match = longest_at(text, at);
    if (match.id >= 0) return match;
  }
  return {};
}

SpecialTokens::Match SpecialTokens::longest_at(std::string_view text, size_t at) const {
  // Names are sorted, so those that share a prefix with the text lie together; the range narrows
  // with every byte, and a name that is the whole prefix comes first in it.
  Match best;
  auto low = tokens_.begin(), high = tokens_.end();
  for (size_t depth = 0; at + depth < text.size() && low != high; ++depth) {
    const auto wanted = static_cast<uint8_t>(text[at + depth]);
    const auto byte = [depth](const auto& token) {
      return depth < token.first.size() ? static_cast<int>(static_cast<uint8_t>(token.first[depth]))
                                        : -1;
    };
    low = std::partition_point(low, high, [&](const auto& t) { return byte(t) < wanted; });
    high = std::partition_point(low, high, [&](const auto& t) { return byte(t) <= wanted; });
    if (low != high && low->first.size() == depth + 1) best = {at, depth + 1, low->second};
  }
  return best;
}

}  // namespace aerie
