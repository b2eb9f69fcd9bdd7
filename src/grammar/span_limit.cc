#include "grammar/span_limit.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace aerie {

namespace {

// Whether the last character lacks bytes.
bool ends_within_character(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<uint8_t>(text[text.size() - n]);
    if (byte < 0x80) return false;
    if (byte < 0xC0) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return n < length;
  }
  return false;
}

}  // namespace

// Whether the opening text was found; what cannot be a part of it is dropped.
bool SpanTracker::opens() {
  if (over_ || open_.empty()) {
    tail_.clear();
    return false;
  }
  if (!repeats_) {
    tail_.erase(0, std::min(tail_.find_first_not_of(" \t\r\n"), tail_.size()));
    over_ = !tail_.starts_with(open_) && !open_.starts_with(tail_);
    if (over_) return false;
  }
  const size_t at = tail_.find(open_);
  if (at == std::string::npos) {
    tail_.erase(0, tail_.size() - std::min(tail_.size(), open_.size() - 1));
    return false;
  }
  tail_.erase(0, at + open_.size());
  return true;
}

bool SpanTracker::closes() {
  const size_t at = close_.empty() ? std::string::npos : tail_.find(close_);
  if (at == std::string::npos) {
    const size_t keep = close_.empty() ? 0 : std::min(tail_.size(), close_.size() - 1);
    tail_.erase(0, tail_.size() - keep);
    return false;
  }
  tail_.erase(0, at + close_.size());
  over_ = !repeats_;
  return true;
}

void SpanTracker::push(std::string_view piece) {
  const bool was_inside = inside_;
  const size_t missed = missing().size();
  tail_ += piece;
  in_character_ = ends_within_character(tail_);
  while (inside_ ? closes() : opens()) inside_ = !inside_;
  if (!was_inside || !inside_) {
    closing_ = 0;
  } else if (missing().size() < missed) {
    ++closing_;
  } else {
    const bool begins = missing().size() < close_.size();
    tokens_ += closing_ + (begins ? 0 : 1);
    closing_ = begins ? 1 : 0;
  }
}

std::string_view SpanTracker::missing() const {
  for (size_t n = close_.empty() ? 0 : std::min(tail_.size(), close_.size() - 1); n > 0; --n) {
    if (tail_.ends_with(std::string_view(close_).substr(0, n))) {
      return std::string_view(close_).substr(n);
    }
  }
  return close_;
}

namespace {

class SpanLimitConstraint final : public TokenConstraint {
 public:
  SpanLimitConstraint(const SpanLimit& limit, const Tokenizer& tokenizer,
                      std::unique_ptr<TokenConstraint> inner)
      : tokenizer_(tokenizer),
        max_tokens_(limit.max_tokens),
        close_token_(tokenizer.find(limit.close)),
        tracker_(limit.open, limit.close, limit.is_open, limit.repeats),
        inner_(std::move(inner)) {}

  std::unique_ptr<TokenConstraint> fork() const override {
    return std::unique_ptr<TokenConstraint>(new SpanLimitConstraint(*this));
  }
  bool ready() override { return inner_ == nullptr || inner_->ready(); }
  Readiness prepare() override { return inner_ == nullptr ? Readiness::kReady : inner_->prepare(); }
  Status status() const override { return inner_ == nullptr ? Status() : inner_->status(); }

  void advance(int32_t token) override {
    if (token < tokenizer_.vocab_size()) tracker_.push(tokenizer_.piece(token));
    if (inner_ != nullptr) inner_->advance(token);
  }

  void mask(std::span<bool> allowed) const override {
    if (inner_ != nullptr) {
      inner_->mask(allowed);
    } else {
      std::fill(allowed.begin(), allowed.end(), true);
    }
    if (!closes()) return;
    const auto closing = [&](size_t id) {
      return allowed[id] && takes(static_cast<int32_t>(id), tracker_.missing());
    };
    bool any = false;
    for (size_t id = 0; id < allowed.size() && !any; ++id) any = closing(id);
    // What else constrains the output comes first.
    if (!any) return;
    for (size_t id = 0; id < allowed.size(); ++id) allowed[id] = closing(id);
  }

  bool allows(int32_t token) const override {
    if (inner_ != nullptr && !inner_->allows(token)) return false;
    return !closes() || takes(token, tracker_.missing());
  }

  std::string forced() const override {
    if (closes()) return close_token_ >= 0 ? std::string() : std::string(tracker_.missing());
    return inner_ != nullptr ? inner_->forced() : std::string();
  }

 private:
  SpanLimitConstraint(const SpanLimitConstraint& other)
      : tokenizer_(other.tokenizer_),
        max_tokens_(other.max_tokens_),
        close_token_(other.close_token_),
        tracker_(other.tracker_),
        inner_(other.inner_ == nullptr ? nullptr : other.inner_->fork()) {}

  // A character that was begun is ended first.
  bool closes() const {
    return tracker_.inside() && tracker_.tokens_at_most() >= max_tokens_ &&
           !tracker_.in_character() &&
           (inner_ == nullptr || close_token_ < 0 || inner_->allows(close_token_));
  }

  bool takes(int32_t token, std::string_view missing) const {
    if (close_token_ >= 0) return token == close_token_;
    if (token >= tokenizer_.vocab_size() || tokenizer_.is_control(token)) return false;
    const std::string_view piece = tokenizer_.piece(token);
    return !piece.empty() && missing.starts_with(piece);
  }

  const Tokenizer& tokenizer_;
  const int max_tokens_;
  const int32_t close_token_;  // that is the whole closing text; -1: there is none
  SpanTracker tracker_;
  std::unique_ptr<TokenConstraint> inner_;
};

}  // namespace

std::unique_ptr<TokenConstraint> make_span_limit(const SpanLimit& limit, const Tokenizer& tokenizer,
                                                 std::unique_ptr<TokenConstraint> inner) {
  return std::make_unique<SpanLimitConstraint>(limit, tokenizer, std::move(inner));
}

}  // namespace aerie
