// Times of passes as a drawing.
#pragma once

#include "measure/passes/verify_bench.h"
#include "report/svg_plot.h"

namespace aerie::measure {

// Milliseconds of a pass by its rows, and what a pass must take at least. The points must be of one
// context.
LineChart pass_chart(const VerifyReport& passes);

}  // namespace aerie::measure
