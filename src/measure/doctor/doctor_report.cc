#include "measure/doctor/doctor_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "format/text.h"
#include "measure/report_head.h"

namespace aerie::measure {
namespace {

std::string size_text(int64_t bytes) {
  if (bytes < 0) return "unknown";
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1024 ? fmt::format("{:.1f} MiB", mebibytes)
                          : fmt::format("{:.1f} GiB", mebibytes / 1024);
}

std::string sizes_text(int64_t weights, int64_t cache, int64_t work) {
  return fmt::format("{}: {} of weights, {} of cache{}", size_text(weights + cache + work),
                     size_text(weights), size_text(cache),
                     work > 0 ? fmt::format(", {} to work in", size_text(work)) : "");
}

void add_line(std::string& text, std::string_view what, const std::string& value) {
  text += fmt::format("{:<14} {}\n", what, value);
}

std::string limits_line(const Limits& limits) {
  std::string text = fmt::format("{:.1f} GB/s read", 1e-9 * limits.bandwidth);
  for (int d = 0; d < kernels::kDotCount; ++d) {
    const auto dot = static_cast<kernels::Dot>(d);
    if (limits.dot(dot) == 0.0) continue;
    text += fmt::format(", {} {:.0f} GOP/s", kernels::dot_name(dot), 1e-9 * limits.dot(dot));
  }
  return text;
}

std::string processors_text(const Topology& t) {
  std::string text =
      fmt::format("{} on, {} usable, {}; {} cores", t.processors, t.usable,
                  t.quota > 0 ? fmt::format("time of {:.2f}", t.quota) : "no quota", t.cores);
  if (t.performance_cores < t.cores)
    text += fmt::format(", {} for performance", t.performance_cores);
  if (!t.l3_cores.empty()) {
    text += fmt::format("; cores that share an L3: {}", fmt::join(t.l3_cores, ", "));
  }
  if (t.nodes.size() > 1) text += fmt::format("; {} memory nodes", t.nodes.size());
  return text;
}

std::string machine_text(const MachineFacts& m) {
  std::string text;
  add_line(text, "Processor:", printable(m.processor));
  std::string instructions =
      fmt::format("{} (in this build: {})", kernels::isa_name(m.isa), fmt::join(m.built, ", "));
  if (const auto unused = unused_features(m); !unused.empty()) {
    instructions += fmt::format("; there, and not used: {}", fmt::join(unused, ", "));
  }
  add_line(text, "Instructions:", instructions);
  add_line(text, "Processors:", processors_text(m.topology));
  add_line(text, "Threads:", fmt::format("{}: {}", m.threads, m.threads_reason));
  add_line(text, "Memory:",
           fmt::format("{}, {} available{}; {}", size_text(m.memory), size_text(m.available),
                       m.group_memory < 0
                           ? ", no limit of a container"
                           : fmt::format(", {} left by the container", size_text(m.group_memory)),
                       m.swap > 0 ? fmt::format("{} of {} of swap space free",
                                                size_text(m.free_swap), size_text(m.swap))
                                  : "no swap space"));
  add_line(text, "Huge pages:", m.huge_pages.empty() ? "none" : m.huge_pages);
  for (const DeviceFacts& device : m.devices) {
    add_line(text, "Device:",
             fmt::format("{}: {}, capability {}, {} processors, {} of {} free", device.name,
                         printable(device.make), device.capability, device.processors,
                         size_text(device.free), size_text(device.memory)));
  }
  if (!m.no_devices.empty()) add_line(text, "Devices:", "none: " + printable(m.no_devices, 4096));
  for (const Folder& folder : m.folders) {
    add_line(text, "Folder:",
             fmt::format("{}, of {}: {} free", printable(folder.path, 4096), folder.what,
                         size_text(folder.free)));
  }
  return text;
}

std::string model_text(const Diagnosis& d) {
  const ModelFacts& m = *d.model;
  std::string text = "\n";
  add_line(text, "Model:", printable(m.path, 4096));
  add_line(text, "",
           fmt::format("{}, {:.0f} million parameters, {}, {}; context {} of {}", m.family,
                       1e-6 * static_cast<double>(m.parameters), m.type, size_text(m.file_bytes),
                       m.context, m.trained_context));
  add_line(
      text, "It takes:",
      fmt::format(
          "{}{}", sizes_text(m.weight_bytes, m.cache_bytes, m.work_bytes),
          m.drafters.empty() ? "" : fmt::format("; with its drafters {}", size_text(m.bytes()))));
  if (!d.machine.devices.empty()) {
    add_line(text, "On a device:",
             m.device_status.ok()
                 ? sizes_text(m.device_weight_bytes, m.device_cache_bytes, m.device_work_bytes)
                 : printable(m.device_status.message(), 4096));
  }
  for (const DrafterFacts& drafter : m.drafters) {
    add_line(
        text, "Drafter:",
        fmt::format("{}, {}: {}", drafter.method, printable(drafter.name, 4096),
                    sizes_text(drafter.weight_bytes, drafter.cache_bytes, drafter.work_bytes)));
  }
  for (const ExpectedPass& pass : d.passes) {
    std::string value = fmt::format("{:.2f} ms", 1e3 * pass.seconds);
    if (pass.rows == 1) {
      value += fmt::format(": {:.1f} tokens/s of plain decoding at most", 1.0 / pass.seconds);
    } else {
      value += fmt::format(": {:.2f} times one row", pass.seconds / d.passes.front().seconds);
    }
    add_line(text, pass.rows == 1 ? "1 row:" : fmt::format("{} rows:", pass.rows),
             value + (pass.by_memory ? ", bound by memory" : ", bound by multiplying"));
  }
  return text;
}

Json machine_json(const MachineFacts& m) {
  const auto size = [](int64_t bytes) { return bytes < 0 ? Json() : Json(bytes); };
  Json out = {{"processor", m.processor},
              {"isa", kernels::isa_name(m.isa)},
              {"built_isas", m.built},
              {"unused_features", unused_features(m)},
              {"processors", m.topology.processors},
              {"usable_processors", m.topology.usable},
              {"cores", m.topology.cores},
              {"performance_cores", m.topology.performance_cores},
              {"l3_cores", m.topology.l3_cores},
              {"memory_nodes", m.topology.nodes.size()},
              {"quota", m.topology.quota > 0 ? Json(m.topology.quota) : Json()},
              {"threads", m.threads},
              {"threads_reason", m.threads_reason},
              {"huge_pages", m.huge_pages},
              {"memory", size(m.memory)},
              {"free_memory", size(m.free_memory)},
              {"container_memory", size(m.group_memory)},
              {"available_memory", size(m.available)},
              {"swap", size(m.swap)},
              {"free_swap", size(m.free_swap)}};
  out["devices"] = Json::array();
  for (const DeviceFacts& device : m.devices) {
    out["devices"].push_back({{"device", device.name},
                              {"name", device.make},
                              {"capability", device.capability},
                              {"processors", device.processors},
                              {"memory", device.memory},
                              {"free_memory", device.free}});
  }
  out["no_devices"] = m.no_devices.empty() ? Json() : Json(m.no_devices);
  out["folders"] = Json::array();
  for (const Folder& folder : m.folders) {
    out["folders"].push_back(
        {{"of", folder.what}, {"path", folder.path}, {"free", size(folder.free)}});
  }
  return out;
}

Json limits_json(const Limits& limits) {
  Json out = {{"bandwidth", 1e-9 * limits.bandwidth}, {"peak", Json::object()}};
  for (int d = 0; d < kernels::kDotCount; ++d) {
    const auto dot = static_cast<kernels::Dot>(d);
    if (limits.dot(dot) == 0.0) continue;
    out["peak"][std::string(kernels::dot_name(dot))] = 1e-9 * limits.dot(dot);
  }
  return out;
}

// What it would take of a device's memory, or why none computes it.
Json device_json(const ModelFacts& m) {
  if (!m.device_status.ok()) return {{"unsupported", m.device_status.message()}};
  return {{"weight_bytes", m.device_weight_bytes},
          {"cache_bytes", m.device_cache_bytes},
          {"work_bytes", m.device_work_bytes}};
}

Json model_json(const Diagnosis& d) {
  const ModelFacts& m = *d.model;
  Json out = {{"path", m.path},
              {"family", m.family},
              {"type", m.type},
              {"parameters", m.parameters},
              {"file_bytes", m.file_bytes},
              {"context", m.context},
              {"trained_context", m.trained_context},
              {"weight_bytes", m.weight_bytes},
              {"cache_bytes", m.cache_bytes},
              {"work_bytes", m.work_bytes},
              {"device", device_json(m)},
              {"drafters", Json::array()},
              {"bytes", m.bytes()}};
  for (const DrafterFacts& drafter : m.drafters) {
    out["drafters"].push_back({{"method", drafter.method},
                               {"model", drafter.name},
                               {"weight_bytes", drafter.weight_bytes},
                               {"cache_bytes", drafter.cache_bytes},
                               {"work_bytes", drafter.work_bytes}});
  }
  if (d.passes.empty()) return out;
  out["tokens_per_second"] = 1.0 / d.passes.front().seconds;
  out["pass_context"] = d.pass_context;
  out["passes"] = Json::array();
  for (const ExpectedPass& pass : d.passes) {
    out["passes"].push_back({{"rows", pass.rows},
                             {"floor_ms", 1e3 * pass.seconds},
                             {"bound", pass.by_memory ? "memory" : "multiplying"}});
  }
  return out;
}

}  // namespace

std::string to_text(const Diagnosis& d, const std::vector<Version>& versions) {
  std::vector<std::string> words;
  for (const Version& one : versions) words.push_back(one.name + " " + one.version);
  std::string text;
  add_line(text, "Versions:", fmt::format("{}", fmt::join(words, ", ")));
  text += machine_text(d.machine);
  if (d.limits) add_line(text, "Measured:", limits_line(*d.limits));
  if (d.model) text += model_text(d);
  text += "\nFindings:\n";
  for (const Finding& finding : d.findings) {
    text += fmt::format("{:<8} {}: {}", severity_name(finding.severity),
                        printable(finding.what, 4096), finding.why);
    if (!finding.advice.empty()) text += "; " + finding.advice;
    text += "\n";
  }
  return text;
}

std::string to_json(const Diagnosis& d, const std::vector<Version>& versions) {
  Json out;
  out["can_run"] = d.can_run();
  out["versions"] = Json::object();
  for (const Version& one : versions) out["versions"][one.name] = one.version;
  out["machine"] = machine_json(d.machine);
  out["limits"] = d.limits ? limits_json(*d.limits) : Json();
  out["model"] = d.model ? model_json(d) : Json();
  out["findings"] = Json::array();
  for (const Finding& finding : d.findings) {
    out["findings"].push_back({{"severity", severity_name(finding.severity)},
                               {"what", finding.what},
                               {"why", finding.why},
                               {"advice", finding.advice}});
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace aerie::measure
