// What all of bench/'s reports begin with, for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "measure/passes/machine.h"
#include "measure/statistics.h"

namespace aerie::measure {

using Json = nlohmann::ordered_json;

// "model", "threads", "isa", "processor", "date", "bandwidth" (GB/s), "peak" (GOP/s by the kind of
// dot product, of those that were measured) and "round_trip" (ns of a cache line; null if unknown);
// where the processor does not compute the model, "device", whose the bandwidth is, too.
// An empty model is left out.
Json head_json(const std::string& model, int threads, kernels::Isa isa, const Limits& limits);
// The same in two lines.
std::string head_text(const std::string& model, int threads, kernels::Isa isa,
                      const Limits& limits);

Json spread_json(const Spread& spread);  // "lowest", "first_quartile", ...

// Each figure's median.
Limits median_of(const std::vector<Limits>& limits);

}  // namespace aerie::measure
