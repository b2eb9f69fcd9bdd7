#include "tokenizer/pieces/sentencepiece_normalizer.h"

#include <utility>

#include "base/utf8.h"
#include "tokenizer/pieces/unicode.h"
#include "tokenizer/special_tokens.h"

namespace aerie {
namespace {

class SentencePieceStep final : public NormalizerStep {
 public:
  explicit SentencePieceStep(SentencePieceNormalizerOptions options)
      : options_(std::move(options)), space_(options_.escape_whitespaces ? "\u2581" : " ") {
    std::vector<std::pair<std::string_view, int32_t>> names;
    for (const std::string& name : options_.user_defined) {
      if (utf8_valid_prefix(name) == name.size()) names.emplace_back(name, 0);
    }
    user_defined_ = SpecialTokens(std::move(names));
  }

  Status apply(std::string_view text, Place place, std::string& out) const override {
    const bool removes = options_.remove_extra_whitespaces;
    if (removes && place.begins) skip_spaces(text);
    if (text.empty()) return {};
    const bool dummy = options_.add_dummy_prefix;
    const bool suffix = options_.treat_whitespace_as_suffix;
    if (dummy && !suffix && place.begins) out += space_;
    append_text(text, removes && place.begins, out);
    if (removes && place.ends) {
      while (out.ends_with(space_)) out.resize(out.size() - space_.size());
    }
    if (dummy && suffix && place.ends) out += space_;
    return {};
  }

 private:
  struct Prefix {
    std::string_view normal;
    size_t length;
  };

  // What `text` begins with, and what becomes of it.
  Prefix prefix(std::string_view text) const {
    if (!user_defined_.empty()) {
      const auto match = user_defined_.match_at(text, 0);
      if (match.length > 0) return {text.substr(0, match.length), match.length};
    }
    if (const auto match = options_.map.longest(text)) return {match->replacement, match->length};
    const size_t length = utf8_length(text[0]);
    return {text.substr(0, length), length};
  }

  void skip_spaces(std::string_view& text) const {
    while (!text.empty()) {
      const Prefix first = prefix(text);
      if (first.normal != " ") break;
      text.remove_prefix(first.length);
    }
  }

  void append_text(std::string_view text, bool after_space, std::string& out) const {
    while (!text.empty()) {
      const Prefix first = prefix(text);
      text.remove_prefix(first.length);
      std::string_view normal = first.normal;
      while (after_space && normal.starts_with(' ')) normal.remove_prefix(1);
      if (normal.empty()) continue;
      for (const char c : normal) {
        if (c == ' ') {
          out += space_;
        } else {
          out += c;
        }
      }
      after_space = options_.remove_extra_whitespaces && normal.ends_with(' ');
    }
  }

  SentencePieceNormalizerOptions options_;
  std::string space_;
  SpecialTokens user_defined_;
};

}  // namespace

std::unique_ptr<NormalizerStep> sentencepiece_step(SentencePieceNormalizerOptions options) {
  return std::make_unique<SentencePieceStep>(std::move(options));
}

}  // namespace aerie
