#include "tokenizer/pieces/normalizer_steps.h"

#include <utility>

#include "tokenizer/pieces/byte_alphabet.h"

namespace aerie {
namespace {

// A step that is a function of the text alone.
template <typename Function>
class FunctionStep final : public NormalizerStep {
 public:
  explicit FunctionStep(Function function) : function_(std::move(function)) {}
  Status apply(std::string_view text, Place place, std::string& out) const override {
    function_(text, place, out);
    return {};
  }

 private:
  Function function_;
};

template <typename Function>
std::unique_ptr<NormalizerStep> step(Function function) {
  return std::make_unique<FunctionStep<Function>>(std::move(function));
}

class ReplaceStep final : public NormalizerStep {
 public:
  ReplaceStep(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status apply(std::string_view text, Place, std::string& out) const override {
    Regex::Scratch scratch(pattern_);
    Regex::Matches matches(pattern_, text, scratch);
    size_t done = 0;
    while (matches.next()) {
      out += text.substr(done, matches.begin() - done);
      out += content_;
      done = matches.end();
    }
    out += text.substr(done);
    return matches.status();
  }

 private:
  Regex pattern_;
  std::string content_;
};

template <typename Visit>
void for_each_character(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const Utf8Character character = utf8_first(text);
    visit(character.code, text.substr(0, character.length));
    text.remove_prefix(character.length);
  }
}

bool nmt_removes(uint32_t code) {
  return (code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
         code == 0x8F || code == 0x9F;
}

bool nmt_makes_space(uint32_t code) {
  return code == 9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
         (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
         code == 0xFEFF || code == 0xFFFD;
}

void apply_precompiled(const Charsmap& map, std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t length = grapheme_length(text);
    const std::string_view cluster = text.substr(0, length);
    text.remove_prefix(length);
    if (length < 6) {
      if (const auto match = map.shortest(cluster)) {
        out += match->replacement;
        continue;
      }
    }
    for_each_character(cluster, [&](uint32_t, std::string_view character) {
      const auto match = map.shortest(character);
      out += match ? match->replacement : character;
    });
  }
}

}  // namespace

std::unique_ptr<NormalizerStep> normal_form_step(NormalForm form) {
  return step([form](std::string_view text, Place, std::string& out) {
    append_normal_form(form, text, out);
  });
}

std::unique_ptr<NormalizerStep> lowercase_step() {
  return step([](std::string_view text, Place, std::string& out) { append_lowercase(text, out); });
}

std::unique_ptr<NormalizerStep> strip_step(bool left, bool right) {
  return step([left, right](std::string_view text, Place place, std::string& out) {
    if (left && place.begins) text = strip_left(text);
    if (right && place.ends) text = strip_right(text);
    out += text;
  });
}

std::unique_ptr<NormalizerStep> strip_accents_step() {
  return step([](std::string_view text, Place, std::string& out) {
    for_each_character(text, [&](uint32_t code, std::string_view character) {
      if (!is_mark(code)) out += character;
    });
  });
}

std::unique_ptr<NormalizerStep> replace_step(Regex pattern, std::string content) {
  return std::make_unique<ReplaceStep>(std::move(pattern), std::move(content));
}

std::unique_ptr<NormalizerStep> replace_text_step(std::string pattern, std::string content) {
  return step([from = std::move(pattern), to = std::move(content)](std::string_view text, Place,
                                                                   std::string& out) {
    size_t done = 0;
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, done)) {
      out += text.substr(done, at - done);
      out += to;
      done = at + from.size();
    }
    out += text.substr(done);
  });
}

std::unique_ptr<NormalizerStep> prepend_step(std::string text) {
  return step([prefix = std::move(text)](std::string_view rest, Place place, std::string& out) {
    if (place.begins) out += prefix;
    out += rest;
  });
}

std::unique_ptr<NormalizerStep> precompiled_step(Charsmap map) {
  return step([map = std::move(map)](std::string_view text, Place, std::string& out) {
    apply_precompiled(map, text, out);
  });
}

std::unique_ptr<NormalizerStep> byte_level_step() {
  return step([](std::string_view text, Place, std::string& out) {
    for (const char c : text) append_byte_name(static_cast<uint8_t>(c), out);
  });
}

std::unique_ptr<NormalizerStep> nmt_step() {
  return step([](std::string_view text, Place, std::string& out) {
    for_each_character(text, [&](uint32_t code, std::string_view character) {
      if (nmt_removes(code)) return;
      out += nmt_makes_space(code) ? std::string_view(" ") : character;
    });
  });
}

}  // namespace aerie
