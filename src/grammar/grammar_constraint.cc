#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>
#include <exception>
#include <utility>

#include "base/errors.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar.h"

namespace aerie {
namespace {

using grammar::Effort;
using grammar::StateTable;

// A question to a table that goes without a mask.
constexpr uint64_t kLittleSteps = 20'000;
// What a mask takes that is tried as a short task.
constexpr uint64_t kShortSteps = 2'000'000;

// The eight bools that a byte of a mask stands for.
using Bools = std::array<bool, 8>;

std::array<Bools, 256> make_expansion() {
  std::array<Bools, 256> table{};
  for (size_t byte = 0; byte < 256; ++byte) {
    for (size_t bit = 0; bit < 8; ++bit) table[byte][bit] = (byte >> bit & 1) != 0;
  }
  return table;
}

void expand(const uint64_t* bits, std::span<bool> allowed) {
  static const std::array<Bools, 256> expansion = make_expansion();
  size_t id = 0;
  for (; id + 8 <= allowed.size(); id += 8) {
    const Bools& bools = expansion[bits[id / 64] >> id % 64 & 0xFF];
    std::memcpy(allowed.data() + id, bools.data(), sizeof(Bools));
  }
  for (; id < allowed.size(); ++id) allowed[id] = (bits[id / 64] >> id % 64 & 1) != 0;
}

// A mask that a thread of the pool makes. Whoever wants it holds it.
struct MaskWork {
  Grammar::Place place;  // not to be touched until it is done
  Status status;
  std::atomic<bool> done = false;
};

class MaskTask {
 public:
  MaskTask(std::shared_ptr<const Grammar> grammar, GrammarPool* pool,
           const std::shared_ptr<MaskWork>& work)
      : grammar_(std::move(grammar)), pool_(pool), place_(work->place), work_(work) {}

  void post(GrammarPool::Length length) {
    pool_->post([task = *this, length]() mutable { task.run(length); }, length);
  }

 private:
  void run(GrammarPool::Length length) {
    const bool is_short = length == GrammarPool::Length::kShort;
    Effort effort(is_short ? kShortSteps : Grammar::kMaxSteps, true,
                  [this] { return work_.expired() || pool_->stopped(); });
    Status status = make_mask(effort);
    if (is_short && effort.end() == Effort::End::kSteps) return post(GrammarPool::Length::kLong);
    const std::shared_ptr<MaskWork> work = work_.lock();
    if (work == nullptr) return;
    work->place = place_;
    work->status = std::move(status);
    work->done.store(true, std::memory_order_release);
  }

  // Whoever waits has to hear of an end, whatever it is.
  Status make_mask(Effort& effort) {
    try {
      return grammar_->make_mask(place_, effort);
    } catch (const std::exception& error) {
      return resource_exhausted("the constraint could not be prepared: {}", error.what());
    }
  }

  std::shared_ptr<const Grammar> grammar_;
  GrammarPool* pool_;  // whose thread runs it
  Grammar::Place place_;
  std::weak_ptr<MaskWork> work_;
};

class GrammarConstraint : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<GrammarPool> pool)
      : common_(std::make_shared<Common>(Common{std::move(grammar), std::move(pool), {}})),
        place_(common_->grammar->start()) {}

  std::unique_ptr<TokenConstraint> fork() const override {
    auto copy = std::make_unique<GrammarConstraint>(*this);
    copy->work_.reset();
    return copy;
  }

  bool ready() override;
  Readiness prepare() override;
  Status status() const override { return common_->status; }
  void advance(int32_t token) override;
  void mask(std::span<bool> allowed) const override;
  bool allows(int32_t token) const override;
  std::string forced() const override;

 private:
  // What all forks share.
  struct Common {
    std::shared_ptr<const Grammar> grammar;
    std::shared_ptr<GrammarPool> pool;  // null: there is none
    Status status;
  };

  const TokenTrie& trie() const { return common_->grammar->trie(); }
  bool failed() const { return !common_->status.ok(); }
  const uint64_t* known_mask() const { return place_.state->mask.load(std::memory_order_acquire); }
  void note(Status status) const {
    if (!failed()) common_->status = std::move(status);
  }
  // Whether the mask is there, whatever that takes.
  bool make_mask() const {
    Effort effort(Grammar::kMaxSteps);
    note(common_->grammar->make_mask(place_, effort));
    return !failed();
  }
  // Answers with an effort that goes unnoticed.
  template <typename Ask>
  auto ask(const Ask& question) const {
    GrammarPool& pool = *common_->pool;
    const uint64_t given = std::min(pool.credit(1), kLittleSteps);
    Effort effort(given, false);
    auto answer = question(effort);
    pool.charge(given - effort.left());
    return answer;
  }

  std::shared_ptr<Common> common_;
  // To ask may take it to another table.
  mutable Grammar::Place place_;
  bool ended_ = false;
  std::shared_ptr<MaskWork> work_;  // for this place; null: none is under way
};

void GrammarConstraint::advance(int32_t token) {
  if (ended_) return;
  const std::string_view bytes = trie().bytes(token);
  work_.reset();
  Effort effort(Grammar::kMaxSteps);
  note(common_->grammar->walk(place_, bytes, effort));
  // What the mask did not allow ends the output too: nothing could come next.
  ended_ = bytes.empty() || failed() || place_.state->dead();
}

bool GrammarConstraint::ready() {
  if (failed()) return false;
  if (ended_ || known_mask() != nullptr) return true;
  const Grammar& grammar = *common_->grammar;
  if (common_->pool == nullptr) return make_mask();
  if (work_ != nullptr || grammar.is_heavy()) return false;
  // Twice a walk of the trie, of which most masks need a part.
  const uint64_t least = 2 * trie().nodes().size() + kLittleSteps;
  const uint64_t credit = common_->pool->credit(least);
  if (credit == 0) return false;
  Effort effort(credit, false);
  const bool made = place_.table->mask(*place_.state, effort) != nullptr;
  common_->pool->charge(credit - effort.left());
  if (effort.end() == Effort::End::kSteps) grammar.is_heavy() = true;
  return made;
}

TokenConstraint::Readiness GrammarConstraint::prepare() {
  if (work_ != nullptr && work_->done.load(std::memory_order_acquire)) {
    note(work_->status);
    if (!failed()) place_ = work_->place;
    work_.reset();
  }
  if (ready()) return Readiness::kReady;
  if (failed()) return Readiness::kFailed;
  if (work_ == nullptr) {
    work_ = std::make_shared<MaskWork>();
    work_->place = place_;
    MaskTask(common_->grammar, common_->pool.get(), work_).post(GrammarPool::Length::kShort);
  }
  return Readiness::kLater;
}

void GrammarConstraint::mask(std::span<bool> allowed) const {
  std::fill(allowed.begin(), allowed.end(), false);
  // Not all ask first whether it is ready.
  const bool goes_on = !ended_ && !failed() && (known_mask() != nullptr || make_mask());
  if (goes_on) {
    const size_t known = std::min(allowed.size(), static_cast<size_t>(trie().vocab_size()));
    expand(known_mask(), allowed.first(known));
    if (!place_.state->complete) return;
  }
  for (const int32_t end : trie().end_tokens()) {
    if (static_cast<size_t>(end) < allowed.size()) allowed[static_cast<size_t>(end)] = true;
  }
}

bool GrammarConstraint::allows(int32_t token) const {
  if (failed()) return false;
  if (trie().is_end(token)) return ended_ || place_.state->complete;
  const std::string_view bytes = trie().bytes(token);
  if (ended_ || bytes.empty()) return false;
  if (common_->pool != nullptr) {
    return ask([&](Effort& effort) { return place_.table->takes(*place_.state, bytes, effort); })
        .value_or(false);
  }
  Effort effort(Grammar::kMaxSteps);
  Grammar::Place after = place_;
  note(common_->grammar->walk(after, bytes, effort));
  return !failed() && !after.state->dead();
}

std::string GrammarConstraint::forced() const {
  if (ended_ || failed()) return {};
  const auto question = [&](Effort& effort) {
    const std::string bytes = place_.table->forced(*place_.state, effort);
    return bytes.substr(0, bytes.find(kMarkerByte));
  };
  if (common_->pool != nullptr) return ask(question);
  Effort effort(Grammar::kMaxSteps);
  return question(effort);
}

}  // namespace

std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar> grammar,
                                                 std::shared_ptr<GrammarPool> pool) {
  return std::make_unique<GrammarConstraint>(std::move(grammar), std::move(pool));
}

}  // namespace aerie
