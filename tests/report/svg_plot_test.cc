#include "report/svg_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "tests/report/markup.h"

namespace aerie::measure::svg_plot_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

int count_of(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// Of all bars, the legend's squares left out.
std::vector<double> bar_heights(const std::string& svg) {
  std::vector<double> heights;
  const std::regex bar("<rect [^>]*height=\"([0-9.]+)\"[^>]*><title>");
  for (std::sregex_iterator i(svg.begin(), svg.end(), bar), end; i != end; ++i) {
    heights.push_back(std::stod((*i)[1]));
  }
  return heights;
}

BarChart two_by_two() {
  BarChart chart;
  chart.title = "Title";
  chart.unit = "times";
  chart.series = {"one", "two"};
  chart.groups = {{"first", {{1.0, std::nullopt}, {2.0, std::pair(1.5, 2.5)}}},
                  {"second", {{0.5, std::nullopt}, {4.0, std::nullopt}}}};
  return chart;
}

TEST(SvgPlot, EscapesMarkup) {
  EXPECT_EQ(escape_markup("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(escape_markup("τ ≥ 1"), "τ ≥ 1");
}

TEST(SvgPlot, TicksAreRound) {
  EXPECT_THAT(axis_ticks(0.0, 10.0, 5), ElementsAre(0.0, 2.0, 4.0, 6.0, 8.0, 10.0));
  EXPECT_THAT(axis_ticks(0.0, 0.9, 3), ElementsAre(0.0, 0.5, 1.0));
  EXPECT_THAT(axis_ticks(0.0, 7.3, 2), ElementsAre(0.0, 5.0, 10.0));
  EXPECT_THAT(axis_ticks(-3.0, 5.0, 4), ElementsAre(-4.0, -2.0, 0.0, 2.0, 4.0, 6.0));
}

TEST(SvgPlot, TicksOfNoRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [low, high] : {std::pair(1.0, 1.0), std::pair(0.0, infinity),
                                  std::pair(0.0, std::nan("")), std::pair(-1e308, 1e308)}) {
    EXPECT_THAT(axis_ticks(low, high, 5), ElementsAre(0.0, 1.0));
  }
  EXPECT_LT(axis_ticks(1e20, 1e20 + 1e6, 5).size(), 20u);
  EXPECT_LT(axis_ticks(0.0, 1e-300, 5).size(), 20u);
}

TEST(SvgPlot, BarsAreAsHighAsTheirValues) {
  const std::string svg = to_svg(two_by_two());
  expect_balanced(svg);
  const std::vector<double> heights = bar_heights(svg);
  ASSERT_EQ(heights.size(), 4u);
  EXPECT_NEAR(heights[1], 2 * heights[0], 0.2);
  EXPECT_NEAR(heights[2], heights[0] / 2, 0.2);
  EXPECT_NEAR(heights[3], 4 * heights[0], 0.2);
  EXPECT_THAT(svg, HasSubstr("<title>second, two: 4</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("stroke-dasharray")));
}

TEST(SvgPlot, ReferenceAndWhiskers) {
  BarChart chart = two_by_two();
  const int lines = count_of(to_svg(chart), "<line ");
  chart.groups[0].bars[1].range.reset();
  EXPECT_EQ(count_of(to_svg(chart), "<line "), lines - 3);
  chart.reference = 1.0;
  EXPECT_THAT(to_svg(chart), HasSubstr("stroke-dasharray"));
  // A whisker that is higher than all bars makes the axis longer.
  const double before = bar_heights(to_svg(chart))[0];
  chart.groups[0].bars[0].range = {0.0, 40.0};
  EXPECT_LT(bar_heights(to_svg(chart))[0], before / 5);
}

TEST(SvgPlot, NamesAreEscapedAndLongOnesCut) {
  BarChart chart = two_by_two();
  chart.title = "<script>";
  chart.series[0] = "a & b";
  chart.groups[0].name = "ngram:prompt_lookup_max=4,num_speculative_tokens=8";
  chart.groups[1].name = "ééééééééééééééééééééééééé";
  const std::string svg = to_svg(chart);
  expect_balanced(svg);
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(svg, HasSubstr("a &amp; b"));
  EXPECT_THAT(svg, HasSubstr(">ngram:prompt…ative_tokens=8<"));
  EXPECT_THAT(svg, HasSubstr(">éééééé…ééééééé<"));
  EXPECT_THAT(svg, HasSubstr("num_speculative_tokens=8, two"));  // whole in the tooltip
}

TEST(SvgPlot, WhatIsNoNumberIsNotDrawn) {
  BarChart chart = two_by_two();
  chart.groups[0].bars[0].value = std::nan("");
  chart.groups[0].bars[1].value = -1.0;
  chart.groups[1].bars[1].range = {std::nan(""), std::numeric_limits<double>::infinity()};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(bar_heights(svg).size(), 2u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  LineChart lines{"Lines", "x", "y", {{"one", {{1, 1}, {std::nan(""), 2}, {3, 3}}, false}}};
  EXPECT_EQ(count_of(to_svg(lines), "<circle"), 2);
  EXPECT_THAT(to_svg(lines), Not(HasSubstr("nan")));
}

TEST(SvgPlot, NothingToDraw) {
  for (const std::string& svg : {to_svg(BarChart{}), to_svg(LineChart{}),
                                 to_svg(BarChart{"T", "u", {"s"}, {{"g", {{0.0, {}}}}}, {}})}) {
    expect_balanced(svg);
    EXPECT_THAT(svg, HasSubstr("nothing to show"));
  }
}

TEST(SvgPlot, Lines) {
  LineChart chart{
      "Lines",
      "rows",
      "ms",
      {{"measured", {{1, 2}, {2, 4}, {8, 8}}, false}, {"floor", {{1, 1}, {8, 1}}, true}}};
  const std::string svg = to_svg(chart);
  expect_balanced(svg);
  EXPECT_EQ(count_of(svg, "<polyline "), 2);
  EXPECT_EQ(count_of(svg, "stroke-dasharray"), 1);
  EXPECT_EQ(count_of(svg, "<circle "), 5);
  EXPECT_THAT(svg, HasSubstr("<title>measured: 2, 4</title>"));
  EXPECT_THAT(svg, HasSubstr(">rows</text>"));
  EXPECT_THAT(svg, HasSubstr(">ms</text>"));
  // Higher values are higher up.
  const std::regex dot("cy=\"([0-9.]+)\"");
  std::vector<double> ys;
  for (std::sregex_iterator i(svg.begin(), svg.end(), dot), end; i != end; ++i) {
    ys.push_back(std::stod((*i)[1]));
  }
  EXPECT_GT(ys[0], ys[1]);
  EXPECT_NEAR(ys[0] - ys[1], (ys[1] - ys[2]) / 2, 0.2);
  EXPECT_EQ(ys[3], ys[4]);
}

}  // namespace aerie::measure::svg_plot_test
