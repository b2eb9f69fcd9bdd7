#include "jinja/builtins/html.h"

namespace aerie::jinja {

void write_escaped(TextBuilder& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out.add("&amp;");
        break;
      case '<':
        out.add("&lt;");
        break;
      case '>':
        out.add("&gt;");
        break;
      case '\'':
        out.add("&#39;");
        break;
      case '"':
        out.add("&#34;");
        break;
      default:
        out.add(c);
    }
  }
}

}  // namespace aerie::jinja
