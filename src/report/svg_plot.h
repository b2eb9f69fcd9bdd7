// Bars and lines as inline SVG, for pages that open without a network. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aerie {

// `text` as content or attribute of HTML and SVG.
std::string escape_markup(std::string_view text);

// Round numbers from at or below `low` to at or above `high`, about `wanted` of them, steps of 1, 2
// or 5 times a power of ten. Of a range that is empty or not finite: 0 and 1.
std::vector<double> axis_ticks(double low, double high, int wanted);

struct Bar {
  double value = 0;                                // below 0 or not finite: no bar
  std::optional<std::pair<double, double>> range;  // drawn as a whisker
};

struct BarGroup {
  std::string name;
  std::vector<Bar> bars;  // one for each series; missing ones are not drawn
};

struct BarChart {
  std::string title, unit;
  std::vector<std::string> series;
  std::vector<BarGroup> groups;
  std::optional<double> reference;  // a dashed line across
};

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; those not finite are left out
  bool dashed = false;
};

struct LineChart {
  std::string title, x_label, y_label;
  std::vector<Line> lines;
};

// One <svg> element each, with a legend where there is more than one series or line, and with
// tooltips that give the values. Axes begin at 0. Where there is nothing to draw, the element says
// so.
std::string to_svg(const BarChart& chart);
std::string to_svg(const LineChart& chart);

}  // namespace aerie
