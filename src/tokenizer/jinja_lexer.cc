#include "tokenizer/jinja_lexer.h"

#include <fmt/format.h>

#include <utility>

namespace aerie {
namespace {

// A word of a tag or output. Strings are kept apart since only they can be joined.
struct Word {
  bool is_string;
  std::string text;  // a string's value
};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\v' || c == '\f';
}
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Jinja reads every kind of line end as \n and drops one at the end of the template.
std::string normal_lines(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string spell(const Word& word) {
  if (!word.is_string) return word.text;
  std::string text = "'";
  for (const char c : word.text) {
    if (c == '\'' || c == '\\') text += '\\';
    text += c;
  }
  return text + "'";
}

std::string spell(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) {
    if (!text.empty()) text += ' ';
    text += spell(word);
  }
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normal_lines(source)) {}

  Expected<std::vector<JinjaStep>> run() {
    while (at_ < source_.size()) {
      const size_t open = find_open();
      const char kind = open == npos ? '\0' : source_[open + 1];
      add_text(data_before(open, kind));
      if (open == npos) break;
      at_ = open + 2;
      if (kind == '#') {
        AERIE_RETURN_IF_ERROR(skip_comment());
      } else {
        if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
        AERIE_RETURN_IF_ERROR(read_block(kind));
      }
    }
    return std::move(steps_);
  }

 private:
  static constexpr size_t npos = std::string::npos;

  size_t find_open() const {
    for (size_t i = source_.find('{', at_); i != npos; i = source_.find('{', i + 1)) {
      if (i + 1 == source_.size()) break;
      const char next = source_[i + 1];
      if (next == '%' || next == '{' || next == '#') return i;
    }
    return npos;
  }

  // What stands before the block that opens at `open`, less what the block strips off its end.
  std::string_view data_before(size_t open, char kind) {
    std::string_view data = std::string_view(source_).substr(at_, open == npos ? npos : open - at_);
    if (strip_left_) {
      while (!data.empty() && is_space(data.front())) data.remove_prefix(1);
    }
    if (open == npos) return data;
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    if (sign == '-') {
      while (!data.empty() && is_space(data.back())) data.remove_suffix(1);
    } else if (sign != '+' && kind != '{') {
      size_t line = data.size();
      while (line > 0 && is_space(data[line - 1]) && data[line - 1] != '\n') --line;
      const bool whole_line = line > 0 ? data[line - 1] == '\n' : begins_line(open, data.size());
      if (whole_line) data.remove_suffix(data.size() - line);
    }
    return data;
  }

  // Whether a line begins `length` bytes before `open`.
  bool begins_line(size_t open, size_t length) const {
    return open == length || source_[open - length - 1] == '\n';
  }

  void add_text(std::string_view text) {
    if (text.empty()) return;
    if (steps_.empty() || steps_.back().kind != JinjaStep::Kind::kText) {
      steps_.push_back({JinjaStep::Kind::kText, ""});
    }
    steps_.back().text += text;
  }

  // Past the end of a tag, output or comment whose closing brace is at `brace`; `sign` before it.
  void close(size_t brace, char sign, bool trims_newline) {
    at_ = brace + 1;
    strip_left_ = sign == '-';
    if (trims_newline && sign == '\0' && at_ < source_.size() && source_[at_] == '\n') ++at_;
  }

  Status skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == npos) return unfinished("comment");
    const char before = end > at_ ? source_[end - 1] : '\0';
    close(end + 1, before == '-' || before == '+' ? before : '\0', true);
    return {};
  }

  Status read_block(char kind) {
    const char first = kind == '%' ? '%' : '}';
    std::vector<Word> words;
    while (true) {
      while (at_ < source_.size() && is_space(source_[at_])) ++at_;
      const std::string_view rest = std::string_view(source_).substr(at_);
      if (rest.empty()) return unfinished("tag");
      const size_t sign = rest[0] == '-' || (rest[0] == '+' && kind == '%') ? 1 : 0;
      if (rest.size() > sign + 1 && rest[sign] == first && rest[sign + 1] == '}') {
        close(at_ + sign + 1, sign == 1 ? rest[0] : '\0', kind == '%');
        break;
      }
      AERIE_RETURN_IF_ERROR(read_word(rest, words));
    }
    if (kind == '%') {
      steps_.push_back({JinjaStep::Kind::kTag, spell(words)});
    } else {
      add_output(words);
    }
    return {};
  }

  Status read_word(std::string_view rest, std::vector<Word>& words) {
    if (rest[0] == '\'' || rest[0] == '"') return read_string(rest[0], words);
    size_t length = 1;
    if (is_name(rest[0])) {
      while (length < rest.size() && is_name(rest[length])) ++length;
    } else if (rest.size() > 1 && rest[1] == '=' &&
               std::string_view("=!<>").find(rest[0]) != npos) {
      length = 2;
    }
    at_ += length;
    std::string text(rest.substr(0, length));
    const bool attribute = !words.empty() && !words.back().is_string && words.back().text == "." &&
                           words.size() > 1 && is_name(text[0]);
    if (attribute) {
      words.pop_back();
      words.push_back({false, "["});
      words.push_back({true, std::move(text)});
      words.push_back({false, "]"});
    } else {
      words.push_back({false, std::move(text)});
    }
    return {};
  }

  Status read_string(char quote, std::vector<Word>& words) {
    std::string value;
    for (++at_; at_ < source_.size() && source_[at_] != quote; ++at_) {
      if (source_[at_] != '\\') {
        value += source_[at_];
        continue;
      }
      const char escaped = ++at_ < source_.size() ? source_[at_] : '\0';
      switch (escaped) {
        case 'n':
          value += '\n';
          break;
        case 't':
          value += '\t';
          break;
        case 'r':
          value += '\r';
          break;
        case '\\':
        case '\'':
        case '"':
          value += escaped;
          break;
        default:
          return {StatusCode::kUnsupported,
                  fmt::format("an escape in a string of the template, at byte {}", at_)};
      }
    }
    if (at_ >= source_.size()) return unfinished("string");
    ++at_;
    words.push_back({true, std::move(value)});
    return {};
  }

  // a + b + c is three outputs. A summand that is no lone string stays an expression as it stands.
  void add_output(const std::vector<Word>& words) {
    std::vector<Word> summand;
    int depth = 0;
    const auto flush = [&] {
      if (summand.size() == 1 && summand[0].is_string) {
        add_text(summand[0].text);
      } else {
        steps_.push_back({JinjaStep::Kind::kOutput, spell(summand)});
      }
      summand.clear();
    };
    for (const Word& word : words) {
      const char c = word.is_string || word.text.size() != 1 ? '\0' : word.text[0];
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      if (c == '+' && depth == 0) {
        flush();
      } else {
        summand.push_back(word);
      }
    }
    flush();
  }

  Status unfinished(const char* what) const {
    return {StatusCode::kInvalidData, fmt::format("a {} of the template does not end", what)};
  }

  std::string source_;
  size_t at_ = 0;
  bool strip_left_ = false;
  std::vector<JinjaStep> steps_;
};

}  // namespace

Expected<std::vector<JinjaStep>> lex_jinja(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace aerie
