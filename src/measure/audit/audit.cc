#include "measure/audit/audit.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/progress.h"
#include "format/fingerprint.h"

namespace aerie::measure {
namespace {

using State = AuditOutcome::State;

void leave_out(AuditOutcome& outcome, State state, std::string reason) {
  outcome.state = state;
  outcome.reason = std::move(reason);
}

// Drafts are there to be compared, so they are made whether they pay or not.
AuditOptions with_open_gate(AuditOptions options) {
  options.speculation.open_gate();
  return options;
}

class LocalAudit {
 public:
  LocalAudit(const AuditOptions& options, std::span<const AuditRecord> records)
      : options_(with_open_gate(options)),
        records_(records),
        progress_("replaying records", static_cast<int64_t>(records.size())) {}

  Expected<AuditReport> run();

 private:
  EngineOptions engine_options(const RecordedEngine& recorded) const;
  Status skip_other_models();
  void replay_like(size_t first);
  void replay(Engine& engine, const AuditRecord& record, AuditOutcome& outcome);
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }
  void tell(int done);

  const AuditOptions options_;
  std::span<const AuditRecord> records_;
  std::map<std::optional<DType>, std::string> fingerprints_;  // by the type of the weights
  AuditReport report_;
  int done_ = 0;
  Progress progress_;
};

EngineOptions LocalAudit::engine_options(const RecordedEngine& recorded) const {
  EngineOptions out;
  out.model = options_.model;
  out.threads = options_.threads;
  out.weight_cache = options_.weight_cache;
  out.speculation = options_.speculation;
  out.weight_type = recorded.weight_type;
  out.cache_type = recorded.cache_type;
  out.context = options_.context > 0 ? options_.context : recorded.context;
  // A GPU may be another here, or none.
  out.device = recorded.device.starts_with("cuda") ? "auto" : recorded.device;
  if (recorded.device_layers > 0) out.device_layers = recorded.device_layers;
  if (!options_.device.empty()) out.device = options_.device;
  if (options_.isa) {
    out.isa = *options_.isa;
  } else if (kernels::isa_supported(recorded.isa)) {
    out.isa = recorded.isa;
  }
  return out;
}

bool same_engine(const EngineOptions& a, const EngineOptions& b) {
  return a.weight_type == b.weight_type && a.cache_type == b.cache_type && a.context == b.context &&
         a.isa == b.isa && a.device == b.device && a.device_layers == b.device_layers;
}

void LocalAudit::tell(int done) {
  done_ += done;
  progress_.set(done_);
  if (options_.progress) options_.progress(done_, static_cast<int>(records_.size()));
}

// Before an engine is opened, since another model need not have the recorded context.
Status LocalAudit::skip_other_models() {
  ThreadPool pool(1);
  for (size_t i = 0; i < records_.size(); ++i) {
    const RecordedEngine& recorded = records_[i].record.engine;
    auto known = fingerprints_.find(recorded.weight_type);
    if (known == fingerprints_.end()) {
      AERIE_ASSIGN_OR_RETURN(const ModelSource source,
                             open_model_source(options_.model, recorded.weight_type, pool));
      const std::optional<uint64_t> print = content_fingerprint(*source.file);
      known =
          fingerprints_.emplace(recorded.weight_type, print ? fmt::format("{:016x}", *print) : "")
              .first;
    }
    if (options_.other_models || known->second == recorded.fingerprint) continue;
    leave_out(report_.outcomes[i], State::kSkipped,
              fmt::format("it is of another model, {}", recorded.model));
  }
  return {};
}

void LocalAudit::replay(Engine& engine, const AuditRecord& one, AuditOutcome& outcome) {
  const Record& record = one.record;
  const auto positions = static_cast<size_t>(engine.parts().options.context);
  if (record.prompt.size() + record.tokens.size() > positions + 1) {
    return leave_out(
        outcome, State::kSkipped,
        fmt::format("its {} tokens do not fit into a context of {}: give --ctx {}",
                    record.prompt.size() + record.tokens.size(), positions, record.engine.context));
  }
  Request request;
  request.prompt = record.prompt;
  request.sampling = record.sampling;
  request.max_tokens = replay_tokens(record);
  request.stop = record.stop;
  request.ignore_eos = record.ignore_eos;
  request.cancel = options_.cancel;
  if (record.grammar) {
    auto grammar = engine.compile_grammar(*record.grammar);
    if (!grammar.ok()) return leave_out(outcome, State::kFailed, grammar.status().message());
    request.grammar = std::move(*grammar);
  }
  Expected<Generation> generation = engine.generate(request, nullptr);
  if (cancelled()) return;
  if (!generation.ok()) return leave_out(outcome, State::kFailed, generation.status().message());
  if (generation->finish == FinishReason::kError) {
    return leave_out(outcome, State::kFailed, generation->problem);
  }
  compare(record, {std::move(generation->tokens), std::move(generation->text), generation->finish},
          &engine.parts().tokenizer(), outcome);
  if (!outcome.divergence) return;
  std::vector<std::string>& notes = outcome.divergence->notes;
  if (engine.parts().options.isa != record.engine.isa) {
    notes.push_back(fmt::format("replayed with {}: between instruction sets ids may differ",
                                kernels::isa_name(engine.parts().options.isa)));
  }
  const std::string& device = engine.parts().options.device;
  if (device != record.engine.device) {
    notes.push_back(fmt::format("recorded on {}, replayed on {}: between devices ids may differ",
                                record.engine.device, device));
  }
  const int layers = engine.parts().device ? engine.parts().device->first_layer : 0;
  const int recorded = record.engine.device_layers;
  if ((layers > 0) != (recorded > 0) ||
      (layers > 0 && engine.parts().options.device_layers != recorded)) {
    notes.push_back("layers were divided otherwise between processor and device: ids may differ");
  }
  if (fingerprints_[record.engine.weight_type] != record.engine.fingerprint) {
    notes.push_back(fmt::format("recorded with another model, {}", record.engine.model));
  }
}

// All records that are still to be replayed and that want the engine which record `first` wants.
void LocalAudit::replay_like(size_t first) {
  const EngineOptions wanted = engine_options(records_[first].record.engine);
  const Expected<std::unique_ptr<Engine>> engine = Engine::open(wanted);
  for (size_t i = first; i < records_.size() && !cancelled(); ++i) {
    AuditOutcome& outcome = report_.outcomes[i];
    const bool is_open = outcome.state == State::kNotReached;
    if (!is_open || !same_engine(engine_options(records_[i].record.engine), wanted)) continue;
    if (engine.ok()) {
      replay(**engine, records_[i], outcome);
    } else {
      leave_out(outcome, State::kFailed, engine.status().message());
    }
    if (!cancelled()) tell(1);
  }
}

Expected<AuditReport> LocalAudit::run() {
  report_.target = options_.model;
  report_.how = "speculation " + to_string(options_.speculation);
  for (const AuditRecord& one : records_) {
    AuditOutcome& outcome = report_.outcomes.emplace_back();
    outcome.where = one.where;
    const std::string reason = not_comparable(one.record);
    if (!reason.empty()) leave_out(outcome, State::kSkipped, reason);
  }
  AERIE_RETURN_IF_ERROR(skip_other_models());
  done_ = report_.count(State::kSkipped);
  progress_.skip(done_);
  for (size_t i = 0; i < records_.size() && !cancelled(); ++i) {
    if (report_.outcomes[i].state == State::kNotReached) replay_like(i);
  }
  report_.interrupted = cancelled();
  return std::move(report_);
}

}  // namespace

Expected<AuditReport> audit_locally(const AuditOptions& options,
                                    std::span<const AuditRecord> records) {
  return LocalAudit(options, records).run();
}

}  // namespace aerie::measure
