#include "measure/load/serve_summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "measure/statistics.h"

namespace aerie::measure {
namespace {

constexpr size_t kMostErrors = 5;
constexpr size_t kMostPositions = 1024;

Latency latency_of(const std::vector<double>& seconds) {
  return {1e3 * mean(seconds), 1e3 * quantile(seconds, 0.5), 1e3 * quantile(seconds, 0.99)};
}

double ratio_of(double above, double below) {
  return below > 0.0 ? above / below : 0.0;
}

template <typename T>
std::optional<T> number_of(std::string_view text) {
  T value = {};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<size_t> position_of(std::string_view labels) {
  constexpr std::string_view kLabel = "position=\"";
  const size_t at = labels.find(kLabel);
  if (at == std::string_view::npos) return std::nullopt;
  const auto position = number_of<size_t>(labels.substr(at + kLabel.size()));
  return position && *position < kMostPositions ? position : std::nullopt;
}

// Whether it was one of the counters.
bool read_line(std::string_view line, DraftCounters& out) {
  constexpr std::string_view kPrefix = "vllm:spec_decode_num_";
  if (!line.starts_with(kPrefix)) return false;
  const size_t space = line.rfind(' ');
  const size_t brace = line.find('{');
  if (space == std::string_view::npos) return false;
  const std::string_view name =
      line.substr(kPrefix.size(), std::min(brace, space) - kPrefix.size());
  const auto value = number_of<double>(line.substr(space + 1));
  if (!value || !std::isfinite(*value)) return false;
  if (name == "drafts_total") {
    out.drafts += *value;
  } else if (name == "draft_tokens_total") {
    out.draft_tokens += *value;
  } else if (name == "accepted_tokens_total") {
    out.accepted_tokens += *value;
  } else if (name == "accepted_tokens_per_pos_total" && brace != std::string_view::npos) {
    const auto position = position_of(line.substr(brace));
    if (!position) return false;
    if (out.accepted_at.size() <= *position) out.accepted_at.resize(*position + 1, 0.0);
    out.accepted_at[*position] += *value;
  } else {
    return false;
  }
  return true;
}

}  // namespace

void DraftCounters::add(const DraftCounters& other) {
  drafts += other.drafts;
  draft_tokens += other.draft_tokens;
  accepted_tokens += other.accepted_tokens;
  accepted_at.resize(std::max(accepted_at.size(), other.accepted_at.size()), 0.0);
  for (size_t i = 0; i < other.accepted_at.size(); ++i) accepted_at[i] += other.accepted_at[i];
}

DraftCounters DraftCounters::since(const DraftCounters& before) const {
  DraftCounters out = *this;
  out.drafts -= before.drafts;
  out.draft_tokens -= before.draft_tokens;
  out.accepted_tokens -= before.accepted_tokens;
  for (size_t i = 0; i < std::min(accepted_at.size(), before.accepted_at.size()); ++i) {
    out.accepted_at[i] -= before.accepted_at[i];
  }
  return out;
}

std::optional<DraftCounters> read_draft_counters(std::string_view page) {
  DraftCounters out;
  bool found = false;
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size());
    if (read_line(page.substr(0, end), out)) found = true;
    page.remove_prefix(std::min(end + 1, page.size()));
  }
  if (!found) return std::nullopt;
  return out;
}

std::optional<Acceptance> acceptance_of(const DraftCounters& counters) {
  if (!(counters.drafts > 0.0)) return std::nullopt;
  Acceptance out;
  out.drafts = counters.drafts;
  out.draft_tokens = counters.draft_tokens;
  out.accepted_tokens = counters.accepted_tokens;
  out.rate = ratio_of(counters.accepted_tokens, counters.draft_tokens);
  out.length = 1.0 + counters.accepted_tokens / counters.drafts;
  out.per_position = counters.accepted_at;
  // Positions that other settings of the same server reached.
  while (!out.per_position.empty() && out.per_position.back() <= 0.0) out.per_position.pop_back();
  for (double& accepted : out.per_position) accepted /= counters.drafts;
  return out;
}

ServeFigures summarize(std::span<const ServeSample> samples, double seconds,
                       const std::optional<DraftCounters>& counters) {
  ServeFigures out;
  std::vector<double> first, per_token, gaps, latency;
  for (const ServeSample& one : samples) {
    if (one.state == ServeSample::State::kNotReached) continue;
    if (one.late >= kLate) ++out.late;
    if (one.state == ServeSample::State::kFailed) {
      ++out.failed;
      const bool known = std::ranges::find(out.errors, one.error) != out.errors.end();
      if (!known && out.errors.size() < kMostErrors) out.errors.push_back(one.error);
      continue;
    }
    ++out.completed;
    out.prompt_tokens += one.prompt_tokens;
    out.output_tokens += one.output_tokens;
    out.counted = out.counted && one.counted;
    first.push_back(one.first_token);
    latency.push_back(one.latency);
    gaps.insert(gaps.end(), one.gaps.begin(), one.gaps.end());
    if (one.output_tokens < 2) continue;
    per_token.push_back((one.latency - one.first_token) /
                        static_cast<double>(one.output_tokens - 1));
  }
  out.seconds = seconds;
  out.requests_per_second = ratio_of(out.completed, seconds);
  out.output_per_second = ratio_of(static_cast<double>(out.output_tokens), seconds);
  out.tokens_per_second =
      ratio_of(static_cast<double>(out.prompt_tokens + out.output_tokens), seconds);
  out.first_token = latency_of(first);
  out.per_output_token = latency_of(per_token);
  out.between_pieces = latency_of(gaps);
  out.end_to_end = latency_of(latency);
  if (counters) out.acceptance = acceptance_of(*counters);
  return out;
}

}  // namespace aerie::measure
