// A service that keeps a share of its replies, for `aerie audit`.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "engine/engine.h"
#include "engine/recording/record_folder.h"
#include "engine/recording/record_writer.h"
#include "engine/service.h"

namespace aerie {

struct RecordingOptions {
  double share = 0.01;  // of the requests, drawn at random, in [0, 1]
  uint64_t seed = 0;    // of that draw
  bool texts = false;   // prompts, replies, stop strings and grammars, too
  RecordWriter::Options writer = {};
};

// Another service, which answers. A request is drawn when it is submitted; the record is made of
// what its sink is told, and written by another thread: the one that decodes waits for nothing.
//
// Not recorded are replies that failed and those without a token. Without texts neither are
// constrained requests, whose grammar is a text; and one with stop strings is recorded without
// them, as if it had been interrupted where it stopped.
class RecordingService final : public Service {
 public:
  // `owner` is the engine whose the model is, if nobody else keeps it.
  RecordingService(std::unique_ptr<Engine> owner, std::unique_ptr<Service> service,
                   RecordedEngine engine, const RecordingOptions& options,
                   RecordWriter::Write write);

  const std::string& model_name() const override { return service_->model_name(); }
  std::string device() const override { return service_->device(); }
  int context() const override { return service_->context(); }
  const Tokenizer& tokenizer() const override { return service_->tokenizer(); }
  const Expected<ChatTemplate>& chat_template() const override { return service_->chat_template(); }
  Expected<Pooling> pooling() const override { return service_->pooling(); }
  int embedding_size() const override { return service_->embedding_size(); }
  Expected<SuggestedSampling> suggested_sampling() const override {
    return service_->suggested_sampling();
  }
  std::shared_ptr<const TokenTrie> token_trie() const override { return service_->token_trie(); }
  std::shared_ptr<GrammarPool> grammar_pool() const override { return service_->grammar_pool(); }
  std::vector<std::string> speculations() const override { return service_->speculations(); }
  Expected<int> add_speculation(const SpeculativeConfig& config) override {
    return service_->add_speculation(config);
  }
  Status remove_speculation(int speculation) override {
    return service_->remove_speculation(speculation);
  }
  Expected<Id> submit(Request request, std::shared_ptr<ReplySink> sink) override;
  void cancel(Id id) override { service_->cancel(id); }
  ServiceStats stats() const override;
  void drain() override { service_->drain(); }
  int64_t memory_bytes() const override { return service_->memory_bytes(); }
  Status failure() const override { return service_->failure(); }

 private:
  bool is_drawn();
  Record begin_record(const Request& request) const;

  const std::unique_ptr<Engine> owner_;
  const RecordedEngine engine_;
  const double share_;
  const bool texts_;
  const PhiloxKey key_;
  std::atomic<uint64_t> asked_ = 0;
  std::atomic<int64_t> left_out_ = 0;
  RecordWriter writer_;                     // sinks of the service tell it
  const std::unique_ptr<Service> service_;  // goes first
};

// Opens the model as open_service() does, and starts both threads.
Expected<std::unique_ptr<Service>> open_recording_service(const EngineOptions& engine,
                                                          const ServiceOptions& options,
                                                          const RecordingOptions& recording,
                                                          RecordFolder folder);

}  // namespace aerie
