#include "report/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace aerie {
namespace {

constexpr double kWidth = 860, kLeft = 90, kRight = 16, kTop = 40, kPlot = 240;
constexpr double kLegendRow = 20, kBelow = 116;
constexpr size_t kHead = 12, kTail = 14;  // bytes that stay of a long name under an axis
constexpr int kTicks = 6;

// Okabe and Ito's colours, which people who confuse red and green can tell apart.
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                                 "#56b4e9", "#d55e00", "#7f7f7f"};

const char* colour(size_t series) {
  return kColours[series % kColours.size()];
}

bool drawable(double value) {
  return std::isfinite(value) && value >= 0.0;
}

// Values from 0 to `top` onto the plot's height.
struct Vertical {
  double top = 1.0;
  double at(double value) const { return kTop + kPlot * (1.0 - std::clamp(value / top, 0.0, 1.0)); }
};

std::string text_at(double x, double y, const char* anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escape_markup(text));
}

std::string segment(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
}

std::string frame(std::string_view title, double height, const std::string& inner) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"currentColor\">\n"
      "<text x=\"{:.0f}\" y=\"20\" font-size=\"15\" font-weight=\"bold\">{}</text>\n{}</svg>\n",
      kWidth, height, kLeft, escape_markup(title), inner);
}

std::string nothing(std::string_view title) {
  return frame(title, kTop + 30, text_at(kLeft, kTop + 10, "start", "nothing to show"));
}

// Its beginning and its end; cut between characters. Names of methods differ at their ends.
std::string shortened(const std::string& name) {
  if (name.size() <= kHead + kTail + 1) return name;
  const auto inside = [&](size_t at) {
    return (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80;
  };
  size_t head = kHead, tail = name.size() - kTail;
  while (head > 0 && inside(head)) --head;
  while (tail < name.size() && inside(tail)) ++tail;
  return name.substr(0, head) + "…" + name.substr(tail);
}

std::string vertical_axis(const Vertical& vertical, std::string_view label) {
  std::string out;
  for (const double tick : axis_ticks(0.0, vertical.top, kTicks)) {
    const double y = vertical.at(tick);
    out += segment(kLeft, y, kWidth - kRight, y, "stroke=\"currentColor\" stroke-opacity=\"0.15\"");
    out += text_at(kLeft - 6, y + 4, "end", fmt::format("{:g}", tick));
  }
  out += fmt::format(
      "<text transform=\"translate(30 {:.0f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      kTop + kPlot / 2, escape_markup(label));
  return out;
}

// Its height is that of legend_height().
std::string legend(const std::vector<std::string>& names, double y) {
  std::string out;
  if (names.size() < 2) return out;
  for (size_t i = 0; i < names.size(); ++i) {
    const double row = y + kLegendRow * static_cast<double>(i);
    out += fmt::format("<rect x=\"{:.0f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                       kLeft, row - 10, colour(i));
    out += text_at(kLeft + 18, row, "start", names[i]);
  }
  return out;
}

double legend_height(size_t names) {
  return names < 2 ? 0.0 : kLegendRow * static_cast<double>(names);
}

double highest(const BarChart& chart) {
  double top = chart.reference.value_or(0.0);
  for (const BarGroup& group : chart.groups) {
    for (const Bar& bar : group.bars) {
      if (!drawable(bar.value)) continue;
      top = std::max(top, bar.value);
      if (bar.range && drawable(bar.range->second)) top = std::max(top, bar.range->second);
    }
  }
  return top;
}

std::string whisker(const std::pair<double, double>& range, double x, const Vertical& vertical) {
  if (!drawable(range.first) || !drawable(range.second)) return "";
  const double low = vertical.at(range.first), high = vertical.at(range.second);
  const char* style = "stroke=\"currentColor\"";
  return segment(x, low, x, high, style) + segment(x - 3, low, x + 3, low, style) +
         segment(x - 3, high, x + 3, high, style);
}

std::string bars_of(const BarChart& chart, const BarGroup& group, double x, double width,
                    const Vertical& vertical) {
  std::string out;
  const size_t count = std::min(group.bars.size(), chart.series.size());
  for (size_t i = 0; i < count; ++i) {
    const Bar& bar = group.bars[i];
    if (!drawable(bar.value)) continue;
    const double left = x + width * static_cast<double>(i), y = vertical.at(bar.value);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\">"
        "<title>{}, {}: {:.3g}</title></rect>\n",
        left, y, width * 0.9, kTop + kPlot - y, colour(i), escape_markup(group.name),
        escape_markup(chart.series[i]), bar.value);
    if (bar.range) out += whisker(*bar.range, left + width * 0.45, vertical);
  }
  return out;
}

bool finite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && drawable(point.second);
}

struct Extent {
  double low = 0, high = 0, top = 0;
  bool any = false;
};

Extent extent_of(const LineChart& chart) {
  Extent e;
  for (const Line& line : chart.lines) {
    for (const auto& point : line.points) {
      if (!finite(point)) continue;
      e.low = e.any ? std::min(e.low, point.first) : point.first;
      e.high = e.any ? std::max(e.high, point.first) : point.first;
      e.top = std::max(e.top, point.second);
      e.any = true;
    }
  }
  e.low = std::min(e.low, 0.0);
  return e;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> axis_ticks(double low, double high, int wanted) {
  if (!std::isfinite(high - low) || high <= low || wanted < 1) return {0.0, 1.0};
  const double rough = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10.0 * power;
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough) {
      step = times * power;
      break;
    }
  }
  // A little above would be a whole step more only for the rounding of high / step.
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  const int steps = std::max(1, static_cast<int>(last - first));
  std::vector<double> ticks;
  for (int i = 0; i <= steps; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

std::string to_svg(const BarChart& chart) {
  const double top = highest(chart);
  if (top <= 0.0 || chart.groups.empty() || chart.series.empty()) return nothing(chart.title);
  const Vertical vertical{axis_ticks(0.0, top, kTicks).back()};
  std::string inner = vertical_axis(vertical, chart.unit);
  const double group_width = (kWidth - kLeft - kRight) / static_cast<double>(chart.groups.size());
  const double width =
      std::min(0.85 * group_width / static_cast<double>(chart.series.size()), 60.0);
  const double bars = width * static_cast<double>(chart.series.size());
  for (size_t g = 0; g < chart.groups.size(); ++g) {
    const double middle = kLeft + group_width * (static_cast<double>(g) + 0.5);
    inner += bars_of(chart, chart.groups[g], middle - bars / 2, width, vertical);
    // Slanted: the names are longer than the groups are wide.
    inner += fmt::format(
        "<text transform=\"translate({:.1f} {:.1f}) rotate(-30)\" text-anchor=\"end\">{}</text>\n",
        middle + 10, kTop + kPlot + 18, escape_markup(shortened(chart.groups[g].name)));
  }
  if (chart.reference && drawable(*chart.reference)) {
    const double y = vertical.at(*chart.reference);
    inner +=
        segment(kLeft, y, kWidth - kRight, y, "stroke=\"currentColor\" stroke-dasharray=\"5 4\"");
  }
  const double below = kTop + kPlot + kBelow;
  inner += legend(chart.series, below);
  return frame(chart.title, below + legend_height(chart.series.size()), inner);
}

std::string to_svg(const LineChart& chart) {
  const Extent extent = extent_of(chart);
  if (!extent.any || extent.top <= 0.0) return nothing(chart.title);
  const Vertical vertical{axis_ticks(0.0, extent.top, kTicks).back()};
  const std::vector<double> ticks = axis_ticks(extent.low, extent.high, 10);
  const double span = ticks.back() - ticks.front();
  const auto x_of = [&](double x) {
    return kLeft + (kWidth - kLeft - kRight) * (x - ticks.front()) / span;
  };
  std::string inner = vertical_axis(vertical, chart.y_label);
  for (const double tick : ticks) {
    inner += text_at(x_of(tick), kTop + kPlot + 16, "middle", fmt::format("{:g}", tick));
  }
  inner += text_at((kLeft + kWidth - kRight) / 2, kTop + kPlot + 36, "middle", chart.x_label);
  std::vector<std::string> names;
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const Line& line = chart.lines[i];
    names.push_back(line.name);
    std::string path, dots;
    for (const auto& point : line.points) {
      if (!finite(point)) continue;
      const double x = x_of(point.first), y = vertical.at(point.second);
      path += fmt::format("{:.1f},{:.1f} ", x, y);
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\">"
          "<title>{}: {:g}, {:.3g}</title></circle>\n",
          x, y, colour(i), escape_markup(line.name), point.first, point.second);
    }
    inner +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n",
                    path, colour(i), line.dashed ? " stroke-dasharray=\"6 4\"" : "");
    inner += dots;
  }
  const double below = kTop + kPlot + 64;
  inner += legend(names, below);
  return frame(chart.title, below + legend_height(names.size()), inner);
}

}  // namespace aerie
