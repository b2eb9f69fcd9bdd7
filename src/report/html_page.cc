#include "report/html_page.h"

#include <fmt/format.h>

#include "report/svg_plot.h"

namespace aerie {
namespace {

constexpr const char* kStyle =
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "svg{width:100%;height:auto;margin:1rem 0}"
    "div{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #8884}"
    "td:first-child,th:first-child{text-align:left}"
    "pre{overflow-x:auto;font-size:12px}";

}  // namespace

HtmlPage::HtmlPage(std::string_view title) : title_(escape_markup(title)) {
  body_ = fmt::format("<h1>{}</h1>\n", title_);
}

void HtmlPage::add_heading(std::string_view text) {
  body_ += fmt::format("<h2>{}</h2>\n", escape_markup(text));
}

void HtmlPage::add_text(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", escape_markup(text));
}

void HtmlPage::add_preformatted(std::string_view text) {
  body_ += fmt::format("<pre>{}</pre>\n", escape_markup(text));
}

void HtmlPage::add_svg(std::string_view svg) {
  body_ += svg;
}

void HtmlPage::add_table(const std::vector<std::vector<std::string>>& rows) {
  body_ += "<div><table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const char* cell = i == 0 ? "th" : "td";
    body_ += "<tr>";
    for (const std::string& text : rows[i]) {
      body_ += fmt::format("<{0}>{1}</{0}>", cell, escape_markup(text));
    }
    body_ += "</tr>\n";
  }
  body_ += "</table></div>\n";
}

std::string HtmlPage::finish() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      title_, kStyle, body_);
}

}  // namespace aerie
