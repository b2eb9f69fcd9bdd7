#include "tools/ctl/ctl_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "format/text.h"

namespace aerie {
namespace {

std::string text_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? printable(found->get<std::string>()) : "";
}

double number_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

const Json& part_of(const Json& object, const char* key) {
  static const Json kNothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() ? *found : kNothing;
}

std::string speedup_text(const Json& speedup) {
  if (!speedup.is_object()) return "too few replies";
  return fmt::format("{:.2f}x ({:.2f} to {:.2f})", number_of(speedup, "ratio"),
                     number_of(speedup, "low"), number_of(speedup, "high"));
}

std::string group_text(const Json& figures) {
  const double drafted = number_of(figures, "drafted");
  return fmt::format(
      "{:.0f} replies, {:.1f} ms a token (99 %: {:.1f}), {:.0f} % of drafts accepted",
      number_of(figures, "replies"), number_of(figures, "token_ms"),
      number_of(figures, "token_ms_p99"),
      drafted > 0 ? 100 * number_of(figures, "accepted") / drafted : 0.0);
}

}  // namespace

std::string ctl_report(const Json& model) {
  std::string out = fmt::format("{}: {}", text_of(model, "model"), text_of(model, "status"));
  if (part_of(model, "memory_mib").is_number()) {
    out +=
        fmt::format(", {:.0f} MiB, {:.0f} running, {:.0f} waiting", number_of(model, "memory_mib"),
                    number_of(model, "running"), number_of(model, "waiting"));
  }
  out += "\n";
  if (const std::string failure = text_of(model, "failure"); !failure.empty()) {
    out += fmt::format("  could not be loaded: {}\n", failure);
  }
  if (const std::string present = text_of(model, "present"); !present.empty()) {
    out += fmt::format("  requests get {}\n", present);
  }
  const Json& canary = part_of(model, "canary");
  if (canary.is_object()) {
    out += fmt::format("  on trial: {}, for {:.3g} % of them: {}\n", text_of(canary, "speculate"),
                       100 * number_of(canary, "share"), speedup_text(part_of(canary, "speedup")));
    out += fmt::format("    on trial: {}\n", group_text(part_of(canary, "candidate")));
    out += fmt::format("    present:  {}\n", group_text(part_of(canary, "present")));
  }
  const Json& shadow = part_of(model, "shadow");
  if (shadow.is_object()) {
    out += fmt::format(
        "  on paper: {}, for {:.3g} % of them: {:.2f} tokens a round, drafted in {:.2f} ms, of "
        "{:.0f} "
        "rounds in {:.0f} replies; now {:.2f}\n",
        text_of(shadow, "speculate"), 100 * number_of(shadow, "share"),
        number_of(shadow, "accepted_length"), number_of(shadow, "draft_ms"),
        number_of(shadow, "rounds"), number_of(shadow, "replies"),
        number_of(shadow, "present_accepted_length"));
  }
  if (const std::string last = text_of(model, "last"); !last.empty()) {
    out += fmt::format("  last: {}\n", last);
  }
  for (const Json& one : part_of(model, "holdback")) {
    const std::string name = text_of(one, "traffic_class");
    out += fmt::format("  {}{} against plain decoding: {}, of {:.0f} and {:.0f} replies{}\n",
                       text_of(one, "speculate"), name.empty() ? "" : ", class " + name,
                       speedup_text(part_of(one, "speedup")), number_of(one, "speculated"),
                       number_of(one, "held_back"),
                       part_of(one, "gated") == true ? "; answered plainly" : "");
  }
  return out;
}

}  // namespace aerie
