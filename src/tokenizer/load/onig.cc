#include "tokenizer/load/onig.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "format/text.h"
#include "tokenizer/pieces/unicode.h"

namespace aerie {
namespace {

// Contents of character classes. PCRE2's own \s also takes U+180E, and its \w leaves out marks.
constexpr std::string_view kSpaces =
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
constexpr std::string_view kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
    "\\x{1f170}-\\x{1f189}";
constexpr std::string_view kHex = "0-9A-Fa-f";

// Escapes that stand for characters, or for all but these.
struct Escape {
  char letter;
  std::string_view content;
  bool excluded = false;
};
constexpr Escape kEscapes[] = {
    {'s', kSpaces},    {'S', kSpaces, true}, {'w', kWord},     {'W', kWord, true}, {'h', kHex},
    {'H', kHex, true}, {'d', "\\p{Nd}"},     {'D', "\\P{Nd}"}, {'n', "\\x0a"},     {'t', "\\x09"},
    {'r', "\\x0d"},    {'f', "\\x0c"},       {'v', "\\x0b"},   {'a', "\\x07"},     {'e', "\\x1b"}};

constexpr std::string_view kCategories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "Any"};

// From PCRE2 10.40 on, \p{Greek} means Script_Extensions, and \p{sc:Greek} is the script.
bool has_script_prefix() {
  char version[64] = {};
  if (pcre2_config(PCRE2_CONFIG_VERSION, nullptr) > static_cast<int>(sizeof(version))) return true;
  pcre2_config(PCRE2_CONFIG_VERSION, version);
  int major = 0, minor = 0;
  if (std::sscanf(version, "%d.%d", &major, &minor) != 2) return true;
  return major > 10 || minor >= 40;
}

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Expected<std::string> run() {
    if (!is_valid_utf8(in_)) return unsupported("bytes that are not UTF-8");
    while (at_ < in_.size()) AERIE_RETURN_IF_ERROR(one());
    return std::move(out_);
  }

 private:
  Status unsupported(std::string_view what) const {
    return not_supported("the regular expression '{}' has {}", printable(in_, 200),
                         printable(what, 40));
  }
  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }

  Status one() {
    const char c = in_[at_];
    switch (c) {
      case '\\':
        return escape();
      case '[':
        return character_class();
      case '(':
        return open();
      case ')':
        if (groups_.empty()) return unsupported("')' without '('");
        atom_ = groups_.back();
        groups_.pop_back();
        out_ += c;
        ++at_;
        return {};
      case '{':
        return interval();
      case '*':
      case '+':
      case '?':
      case '|':
      case '^':
      case '$':
        out_ += c;
        ++at_;
        return {};
      default:
        break;
    }
    const size_t length = utf8_length(c);
    atom(in_.substr(at_, length));
    at_ += length;
    return {};
  }

  Status open() {
    groups_.push_back(out_.size());
    constexpr std::string_view kSame[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    for (const std::string_view same : kSame) {
      if (!next_is(same)) continue;
      out_ += same;
      at_ += same.size();
      return {};
    }
    if (next_is("(?<")) return named();
    if (next_is("(?")) return options();
    if (next_is("(*")) return unsupported("'(*'");
    out_ += '(';
    ++at_;
    return {};
  }

  // "(?<name>": nothing refers to names here, so a plain group will do.
  Status named() {
    const size_t end = in_.find('>', at_);
    if (end == in_.npos) return unsupported("'(?<' without '>'");
    at_ = end + 1;
    out_ += '(';
    return {};
  }

  // "(?i:", and "(?i)" where it holds for the whole expression.
  Status options() {
    size_t end = at_ + 2;
    std::string letters;
    while (end < in_.size() && (in_[end] == 'i' || in_[end] == 'm' || in_[end] == '-')) {
      letters += in_[end] == 'm' ? 's' : in_[end];  // Ruby's m lets the dot match a newline
      ++end;
    }
    if (end == in_.size() || (in_[end] != ':' && in_[end] != ')') || letters.empty()) {
      return unsupported(in_.substr(at_, 4));
    }
    if (in_[end] == ')') {
      if (at_ != 0) return unsupported("options in the middle");
      groups_.pop_back();
    }
    out_ += "(?" + letters + in_[end];
    at_ = end + 1;
    return {};
  }

  // "{n}", "{n,}", "{,m}", "{n,m}"; anything else is a plain brace.
  Status interval() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < in_.size() && std::isdigit(static_cast<unsigned char>(in_[end])) != 0) ++end;
      return std::string(in_.substr(begin, end - begin));
    };
    const std::string least = digits();
    const bool comma = end < in_.size() && in_[end] == ',';
    if (comma) ++end;
    const std::string most = comma ? digits() : least;
    if (end == in_.size() || in_[end] != '}' || (least.empty() && most.empty())) {
      atom("\\{");
      ++at_;
      return {};
    }
    at_ = end + 1;
    const std::string text = "{" + (least.empty() ? "0" : least) + (comma ? "," + most : "") + "}";
    if (next_is("?") && !comma) return unsupported("'{n}?'");
    if (next_is("+")) {  // repeats the repetition; PCRE2 would read a possessive quantifier
      ++at_;
      out_.insert(atom_, "(?:");
      out_ += text + ")+";
    } else {
      out_ += text;
    }
    return {};
  }

  Status escape() {
    if (at_ + 1 == in_.size()) return unsupported("a backslash at its end");
    const char c = in_[at_ + 1];
    switch (c) {
      case 'b':
      case 'B': {
        at_ += 2;
        const std::string word = fmt::format("[{}]", kWord);
        out_ += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                         : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
        return {};
      }
      case 'A':
      case 'z':
      case 'Z':
        at_ += 2;
        out_ += std::string("\\") + c;
        return {};
      default:
        break;
    }
    if (c >= '1' && c <= '9') {
      if (at_ + 2 < in_.size() && std::isdigit(static_cast<unsigned char>(in_[at_ + 2])) != 0) {
        return unsupported("a reference of two digits");
      }
      atom(in_.substr(at_, 2));
      at_ += 2;
      return {};
    }
    Set set;
    AERIE_RETURN_IF_ERROR(escape_in_set(set));
    if (set.excluded) {
      atom(fmt::format("[^{}]", *set.excluded));
    } else {
      atom(fmt::format("[{}]", set.content));
    }
    return {};
  }

  // Characters: those of `content`, or those that are not of `excluded`.
  struct Set {
    std::string content;
    std::optional<std::string> excluded;
  };

  // An escape that stands for a character or several, the same inside and outside of a class.
  Status escape_in_set(Set& set) {
    const char c = in_[at_ + 1];
    at_ += 2;
    if (c == 'p' || c == 'P') return property(c == 'P', set.content);
    if (c == 'x' || c == 'u') return code(c, set.content);
    for (const Escape& escape : kEscapes) {
      if (c != escape.letter) continue;
      if (escape.excluded) set.excluded = escape.content;
      if (!escape.excluded) set.content = escape.content;
      return {};
    }
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      return unsupported(std::string("'\\") + c + "'");
    }
    const size_t length = utf8_length(c);
    set.content = length == 1 ? std::string("\\") + c : std::string(in_.substr(at_ - 1, length));
    at_ += length - 1;
    return {};
  }

  Status property(bool negated, std::string& content) {
    const size_t end = in_.find('}', at_);
    if (!next_is("{") || end == in_.npos) return unsupported("'\\p' without braces");
    std::string_view name = in_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool category = std::ranges::find(kCategories, name) != std::end(kCategories);
    const bool letters = name.size() > 2 && std::ranges::all_of(name, [](unsigned char c) {
                           return std::isalpha(c) != 0 || c == '_';
                         });
    if (!category && !letters) return unsupported(fmt::format("the property '{}'", name));
    static const bool kPrefix = has_script_prefix();
    content =
        fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', !category && kPrefix ? "sc:" : "", name);
    return {};
  }

  // "\x41", "\x{1F600}", "\u0041".
  Status code(char kind, std::string& content) {
    const bool braces = kind == 'x' && next_is("{");
    const size_t begin = at_ + (braces ? 1 : 0);
    const size_t most = braces ? 8 : kind == 'x' ? 2 : 4;
    size_t end = begin;
    uint32_t value = 0;
    while (end < in_.size() && end - begin < most &&
           std::isxdigit(static_cast<unsigned char>(in_[end])) != 0) {
      const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(in_[end])));
      value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
      ++end;
    }
    const bool closed = !braces || (end < in_.size() && in_[end] == '}');
    const bool whole = end > begin && (kind != 'u' || end - begin == 4);
    // "\xE9" is a byte to Oniguruma, not a character.
    const bool byte = kind == 'x' && !braces && value >= 0x80;
    if (!closed || !whole || byte || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return unsupported(std::string("a character code after '\\") + kind + "'");
    }
    at_ = end + (braces ? 1 : 0);
    content = fmt::format("\\x{{{:x}}}", value);
    return {};
  }

  Status character_class() {
    ++at_;
    const bool negated = next_is("^");
    if (negated) ++at_;
    std::string content;
    std::vector<std::string> excluded;  // sets of which the class has all other characters
    AERIE_RETURN_IF_ERROR(class_items(content, excluded));
    atom(class_text(negated, content, excluded));
    return {};
  }

  // Up to and with the closing bracket.
  Status class_items(std::string& content, std::vector<std::string>& excluded) {
    bool first = true;
    while (true) {
      if (at_ == in_.size()) return unsupported("'[' without ']'");
      if (in_[at_] == ']' && !first) break;
      first = false;
      AERIE_RETURN_IF_ERROR(class_item(content, excluded));
    }
    ++at_;
    return {};
  }

  Status class_item(std::string& content, std::vector<std::string>& excluded) {
    if (next_is("[:space:]")) {
      at_ += 9;
      content += kSpaces;
      return {};
    }
    if (next_is("[")) {  // a class inside a class adds its characters
      constexpr int kMostDepth = 16;
      ++at_;
      if (next_is("^") || next_is(":") || ++depth_ > kMostDepth) {
        return unsupported("'[' inside a class");
      }
      AERIE_RETURN_IF_ERROR(class_items(content, excluded));
      --depth_;
      return {};
    }
    if (next_is("&&")) return unsupported("'&&' inside a class");
    if (in_[at_] == '\\') {
      if (at_ + 1 == in_.size()) return unsupported("a backslash at its end");
      if (in_[at_ + 1] == 'b') {
        at_ += 2;
        content += "\\x08";
        return {};
      }
      Set set;
      AERIE_RETURN_IF_ERROR(escape_in_set(set));
      content += set.content;
      if (set.excluded) excluded.push_back(*set.excluded);
      return {};
    }
    if (in_[at_] == ']' || in_[at_] == '^') content += '\\';
    const size_t length = utf8_length(in_[at_]);
    content += in_.substr(at_, length);
    at_ += length;
    return {};
  }

  static std::string class_text(bool negated, const std::string& content,
                                const std::vector<std::string>& excluded) {
    if (excluded.empty()) return fmt::format("[{}{}]", negated ? "^" : "", content);
    std::string text = "(?:";
    if (negated) {
      if (!content.empty()) text += fmt::format("(?![{}])", content);
      for (size_t i = 0; i + 1 < excluded.size(); ++i) text += fmt::format("(?=[{}])", excluded[i]);
      text += fmt::format("[{}]", excluded.back());
    } else {
      if (!content.empty()) text += fmt::format("[{}]|", content);
      for (size_t i = 0; i < excluded.size(); ++i) {
        text += fmt::format("{}[^{}]", i == 0 ? "" : "|", excluded[i]);
      }
    }
    return text + ")";
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;  // where what a quantifier would repeat begins in out_
  std::vector<size_t> groups_;
  int depth_ = 0;  // of classes inside classes
};

}  // namespace

Expected<std::string> pcre2_from_onig(std::string_view expression) {
  // Searching for it would look at every run of spaces once for each of its spaces. A match begins
  // where its run begins.
  if (expression == "\\s+$") return pcre2_from_onig("(?<!\\s)\\s++$");
  return Translator(expression).run();
}

}  // namespace aerie
