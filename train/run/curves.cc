#include "train/run/curves.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "format/output_file.h"
#include "report/html_page.h"
#include "report/svg_plot.h"

namespace aerie::train {
namespace {

using Points = std::vector<std::pair<double, double>>;

// One figure over the steps, from the lines of steps or from those of evaluations.
Points points_of(const std::vector<Json>& lines, std::string_view name, bool evaluations) {
  Points points;
  for (const Json& line : lines) {
    const auto evaluation = line.find("evaluation");
    if ((evaluation != line.end()) != evaluations) continue;
    const Json& figures = evaluations ? *evaluation : line;
    const auto figure = figures.find(name);
    if (figure == figures.end() || !figure->is_number()) continue;
    points.emplace_back(line["step"].get<double>(), figure->get<double>());
  }
  return points;
}

void add_chart(HtmlPage& page, const std::string& title, const std::string& unit,
               std::vector<Line> lines) {
  std::erase_if(lines, [](const Line& line) { return line.points.empty(); });
  if (!lines.empty()) page.add_svg(to_svg(LineChart{title, "step", unit, lines}));
}

std::vector<Line> acceptance_lines(const std::vector<Json>& lines) {
  std::vector<Line> depths;
  for (const Json& line : lines) {
    const auto evaluation = line.find("evaluation");
    if (evaluation == line.end()) continue;
    // By depth, as it was measured; a method may have a figure of that name itself.
    const auto found = evaluation->find("acceptance");
    if (found == evaluation->end() || !found->is_array()) continue;
    const Json& shares = *found;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (depths.size() <= i) depths.push_back({fmt::format("token {}", i + 1), {}});
      depths[i].points.emplace_back(line["step"].get<double>(), shares[i].get<double>());
    }
  }
  return depths;
}

}  // namespace

Status write_curves(const std::string& path, const std::string& method,
                    const std::vector<Json>& lines) {
  HtmlPage page("Training of " + method);
  const auto figure = [&lines](const std::string& name, bool evaluations) {
    return Line{evaluations ? "held out" : "training", points_of(lines, name, evaluations)};
  };
  add_chart(page, "Tokens for each target pass", "τ", {{"τ", points_of(lines, "tau", true)}});
  add_chart(page, "Share of rounds that accept each drafted token", "share",
            acceptance_lines(lines));
  add_chart(page, "Loss", "loss", {figure("loss", false), figure("loss", true)});
  add_chart(page, "Norm of the gradient", "norm", {figure("gradient_norm", false)});
  add_chart(page, "Learning rate", "rate", {figure("rate", false)});
  return write_file(path, page.finish());
}

}  // namespace aerie::train
