#include "server/openai/fields/reasoning_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "chat/reply_grammar.h"

namespace aerie::server {

std::string read_effort(FieldReader& request, std::string_view key) {
  constexpr std::array<std::string_view, 6> kEfforts = {"none",   "minimal", "low",
                                                        "medium", "high",    "xhigh"};
  std::string effort = request.string(key, "");
  if (!effort.empty() && std::ranges::find(kEfforts, effort) == kEfforts.end()) {
    request.refuse(key, "must be one of {}", fmt::join(kEfforts, ", "));
  }
  return effort;
}

ReasoningSettings read_reasoning(FieldReader& request) {
  ReasoningSettings out;
  out.effort = read_effort(request, "reasoning_effort");
  if (request.has("max_reasoning_tokens")) {
    out.max_tokens = request.integer("max_reasoning_tokens", 0, 0, std::numeric_limits<int>::max());
  }
  out.show = request.boolean("include_reasoning", true);
  return out;
}

void apply_dialect(const ApiState& state, const ReasoningSettings& settings,
                   chat::ReasoningStart start, bool with_calls, Request& request) {
  const chat::Dialect& dialect = state.dialect;
  request.shown_tokens = chat::shown_tokens(dialect, with_calls, state.service.tokenizer());
  std::optional<int> most = settings.max_tokens;
  if (settings.effort == "none" && !most) most = 0;
  const bool may_reason = dialect.harmony || start != chat::ReasoningStart::kNever;
  if (!most || !may_reason) return;
  const chat::Tags marks = chat::reasoning_marks(dialect);
  request.span_limit = SpanLimit{marks.open, marks.close, start == chat::ReasoningStart::kOpen,
                                 *most, dialect.harmony};
}

}  // namespace aerie::server
