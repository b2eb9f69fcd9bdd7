#include "measure/passes/pass_chart.h"

namespace aerie::measure {

LineChart pass_chart(const VerifyReport& passes) {
  LineChart chart{"Time of a pass, t(M)",
                  "rows M: the newest token and the drafted ones",
                  "ms",
                  {{"measured, median", {}, false}, {"floor of the machine", {}, true}}};
  for (const VerifyPoint& p : passes.points) {
    chart.lines[0].points.emplace_back(p.rows, p.median_ms);
    chart.lines[1].points.emplace_back(p.rows, p.floor_ms);
  }
  return chart;
}

}  // namespace aerie::measure
