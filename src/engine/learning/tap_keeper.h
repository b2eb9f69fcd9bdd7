// Hears of what the target's layers hold while other drafters draft, for learning from it later.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "draft/auto/combined.h"
#include "draft/drafter.h"

namespace aerie {

// Drafts as `inner` does, which must outlive it. Of sequences with DraftSequence::learn it keeps
// the taps of some layers until take() has them, through suspensions too. Of positions that a
// sequence took from the prefix cache it has those that another one holds, too.
class TapKeeper final : public Drafter {
 public:
  // In flight, of all sequences; what would go beyond loses its taps.
  static constexpr size_t kMostBytes = size_t{256} << 20;

  // kUnsupported if that is more layers than a model hands out (ModelOptions::max_taps).
  static Expected<std::unique_ptr<TapKeeper>> make(Drafter& inner, std::vector<int32_t> layers,
                                                   size_t most_tokens,
                                                   size_t most_bytes = kMostBytes);

  // The inner one's needs may have changed. Errors as of make(); nothing has changed then.
  Status refresh();

  struct Taps {
    int first_row = 0;             // position of the first that is there
    std::vector<uint16_t> values;  // bfloat16 [rows][layers][hidden]; empty: they are lost
  };
  // Of a sequence that is closed; none if it is not kept.
  std::optional<Taps> take(SequenceId id);

  std::string_view method() const override { return inner_.method(); }
  const DrafterNeeds& needs() const override { return needs_; }
  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override { inner_.close(id); }
  int reusable(std::span<const int32_t> tokens, int drafter,
               std::string_view tenant) const override {
    return inner_.reusable(tokens, drafter, tenant);
  }
  bool will_share(SequenceId reader, int length, int drafter,
                  std::string_view tenant) const override {
    return inner_.will_share(reader, length, drafter, tenant);
  }
  void keep(SequenceId id, std::span<const int32_t> tokens) override { inner_.keep(id, tokens); }
  void forget() override { inner_.forget(); }
  Status propose(std::span<DraftRequest> requests) override { return inner_.propose(requests); }
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  struct Kept {
    std::vector<int32_t> tokens;  // that were known when it was opened
    Taps taps;
    bool lost = false;
  };

  TapKeeper(Drafter& inner, std::vector<int32_t> layers, size_t most_tokens, size_t most_bytes)
      : inner_(inner),
        layers_(std::move(layers)),
        most_tokens_(most_tokens),
        most_bytes_(most_bytes) {}
  void keep_rows(const DraftCommit& commit, Kept& kept);
  void borrow(Kept& kept, size_t width) const;
  void lose(Kept& kept);

  Drafter& inner_;
  const std::vector<int32_t> layers_;
  const size_t most_tokens_;
  const size_t most_bytes_;
  DrafterNeeds needs_;
  std::vector<size_t> places_;  // of the layers, among those of needs_
  OwnTaps own_taps_{{}};
  size_t bytes_ = 0;
  std::unordered_map<SequenceId, Kept> kept_;
};

}  // namespace aerie
