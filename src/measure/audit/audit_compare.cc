// Where a reply differs from the recorded one.

#include <fmt/format.h>

#include <algorithm>

#include "format/text.h"
#include "measure/audit/audit.h"
#include "tokenizer/detokenizer.h"

namespace aerie::measure {
namespace {

constexpr size_t kTokensBefore = 24;
constexpr size_t kBytesShown = 60;

bool goes_on(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// About the last `bytes` of well-formed text.
std::string tail(const std::string& text, size_t bytes) {
  size_t from = text.size() > bytes ? text.size() - bytes : 0;
  while (from < text.size() && goes_on(text[from])) ++from;
  return text.substr(from);
}

std::string piece_of(std::optional<int32_t> id, const Tokenizer* tokenizer) {
  if (!id || tokenizer == nullptr || *id >= tokenizer->vocab_size()) return "";
  return std::string(tokenizer->piece(*id));
}

// What stands before a place of the reply, the prompt's end included.
std::string words_before(const Record& record, size_t position, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return "";
  std::vector<int32_t> ids = record.prompt;
  ids.insert(ids.end(), record.tokens.begin(),
             record.tokens.begin() + static_cast<ptrdiff_t>(position));
  Detokenizer detokenizer(*tokenizer, true);
  std::string text;
  for (size_t i = ids.size() - std::min(ids.size(), kTokensBefore); i < ids.size(); ++i) {
    if (ids[i] < tokenizer->vocab_size()) detokenizer.push(ids[i], text);
  }
  detokenizer.finish(text);
  return tail(text, kBytesShown);
}

std::string settings_of(const Record& record) {
  const SamplingParams& s = record.sampling;
  const SamplingParams plain;
  std::string out = fmt::format("temperature {:g}", s.temperature);
  if (s.temperature > 0.0) out += fmt::format(", seed {}", s.seed);
  const auto add = [&](const char* name, auto value, auto usual) {
    if (value != usual) out += fmt::format(", {} {}", name, value);
  };
  add("choice", s.choice, plain.choice);
  add("top_k", s.top_k, plain.top_k);
  add("top_p", s.top_p, plain.top_p);
  add("min_p", s.min_p, plain.min_p);
  add("repetition_penalty", s.repetition_penalty, plain.repetition_penalty);
  add("frequency_penalty", s.frequency_penalty, plain.frequency_penalty);
  add("presence_penalty", s.presence_penalty, plain.presence_penalty);
  add("penalty_window", s.penalty_window, plain.penalty_window);
  if (!s.logit_bias.empty()) out += fmt::format(", {} logit biases", s.logit_bias.size());
  if (record.max_tokens > 0) out += fmt::format(", max_tokens {}", record.max_tokens);
  for (const std::string& stop : record.stop) {
    out += fmt::format(", stop \"{}\"", printable(stop, kBytesShown));
  }
  if (record.ignore_eos) out += ", ignore_eos";
  if (record.grammar) out += ", with a grammar";
  const RecordedEngine& e = record.engine;
  return out + fmt::format(
                   "; recorded with {}, {}, cache {}{}, {}, {}, {} threads", printable(e.speculate),
                   verify_rule_name(e.rule), kernels::kv_type_name(e.cache_type),
                   e.weight_type ? fmt::format(", weights {}", dtype_info(*e.weight_type).name)
                                 : std::string(),
                   e.device, kernels::isa_name(e.isa), e.threads);
}

// A reply that ended in the middle of a character: servers show it or leave it out.
std::string_view without_half_character(std::string_view text, FinishReason finish) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  if (finish == FinishReason::kStop) return text;
  while (text.ends_with(kReplacement)) text.remove_suffix(kReplacement.size());
  return text;
}

std::optional<Divergence> compare_ids(const Record& record, std::span<const int32_t> replayed,
                                      FinishReason finish, const Tokenizer* tokenizer) {
  std::span<const int32_t> recorded = record.tokens;
  const size_t shared = std::min(recorded.size(), replayed.size());
  const auto pair = std::mismatch(
      recorded.begin(), recorded.begin() + static_cast<ptrdiff_t>(shared), replayed.begin());
  const auto at = static_cast<size_t>(pair.first - recorded.begin());
  if (at == recorded.size() && at == replayed.size()) return std::nullopt;
  // Some servers do not tell the end token.
  const bool lacks_end = at == replayed.size() && at + 1 == recorded.size() &&
                         record.finish == FinishReason::kStop && finish == FinishReason::kStop;
  if (lacks_end && tokenizer == nullptr) return std::nullopt;
  Divergence out;
  out.position = static_cast<int64_t>(at);
  if (at < recorded.size()) out.recorded_id = recorded[at];
  if (at < replayed.size()) out.replayed_id = replayed[at];
  const Tokenizer* words = record.text ? tokenizer : nullptr;
  out.recorded = piece_of(out.recorded_id, words);
  out.replayed = piece_of(out.replayed_id, words);
  out.before = words_before(record, at, words);
  return out;
}

std::optional<Divergence> compare_texts(const Record& record, const Replay& replay) {
  if (!record.text) return std::nullopt;
  const std::string_view recorded = without_half_character(*record.text, record.finish);
  const std::string_view replayed = without_half_character(replay.text, record.finish);
  if (recorded == replayed) return std::nullopt;
  const size_t shared = std::min(recorded.size(), replayed.size());
  size_t at = 0;
  while (at < shared && recorded[at] == replayed[at]) ++at;
  while (at > 0 && ((at < recorded.size() && goes_on(recorded[at])) ||
                    (at < replayed.size() && goes_on(replayed[at])))) {
    --at;
  }
  Divergence out;
  out.kind = Divergence::Kind::kText;
  out.position = static_cast<int64_t>(at);
  out.recorded = recorded.substr(at);
  out.replayed = replayed.substr(at);
  out.before = tail(std::string(recorded.substr(0, at)), kBytesShown);
  return out;
}

std::optional<Divergence> compare_reasons(const Record& record, const Replay& replay) {
  if (record.finish == replay.finish || record.finish == FinishReason::kNone ||
      replay.finish == FinishReason::kNone) {
    return std::nullopt;
  }
  Divergence out;
  out.kind = Divergence::Kind::kFinish;
  out.position = static_cast<int64_t>(record.tokens.size());
  out.recorded = finish_reason_name(record.finish);
  out.replayed = finish_reason_name(replay.finish);
  out.before = tail(record.text.value_or(""), kBytesShown);
  return out;
}

}  // namespace

std::string not_comparable(const Record& record) {
  if (record.tokens.empty()) return "it was interrupted before its first token";
  if (record.engine.rule != VerifyRule::kExact && record.sampling.temperature > 0.0) {
    return fmt::format(
        "it was made under the rule {} at temperature {:g}, which keeps the "
        "distribution and not the ids",
        verify_rule_name(record.engine.rule), record.sampling.temperature);
  }
  return "";
}

int replay_tokens(const Record& record) {
  const auto tokens = static_cast<int>(record.tokens.size());
  if (record.finish != FinishReason::kStop || tokens == record.max_tokens) return tokens;
  return tokens + 1;
}

void compare(const Record& record, const Replay& replay, const Tokenizer* tokenizer,
             AuditOutcome& outcome) {
  if (!replay.tokens && !record.text) {
    outcome.state = AuditOutcome::State::kSkipped;
    outcome.reason = "the server tells no ids, and the record has no text";
    return;
  }
  outcome.by_text = !replay.tokens;
  std::optional<Divergence> found;
  if (replay.tokens) found = compare_ids(record, *replay.tokens, replay.finish, tokenizer);
  outcome.tokens = found           ? found->position
                   : replay.tokens ? static_cast<int64_t>(record.tokens.size())
                                   : 0;
  if (!found) found = compare_texts(record, replay);
  if (!found) found = compare_reasons(record, replay);
  outcome.state = found ? AuditOutcome::State::kDiverged : AuditOutcome::State::kEqual;
  if (!found) return;
  found->settings = settings_of(record);
  outcome.divergence = std::move(found);
}

}  // namespace aerie::measure
