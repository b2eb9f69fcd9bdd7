// A page that opens without a network: styles and drawings inside, no scripts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/svg_plot.h"
#include "bench/verify_bench.h"

namespace aerie::bench {

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

// Milliseconds of a pass by its rows, and what a pass must take at least. The points must be of one
// context.
LineChart pass_chart(const VerifyReport& passes);

}  // namespace aerie::bench
