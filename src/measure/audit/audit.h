// `aerie audit`: recorded requests once more, plainly, and where what comes is not what was
// recorded. Here (audit_locally) or by a server (measure/audit/audit_server.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/recording/record.h"
#include "measure/audit/audit_records.h"

namespace aerie::measure {

// The first place where a reply is not what was recorded.
struct Divergence {
  enum class Kind : uint8_t {
    kToken,   // another id, or one of the two ends before the other
    kText,    // the ids are the same or not known
    kFinish,  // ids and text are the same, the reason to finish is not
  };
  Kind kind = Kind::kToken;
  int64_t position = 0;  // tokens of the reply before it; of kText, bytes
  // kToken: ids, none where the reply has ended.
  std::optional<int32_t> recorded_id;
  std::optional<int32_t> replayed_id;
  // The tokens' pieces where there is a tokenizer, the texts from there on, or the reasons. Of a
  // record without texts there are no pieces and no words.
  std::string recorded;
  std::string replayed;
  std::string before;              // the last words before it
  std::string settings;            // of the record
  std::vector<std::string> notes;  // why it may be no fault
};

struct AuditOutcome {
  enum class State : uint8_t { kNotReached, kEqual, kDiverged, kSkipped, kFailed };
  std::string where;
  State state = State::kNotReached;
  int64_t tokens = 0;    // whose ids were compared and found equal
  bool by_text = false;  // there were no ids to compare
  std::string reason;    // why it was skipped or failed
  std::optional<Divergence> divergence;
};

struct AuditReport {
  std::string target;                  // the model's path or the server's URL
  std::string how;                     // what replayed: settings of the engine, or what was sent
  std::vector<AuditOutcome> outcomes;  // as the records
  bool interrupted = false;

  int count(AuditOutcome::State state) const;
  int compared() const;    // equal or diverged
  int64_t tokens() const;  // of all outcomes
  bool all_equal() const;  // something was compared, all of it equal, and nothing failed
  const AuditOutcome* first(AuditOutcome::State state) const;  // nullptr if there is none
};

// The last line is summary_line().
std::string to_text(const AuditReport& report);
// "audit: 412 replies replayed, 0 differ, 3 skipped, 0 failed", and more if it was interrupted.
std::string summary_line(const AuditReport& report);
std::string to_json(const AuditReport& report);

struct AuditOptions {
  std::string model;
  int threads = 0;           // 0: default_threads()
  std::string weight_cache;  // as EngineOptions has it
  SpeculativeConfig speculation;
  int context = 0;                  // 0: as recorded, which some models' positions depend on
  std::optional<kernels::Isa> isa;  // none: as recorded where this processor has it, else the best
  std::string device = {};          // empty: as recorded, a GPU if one can be had
  bool other_models = false;        // replay what another model was asked, too
  // Told after each record. May be null.
  std::function<void(int done, int of)> progress;
  // Asked all the time: true ends the audit with what is complete. May be null.
  const std::atomic<bool>* cancel = nullptr;
};

// Opens the model for each set of settings that bits depend on (types, instruction set, context)
// and replays under the exact rule. Skipped, with the reason: records of another model (unless they
// are asked for), without a token, of which only the distribution was promised, and for which the
// context is too short. An engine that cannot be opened fails its records; the audit is an error if
// the model's files cannot be read.
Expected<AuditReport> audit_locally(const AuditOptions& options,
                                    std::span<const AuditRecord> records);

// For audits of any kind.

// Why a record's ids cannot be compared wherever it is replayed; empty: they can.
std::string not_comparable(const Record& record);
// Tokens to ask for, so that an end at another place shows.
int replay_tokens(const Record& record);

struct Replay {
  std::optional<std::vector<int32_t>> tokens;  // none: not told
  std::string text;
  FinishReason finish = FinishReason::kNone;  // kNone: not told
};
// Fills in state, tokens and divergence, or the reason why nothing can be compared; `tokenizer` may
// be null.
void compare(const Record& record, const Replay& replay, const Tokenizer* tokenizer,
             AuditOutcome& outcome);

}  // namespace aerie::measure
