#include "engine/recording/recording_service.h"

#include <ctime>
#include <exception>
#include <utility>

#include "base/errors.h"
#include "tokenizer/detokenizer.h"

namespace aerie {
namespace {

// Between a service and the sink of a request that was drawn.
class RecordingSink final : public ReplySink {
 public:
  RecordingSink(std::shared_ptr<ReplySink> sink, Record record, bool had_stops, bool texts,
                RecordWriter& writer)
      : sink_(std::move(sink)),
        record_(std::move(record)),
        had_stops_(had_stops),
        texts_(texts),
        writer_(writer) {}

  void on_delta(ReplyDelta delta) override {
    gather([&] {
      for (const EmittedToken& token : delta.tokens) record_.tokens.push_back(token.id);
      if (texts_) *record_.text += delta.text;
    });
    sink_->on_delta(std::move(delta));
  }

  void on_end(ReplyEnd end) override {
    gather([&] {
      if (texts_) *record_.text += end.text;
    });
    if (end.outcome != ReplyOutcome::kFailed && !lost_ && !record_.tokens.empty()) {
      record_.finish = finish_of(end);
      record_.time = std::time(nullptr);
      writer_.add(std::move(record_));
    }
    sink_->on_end(std::move(end));
  }

 private:
  // A record that there is no memory for harms no reply.
  template <typename Call>
  void gather(const Call& call) {
    try {
      if (!lost_) call();
    } catch (const std::exception&) {
      lost_ = true;
    }
  }

  FinishReason finish_of(const ReplyEnd& end) const {
    // It may have been a string that is not recorded.
    if (had_stops_ && !texts_ && end.finish == FinishReason::kStop) return FinishReason::kNone;
    return recorded_finish(end.finish);
  }

  const std::shared_ptr<ReplySink> sink_;
  Record record_;
  const bool had_stops_;
  const bool texts_;
  RecordWriter& writer_;
  bool lost_ = false;
};

std::string text_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  Detokenizer detokenizer(tokenizer, true, DetokenizeFrom::kBeginning);
  for (const int32_t id : ids) detokenizer.push(id, text);
  detokenizer.finish(text);
  return text;
}

}  // namespace

RecordingService::RecordingService(std::unique_ptr<Engine> owner, std::unique_ptr<Service> service,
                                   RecordedEngine engine, const RecordingOptions& options,
                                   RecordWriter::Write write)
    : owner_(std::move(owner)),
      engine_(std::move(engine)),
      share_(options.share),
      texts_(options.texts),
      key_{static_cast<uint32_t>(options.seed), static_cast<uint32_t>(options.seed >> 32)},
      writer_(std::move(write), options.writer),
      service_(std::move(service)) {}

bool RecordingService::is_drawn() {
  const uint64_t number = asked_++;
  const PhiloxBlock block =
      philox4x32({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0}, key_);
  return uniform53(block[0], block[1]) < share_;
}

Record RecordingService::begin_record(const Request& request) const {
  Record record = make_record(engine_, request);
  const auto speculation = static_cast<size_t>(request.speculation);
  const std::vector<std::string> names = speculations();
  if (request.speculate && speculation < names.size()) {
    record.engine.speculate = names[names[speculation].empty() ? 0 : speculation];
  }
  if (texts_) {
    record.text.emplace();
  } else {
    record.stop.clear();
  }
  return record;
}

Expected<Service::Id> RecordingService::submit(Request request, std::shared_ptr<ReplySink> sink) {
  // There is no reply to be replayed.
  const bool is_reply = request.pooling == Pooling::kNone;
  if (!is_reply || !is_drawn()) return service_->submit(std::move(request), std::move(sink));
  if (request.grammar != nullptr && !texts_) {
    auto id = service_->submit(std::move(request), std::move(sink));
    if (id.ok()) ++left_out_;
    return id;
  }
  auto recording = std::make_shared<RecordingSink>(std::move(sink), begin_record(request),
                                                   !request.stop.empty(), texts_, writer_);
  return service_->submit(std::move(request), std::move(recording));
}

ServiceStats RecordingService::stats() const {
  ServiceStats stats = service_->stats();
  const RecordWriter::Counts counts = writer_.counts();
  stats.records_written = counts.written;
  stats.records_dropped = counts.dropped;
  stats.records_left_out = left_out_;
  return stats;
}

Expected<std::unique_ptr<Service>> open_recording_service(const EngineOptions& engine,
                                                          const ServiceOptions& options,
                                                          const RecordingOptions& recording,
                                                          RecordFolder folder) {
  AERIE_ASSIGN_OR_RETURN(const Concurrency concurrency, concurrency_of(options));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> owner, Engine::open(engine, concurrency));
  RecordedEngine recorded = recorded_engine(owner->parts());
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Service> service, start_service(owner->parts(), options));
  // Kept by whoever writes, which may come to be a thread that was left behind.
  const auto kept = std::make_shared<RecordFolder>(std::move(folder));
  RecordWriter::Write write = [kept, texts = recording.texts,
                               &tokenizer = service->tokenizer()](Record& record) {
    if (texts) record.prompt_text = text_of(tokenizer, record.prompt);
    return kept->append(to_line(record) + "\n", record.time);
  };
  return std::unique_ptr<Service>(std::make_unique<RecordingService>(
      std::move(owner), std::move(service), std::move(recorded), recording, std::move(write)));
}

}  // namespace aerie
