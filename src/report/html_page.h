// A page that opens without a network: styles and drawings inside, no scripts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// Text is escaped by it; drawings are taken as they are.
class HtmlPage {
 public:
  explicit HtmlPage(std::string_view title);

  void add_heading(std::string_view text);
  void add_text(std::string_view text);
  void add_preformatted(std::string_view text);
  void add_svg(std::string_view svg);
  // The first row is the head; the first column holds names, the others figures.
  void add_table(const std::vector<std::vector<std::string>>& rows);

  std::string finish() const;

 private:
  std::string title_;
  std::string body_;
};

}  // namespace aerie
