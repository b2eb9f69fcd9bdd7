#include "tools/flags/simple_yaml.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"

namespace aerie {
namespace {

struct Line {
  size_t number = 0;
  size_t indent = 0;
  std::string text;
};

Status wrong(const Line& line, std::string_view why) {
  return invalid_argument("line {}: {}", line.number, why);
}

// Without a comment and the spaces around.
std::string stripped(std::string text) {
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote != '\0') {
      if (text[i] == quote) quote = '\0';
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (text[i] == '#' && (i == 0 || text[i - 1] == ' ')) {
      text.resize(i);
    }
  }
  const size_t end = text.find_last_not_of(" \t\r");
  text.resize(end == std::string::npos ? 0 : end + 1);
  return text;
}

Json scalar(const std::string& text) {
  if (text == "~" || text == "null") return nullptr;
  if (text == "True") return true;
  if (text == "False") return false;
  if (text.size() > 1 && text.front() == '\'' && text.back() == '\'') {
    return text.substr(1, text.size() - 2);
  }
  // Numbers, true, false, texts in double quotes, lists and objects are as in JSON.
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

struct Reader {
  const std::vector<Line>& lines;
  size_t at = 0;

  bool goes_on(size_t indent) const { return at < lines.size() && lines[at].indent >= indent; }

  Expected<Json> list(size_t indent) {
    Json items = Json::array();
    for (; goes_on(indent) && lines[at].text.starts_with("- "); ++at) {
      items.push_back(scalar(lines[at].text.substr(2)));
    }
    return items;
  }

  Expected<Json> mapping(size_t indent, int depth) {
    constexpr int kDeepest = 16;
    Json object = Json::object();
    while (goes_on(indent)) {
      const Line& line = lines[at];
      const size_t colon = line.text.find(':');
      if (depth > kDeepest) return wrong(line, "too deep");
      if (line.indent != indent) return wrong(line, "it does not stand below the others");
      const bool pair = colon != std::string::npos &&
                        (colon + 1 == line.text.size() || line.text[colon + 1] == ' ');
      if (!pair || line.text.starts_with("- ")) return wrong(line, "give KEY: VALUE");
      const std::string key = line.text.substr(0, colon);
      if (object.contains(key)) return wrong(line, key + " is given twice");
      const size_t value = line.text.find_first_not_of(' ', colon + 1);
      ++at;
      if (value != std::string::npos) {
        if (std::string_view("|>&*!").find(line.text[value]) != std::string_view::npos) {
          return wrong(line, "give the value as it is, in this line");
        }
        object[key] = scalar(line.text.substr(value));
      } else if (goes_on(indent) && lines[at].text.starts_with("- ")) {
        AERIE_ASSIGN_OR_RETURN(object[key], list(lines[at].indent));
      } else if (goes_on(indent + 1)) {
        AERIE_ASSIGN_OR_RETURN(object[key], mapping(lines[at].indent, depth + 1));
      } else {
        object[key] = nullptr;
      }
    }
    return object;
  }
};

}  // namespace

Expected<Json> parse_simple_yaml(std::string_view text) {
  std::vector<Line> lines;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    Line line = {number, 0, stripped(std::string(text.substr(0, end)))};
    text.remove_prefix(std::min(text.size(), end + 1));
    line.indent = std::min(line.text.find_first_not_of(' '), line.text.size());
    line.text.erase(0, line.indent);
    if (line.text.starts_with('\t')) return wrong(line, "indent with spaces");
    if (!line.text.empty() && line.text != "---") lines.push_back(std::move(line));
  }
  Reader reader = {lines};
  AERIE_ASSIGN_OR_RETURN(Json object, reader.mapping(0, 0));
  if (reader.at < lines.size())
    return wrong(lines[reader.at], "it does not stand below the others");
  return object;
}

}  // namespace aerie
