// A service that keeps what it answers, for `aerie train` to learn from.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/learning/learn_store.h"
#include "engine/learning/learn_writer.h"
#include "engine/learning/tap_keeper.h"
#include "engine/opened_model.h"

namespace aerie {

struct LearnOptions {
  std::shared_ptr<LearnStore> store = {};  // opened; null: nothing is kept
  // LearnWriter::Options'.
  std::function<void(const std::string& message)> warn = {};
};

// Used by the thread that decodes, but for counts().
class Learning {
 public:
  // The fraction of prompts that validates.
  static constexpr double kHeldOut = 0.05;
  static constexpr int kLeastTokens = 4;  // of a reply: shorter ones teach nothing

  // `inner` is what drafts, and must outlive it: the layers that it reads are kept, or those that
  // EAGLE-3 would read, and the stream behind the last layer. Errors are LearnStore::begin()'s and
  // TapKeeper::make()'s.
  static Expected<std::unique_ptr<Learning>> start(const OpenedModel& opened, Drafter& inner,
                                                   const LearnOptions& options);

  TapKeeper& drafter() { return *keeper_; }

  // A sequence has been closed, and comes to no more tokens. `failed`: what there is counts for
  // nothing.
  void on_end(const Sequence& sequence, bool failed) noexcept;

  LearnWriter::Counts counts() const { return writer_.counts(); }

 private:
  Learning(std::unique_ptr<TapKeeper> keeper, const LearnOptions& options)
      : keeper_(std::move(keeper)), writer_(options.store, {.warn = options.warn}) {}

  const std::unique_ptr<TapKeeper> keeper_;
  LearnWriter writer_;
};

}  // namespace aerie
