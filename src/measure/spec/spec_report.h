// The report of a speculation benchmark: as tables, as JSON and as a page.
#pragma once

#include <string>

#include "measure/report_head.h"
#include "measure/spec/spec_bench.h"

namespace aerie::measure {

std::string to_text(const SpecReport& report);
std::string to_json(const SpecReport& report);
Json json_of(const SpecReport& report);  // the same before it is text
// One page with everything inside: tables, bars of speed-up and tokens per round, acceptance by
// depth, the time of passes, expected against measured tokens per round.
std::string to_html(const SpecReport& report);

}  // namespace aerie::measure
