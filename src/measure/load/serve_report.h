// The report of a load on a server: as tables, as JSON and as a page.
#pragma once

#include <string>

#include "measure/load/serve_bench.h"

namespace aerie::measure {

std::string to_text(const ServeReport& report);
// Runs have the keys of `vllm bench serve`, and some more.
std::string to_json(const ServeReport& report);
// One page with everything inside.
std::string to_html(const ServeReport& report);

// Rows of the report's tables, the head first, for both of the above.
using Table = std::vector<std::vector<std::string>>;
Table throughput_table(const ServeReport& report);
Table latency_table(const ServeReport& report);
Table acceptance_table(const ServeReport& report);  // the head alone where nothing was drafted
Table comparison_table(const ServeReport& report);  // the head alone for one setting
// The best depth of each method by numbers of clients; the head alone without a sweep.
Table best_table(const ServeReport& report);
// What was run, in a few lines.
std::string head_of(const ServeReport& report);

}  // namespace aerie::measure
