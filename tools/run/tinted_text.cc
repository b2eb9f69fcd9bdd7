#include "tools/run/tinted_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace aerie {
namespace {

constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kPlain = "\x1b[0m";

const char* colour_of(TokenOrigin origin) {
  switch (origin) {
    case TokenOrigin::kAccepted:
      return kGreen;
    case TokenOrigin::kCorrection:
      return kYellow;
    case TokenOrigin::kTarget:
    case TokenOrigin::kBonus:
      break;
  }
  return "";
}

}  // namespace

std::string tint_legend() {
  return fmt::format("{}drafted and accepted{}, {}corrected{}, the model's own", kGreen, kPlain,
                     kYellow, kPlain);
}

void append(const Tint& tint, std::string& out) {
  if (*tint.colour == '\0') {
    out += tint.text;
  } else {
    out.append(tint.colour).append(tint.text).append(kPlain);
  }
}

std::vector<Tint> TintedText::add(const ReplyDelta& delta) {
  if (!tinted_) return {{delta.text}};
  std::string piece;
  for (const EmittedToken& token : delta.tokens) {
    piece.clear();
    if (token.id < tokenizer_.vocab_size()) detokenizer_.push(token.id, piece);
    if (!piece.empty()) pieces_.push_back({piece.size(), token.origin});
  }
  std::vector<Tint> out;
  std::string_view text = delta.text;
  while (!text.empty() && !pieces_.empty()) {
    Piece& next = pieces_.front();
    const size_t bytes = std::min(next.bytes, text.size());
    out.push_back({std::string(text.substr(0, bytes)), colour_of(next.origin)});
    text.remove_prefix(bytes);
    next.bytes -= bytes;
    if (next.bytes == 0) pieces_.pop_front();
  }
  if (!text.empty()) out.push_back({std::string(text)});
  return out;
}

}  // namespace aerie
