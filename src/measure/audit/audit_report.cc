#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/text.h"
#include "measure/audit/audit.h"

namespace aerie::measure {
namespace {

using Json = nlohmann::ordered_json;
using State = AuditOutcome::State;
using Kind = Divergence::Kind;

constexpr size_t kShown = 60;  // bytes of a text

const char* state_name(State state) {
  constexpr const char* kNames[] = {"not reached", "equal", "diverged", "skipped", "failed"};
  return kNames[static_cast<size_t>(state)];
}

const char* kind_name(Kind kind) {
  constexpr const char* kNames[] = {"token", "text", "finish_reason"};
  return kNames[static_cast<size_t>(kind)];
}

std::string token_text(std::optional<int32_t> id, const std::string& piece) {
  if (!id) return "the end";
  if (piece.empty()) return fmt::format("{}", *id);
  return fmt::format("{} \"{}\"", *id, printable(piece, kShown));
}

std::string divergence_text(const std::string& where, const Divergence& d) {
  std::string out;
  switch (d.kind) {
    case Kind::kToken:
      out = fmt::format("{}: differs at token {}, counted from 0\n  recorded {}, now {}\n", where,
                        d.position, token_text(d.recorded_id, d.recorded),
                        token_text(d.replayed_id, d.replayed));
      break;
    case Kind::kText:
      out = fmt::format("{}: the text differs at byte {}\n  recorded \"{}\", now \"{}\"\n", where,
                        d.position, printable(d.recorded, kShown), printable(d.replayed, kShown));
      break;
    case Kind::kFinish:
      out = fmt::format(
          "{}: the same reply of {} tokens finishes differently\n"
          "  recorded {}, now {}\n",
          where, d.position, d.recorded, d.replayed);
      break;
  }
  if (!d.before.empty()) out += fmt::format("  after \"{}\"\n", printable(d.before, 2 * kShown));
  out += fmt::format("  {}\n", d.settings);
  for (const std::string& note : d.notes) out += fmt::format("  note: {}\n", note);
  return out;
}

Json divergence_json(const Divergence& d) {
  Json out;
  out["kind"] = kind_name(d.kind);
  out["position"] = d.position;
  if (d.kind == Kind::kToken) {
    out["recorded_id"] = d.recorded_id ? Json(*d.recorded_id) : Json();
    out["replayed_id"] = d.replayed_id ? Json(*d.replayed_id) : Json();
  }
  out["recorded"] = d.recorded;
  out["replayed"] = d.replayed;
  out["before"] = d.before;
  out["settings"] = d.settings;
  out["notes"] = d.notes;
  return out;
}

}  // namespace

int AuditReport::count(State state) const {
  return static_cast<int>(
      std::ranges::count_if(outcomes, [&](const auto& one) { return one.state == state; }));
}

int AuditReport::compared() const {
  return count(State::kEqual) + count(State::kDiverged);
}

int64_t AuditReport::tokens() const {
  int64_t sum = 0;
  for (const AuditOutcome& one : outcomes) sum += one.tokens;
  return sum;
}

bool AuditReport::all_equal() const {
  return count(State::kEqual) > 0 && count(State::kDiverged) == 0 && count(State::kFailed) == 0;
}

const AuditOutcome* AuditReport::first(State state) const {
  const auto found =
      std::ranges::find_if(outcomes, [&](const auto& one) { return one.state == state; });
  return found == outcomes.end() ? nullptr : &*found;
}

std::string to_text(const AuditReport& report) {
  std::string out;
  for (const AuditOutcome& one : report.outcomes) {
    if (one.divergence) {
      out += divergence_text(one.where, *one.divergence);
    } else if (one.state == State::kSkipped || one.state == State::kFailed) {
      out +=
          fmt::format("{}: {}: {}\n", one.where, state_name(one.state), printable(one.reason, 500));
    }
  }
  const auto by_text = std::ranges::count_if(report.outcomes, [](const auto& one) {
    return one.by_text && one.state != State::kNotReached;
  });
  out += fmt::format("{}, {}: {} records; {} compared ({} tokens equal", report.target, report.how,
                     report.outcomes.size(), report.compared(), report.tokens());
  if (by_text > 0) out += fmt::format("; {} by text alone", by_text);
  out += fmt::format("), {} diverged, {} skipped, {} failed", report.count(State::kDiverged),
                     report.count(State::kSkipped), report.count(State::kFailed));
  if (report.interrupted) {
    out += fmt::format("; interrupted, {} not reached", report.count(State::kNotReached));
  }
  return out + "\n" + summary_line(report);
}

std::string summary_line(const AuditReport& report) {
  return fmt::format(
      "audit: {} replies replayed, {} differ, {} skipped, {} failed{}\n", report.compared(),
      report.count(State::kDiverged), report.count(State::kSkipped), report.count(State::kFailed),
      report.interrupted
          ? fmt::format("; interrupted, {} not reached", report.count(State::kNotReached))
          : std::string());
}

std::string to_json(const AuditReport& report) {
  Json out;
  out["target"] = report.target;
  out["how"] = report.how;
  out["records"] = report.outcomes.size();
  out["compared"] = report.compared();
  out["tokens_equal"] = report.tokens();
  out["divergences"] = report.count(State::kDiverged);
  out["skipped"] = report.count(State::kSkipped);
  out["failed"] = report.count(State::kFailed);
  out["interrupted"] = report.interrupted;
  Json list = Json::array();
  for (const AuditOutcome& one : report.outcomes) {
    Json item = {{"record", one.where},
                 {"state", state_name(one.state)},
                 {"tokens_equal", one.tokens},
                 {"by_text", one.by_text}};
    if (!one.reason.empty()) item["reason"] = one.reason;
    if (one.divergence) item["divergence"] = divergence_json(*one.divergence);
    list.push_back(std::move(item));
  }
  out["outcomes"] = std::move(list);
  // Pieces of tokens need not be UTF-8.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace aerie::measure
