#include "measure/report_head.h"

#include <fmt/format.h>

#include "base/processor.h"

namespace aerie::measure {
namespace {

std::string peaks_text(const Limits& limits) {
  std::string text;
  for (int d = 0; d < kernels::kDotCount; ++d) {
    const auto dot = static_cast<kernels::Dot>(d);
    if (limits.dot(dot) == 0.0) continue;
    text += fmt::format(", {} {:.0f} GOP/s", kernels::dot_name(dot), 1e-9 * limits.dot(dot));
  }
  return text;
}

}  // namespace

Json head_json(const std::string& model, int threads, kernels::Isa isa, const Limits& limits) {
  Json head;
  if (!model.empty()) head["model"] = model;
  head["threads"] = threads;
  head["isa"] = kernels::isa_name(isa);
  head["processor"] = processor_name();
  if (!limits.device.empty()) head["device"] = limits.device;
  head["date"] = utc_date();
  head["bandwidth"] = 1e-9 * limits.bandwidth;
  head["peak"] = Json::object();
  for (int d = 0; d < kernels::kDotCount; ++d) {
    const auto dot = static_cast<kernels::Dot>(d);
    if (limits.dot(dot) > 0.0) {
      head["peak"][std::string(kernels::dot_name(dot))] = 1e-9 * limits.dot(dot);
    }
  }
  const std::optional<double> round_trip = cache_line_round_trip();
  head["round_trip"] = round_trip ? Json(*round_trip) : Json();
  return head;
}

std::string head_text(const std::string& model, int threads, kernels::Isa isa,
                      const Limits& limits) {
  const std::string text =
      fmt::format("{}{}{} threads, {}, {}{}{}\n", model, model.empty() ? "" : ", ", threads,
                  kernels::isa_name(isa), processor_name(),
                  limits.device.empty() ? "" : "; computed by ", limits.device);
  return text + fmt::format("{} {:.1f} GB/s{}\n", limits.device.empty() ? "read" : "copied",
                            1e-9 * limits.bandwidth, peaks_text(limits));
}

Json spread_json(const Spread& spread) {
  return {{"lowest", spread.lowest},
          {"first_quartile", spread.first_quartile},
          {"third_quartile", spread.third_quartile},
          {"highest", spread.highest}};
}

Limits median_of(const std::vector<Limits>& limits) {
  const auto middle = [&](auto&& value) {
    std::vector<double> values;
    values.reserve(limits.size());
    for (const Limits& one : limits) values.push_back(value(one));
    return median(values);
  };
  Limits out;
  if (!limits.empty()) out.device = limits.front().device;
  out.bandwidth = middle([](const Limits& one) { return one.bandwidth; });
  for (size_t d = 0; d < out.dots.size(); ++d) {
    out.dots[d] = middle([d](const Limits& one) { return one.dots[d]; });
  }
  return out;
}

}  // namespace aerie::measure
