#include "draft/auto/draft_gate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "draft/auto/draft_record.h"
#include "draft/auto/draft_yield.h"
#include "draft/auto/later_opening.h"
#include "draft/auto/round_cost.h"
#include "draft/auto/round_times.h"
#include "draft/tenant_map.h"
#include "draft/tree/tree_growth.h"

namespace aerie {
namespace {

// A drafter is asked in every round while a call costs less than this part of plain decoding's
// pass.
constexpr double kCheap = 0.01;
// Drafts are chosen for their estimates being high, so that these are too high on average.
constexpr double kDoubt = 0.1;
// Rounds that a drafter is tried for, of each tenant; more for one whose rows pay later.
constexpr int kTrialRounds = 4;
constexpr int kWindowTrialRounds = 24;
// What a trial may lose, in plain rounds: of a reply of 128 tokens 3 %.
constexpr double kTrialLoss = 4.0;
// Of a look at a drafter that does not pay, and the least rounds between two of them.
constexpr int kLookRounds = 2;
constexpr double kLeastPatience = 32.0;
// What looks may cost, of the time of plain decoding.
constexpr double kLookShare = 0.01;
// What was gained by drafting and may be lost again by looking, in plain rounds.
constexpr double kMostCredit = 4.0;
// New sequences in a row that a drafter that does not pay has nothing to do with, so that it need
// not read them.
constexpr int kMostPassedOver = 3;
// Rounds between two looks at whether it pays by now for sequences that it has nothing to do with.
constexpr uint64_t kLetInRounds = 16;
// Rounds over which reading a sequence should pay.
constexpr double kReadingRounds = 64.0;
// Of which it is kept how drafts fared.
constexpr int kMostTenants = 1024;

bool has_window(const TokenTree& tree) {
  return std::ranges::any_of(
      tree.nodes, [](const TokenTree::Node& node) { return node.role != NodeRole::kDraft; });
}

// Tokens that its nodes promise, by their estimates.
double promised(const TokenTree& tree) {
  double sum = 0.0;
  for (const TokenTree::Node& node : tree.nodes) {
    if (node.role == NodeRole::kDraft) sum += static_cast<double>(node.probability);
  }
  return sum;
}

class Gate final : public Drafter {
 public:
  Gate(std::unique_ptr<Drafter> drafter, const PassCost& cost, const GateOptions& options)
      : source_(std::move(drafter)), cost_(cost), options_(options) {
    if (!options_.clock) {
      options_.clock = [start = steady_now()] { return seconds_since(start); };
    }
  }

  std::string_view method() const override { return inner().method(); }
  const DrafterNeeds& needs() const override { return inner().needs(); }
  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override;
  int reusable(std::span<const int32_t> tokens, int drafter,
               std::string_view tenant) const override;
  bool will_share(SequenceId reader, int length, int drafter,
                  std::string_view tenant) const override {
    const Tenants::Entry* known = tenants_.find(tenant);
    if (known != nullptr && passes_over(known->value)) return true;
    return inner().will_share(reader, length, drafter, tenant);
  }
  void keep(SequenceId id, std::span<const int32_t> tokens) override {
    if (const auto found = states_.find(id); found != states_.end() && !found->second.left_out) {
      inner().keep(id, tokens);
    }
  }
  void forget() override;
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  // Whose sequences have something in common.
  struct Tenant {
    TenantRecord record;
    DraftYield yield{300};
    int trial = kTrialRounds;  // rounds that are left of it
    uint64_t round = 0;        // the last in which it had a sequence
    // Since it was last asked, and how many of them there must be.
    double idle = 0.0, patience = kLeastPatience;
    double credit = 0.0;  // seconds that looks may take
    // New sequences that have been left out since one was not, and how many may be.
    int passed_over = 0, pass_over = 0;
  };
  using Tenants = TenantMap<Tenant>;
  struct State {
    Tenants::Entry* entry = nullptr;
    DraftRecord record;
    DraftYield yield{32};
    bool left_out = false;              // the drafter does not know it
    std::optional<LaterOpening> later;  // then
    bool fresh = true;                  // no round has begun
    size_t length = 0;                  // tokens when the round began; 0: none has begun
    int look = 0;                       // rounds that are left of one
    // In this round:
    bool forced = false;  // it drafts to be looked at
    bool asked = false;
    bool taken = false;
    double claimed = 0.0;

    Tenant& tenant() { return entry->value; }
  };
  // What drafting for a sequence is expected to bring.
  struct Offer {
    size_t request = 0;
    double tokens = 0.0;
    double rows = 0.0;
    double seconds = 0.0;  // of a round, beside a call and its rows
    bool forced = false;
  };

  Drafter& inner() { return *source_.drafter; }
  const Drafter& inner() const { return *source_.drafter; }
  State& state(SequenceId id) { return states_.find(id)->second; }
  bool goes_by_word() const;
  bool pays(const Tenant& tenant) const;
  bool passes_over(const Tenant& tenant) const;
  void let_in(const DraftRequest& request);
  double call_seconds(double sequences) const;
  Status begin_round(std::span<const DraftRequest> requests);
  void find_looks(std::span<const DraftRequest> requests);
  double look_seconds(State& at, double arrears) const;
  void find_asked(std::span<const DraftRequest> requests);
  Status ask(std::span<const DraftRequest> requests);
  bool loses_too_much(const State& at) const;
  void find_taken(std::span<const DraftRequest> requests);
  size_t worthwhile(bool drafts);
  void settle(State& at, int stood);

  ControlledDrafter source_;
  RoundCost cost_;
  GateOptions options_;
  std::unordered_map<SequenceId, State> states_;
  Tenants tenants_{kMostTenants};
  uint64_t rounds_ = 0;
  RoundTimes times_;
  // The round under way.
  double started_ = 0.0;
  double draft_seconds_ = 0.0;
  int rows_ = 0;  // of its pass
  int asked_count_ = 0;
  bool under_way_ = false;     // and fit to be timed
  bool any_left_out_ = false;  // of any sequence so far
  // Scratch.
  std::vector<Offer> offers_;
  std::vector<DraftRequest> asked_;
  std::vector<DraftCommit> commits_;
};

// A prompt need not be read again for a drafter that will not see it.
int Gate::reusable(std::span<const int32_t> tokens, int drafter, std::string_view tenant) const {
  const Tenants::Entry* known = tenants_.find(tenant);
  if (known != nullptr && passes_over(known->value)) return static_cast<int>(tokens.size()) - 1;
  return inner().reusable(tokens, drafter, tenant);
}

Status Gate::open(const DraftSequence& sequence) {
  if (states_.contains(sequence.id)) {
    return invalid_argument("drafter {}: sequence {} is open already", method(), sequence.id);
  }
  State opened;
  opened.entry = &tenants_.hold(sequence.tenant, [] { return Tenant(); });
  tenants_.weigh(*opened.entry, 1);
  Tenant& tenant = opened.tenant();
  opened.left_out = passes_over(tenant);
  if (opened.left_out) {
    ++tenant.passed_over;
    any_left_out_ = true;
    opened.later.emplace(sequence);
  } else {
    if (Status status = inner().open(sequence); !status.ok()) {
      tenants_.release(*opened.entry);
      return status;
    }
    const bool lost = source_.timed > 0 && tenant.trial == 0 && !goes_by_word() && !pays(tenant);
    tenant.passed_over = 0;
    tenant.pass_over = lost ? std::min(2 * tenant.pass_over + 1, kMostPassedOver) : 0;
  }
  State& at = states_[sequence.id] = std::move(opened);
  at.record.noise = UnseenNoise(sequence, inner());
  at.record.tree.nodes.reserve(static_cast<size_t>(options_.max_nodes));
  at.record.claims.reserve(static_cast<size_t>(options_.max_nodes));
  offers_.reserve(states_.size());
  asked_.reserve(states_.size());
  return {};
}

void Gate::close(SequenceId id) {
  const auto found = states_.find(id);
  if (found == states_.end()) return;
  if (!found->second.left_out) inner().close(id);
  tenants_.release(*found->second.entry);
  states_.erase(found);
}

void Gate::forget() {
  source_.forget();
  tenants_.clear();
  times_ = {};
  under_way_ = false;
}

// Whether it is asked in every round, and its trees are taken by what their nodes promise.
bool Gate::goes_by_word() const {
  const int sequences = std::max(1, static_cast<int>(source_.batch));
  return source_.timed > 0 && !source_.whole && source_.seconds < kCheap * cost_.plain(sequences);
}

// Whether it would be asked for one more sequence like those of the tenant that it drafted for.
bool Gate::pays(const Tenant& tenant) const {
  const DraftYield::Round round = tenant.yield.estimate();
  const auto count = static_cast<int>(states_.size()) + 1;
  const double rows = count * (1.0 + round.rows);
  const double seconds =
      cost_.apart(static_cast<int>(std::lround(rows)), count) + call_seconds(count);
  return (1.0 + round.tokens) * cost_.plain(count) >
         (1.0 + options_.margin) * times_.factor() * seconds;
}

bool Gate::passes_over(const Tenant& tenant) const {
  return tenant.passed_over < tenant.pass_over && !goes_by_word() && !pays(tenant);
}

// A sequence that it was kept from is its own once it pays.
void Gate::let_in(const DraftRequest& request) {
  State& at = state(request.id);
  if (!at.left_out || request.tokens.empty()) return;
  if (!goes_by_word() && !pays(at.tenant())) return;
  if (!inner().open(at.later->with(request.tokens)).ok()) return;
  at.left_out = false;
  at.later.reset();
}

// A network's pass grows with the sequences as the target's does.
double Gate::call_seconds(double sequences) const {
  const auto now = static_cast<int>(sequences), then = std::max(1, static_cast<int>(source_.batch));
  return source_.seconds * cost_.plain(now) / cost_.plain(then);
}

Status Gate::begin_round(std::span<const DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    const auto found = states_.find(request.id);
    if (found == states_.end()) {
      return invalid_argument("drafter {}: sequence {} is not open", method(), request.id);
    }
    State& at = found->second;
    at.length = request.tokens.size();
    at.forced = at.asked = at.taken = false;
    at.record.tree.clear();
  }
  if (requests.empty()) return {};
  cost_.start(requests);
  ++rounds_;
  asked_count_ = 0;
  draft_seconds_ = 0.0;
  rows_ = cost_.roots();
  for (const DraftRequest& request : requests) {
    Tenant& tenant = state(request.id).tenant();
    if (std::exchange(tenant.round, rounds_) == rounds_) continue;
    ++tenant.idle;
    tenant.credit += kLookShare * cost_.plain(cost_.roots());
  }
  return {};
}

// What looking at it for some rounds is expected to take.
double Gate::look_seconds(State& at, double arrears) const {
  const double nodes = at.yield.estimate(at.tenant().yield).rows;
  const int rows = cost_.roots() + static_cast<int>(nodes);
  const double round =
      call_seconds(1.0) + cost_.seconds(rows, cost_.roots()) - cost_.plain(cost_.roots());
  return kLookRounds * round + arrears * source_.reading_seconds;
}

// Of each tenant that is on trial, or whose time it is, the sequence that the drafter has the least
// to read of.
void Gate::find_looks(std::span<const DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    State& at = state(request.id);
    Tenant& tenant = at.tenant();
    if (at.left_out) continue;
    if (at.look > 0) {
      at.forced = true;
      continue;
    }
    const bool trial = tenant.trial > 0;
    const bool fresh = std::exchange(at.fresh, false);
    if (!trial && !fresh && tenant.idle < tenant.patience) continue;
    const double arrears = at.record.arrears(request.tokens.size());
    const auto is_better = [&](const DraftRequest& other) {
      const State& its = state(other.id);
      if (its.entry != at.entry || its.left_out || other.id == request.id) return false;
      return its.look > 0 || its.forced || its.record.arrears(other.tokens.size()) < arrears;
    };
    if (std::ranges::any_of(requests, is_better)) continue;
    if (trial) {
      at.forced = true;
      continue;
    }
    if (tenant.credit < look_seconds(at, arrears)) continue;
    at.forced = true;
    at.look = kLookRounds;
    at.yield.clear();
    tenant.patience *= 2.0;
  }
}

// Of offers_, how many from the front are worth it: those that are forced, and the others as far as
// they raise the tokens a second. `drafts`: whether the drafter has yet to be asked.
size_t Gate::worthwhile(bool drafts) {
  std::ranges::sort(offers_, [](const Offer& a, const Offer& b) {
    if (a.forced != b.forced) return a.forced;
    return a.tokens * std::max(1.0, b.rows) > b.tokens * std::max(1.0, a.rows);
  });
  const int roots = cost_.roots();
  double tokens = roots, rows = roots, reading = 0.0;
  double bar = roots / cost_.plain(roots) * (1.0 + options_.margin);
  size_t worth = 0;
  for (size_t i = 0; i < offers_.size(); ++i) {
    tokens += offers_[i].tokens;
    rows += offers_[i].rows;
    reading += offers_[i].seconds;
    // Means of whole numbers miss these by a hair.
    const auto whole_rows = static_cast<int>(std::lround(rows));
    if (whole_rows > options_.max_rows) break;
    double seconds = cost_.seconds(whole_rows, roots) + reading;
    if (drafts) seconds += call_seconds(static_cast<double>(i + 1));
    const double rate = tokens / (seconds * times_.factor());
    if (!offers_[i].forced && rate <= bar) continue;
    bar = std::max(bar, rate);
    worth = i + 1;
  }
  return worth;
}

void Gate::find_asked(std::span<const DraftRequest> requests) {
  offers_.clear();
  if (goes_by_word()) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!state(requests[i].id).left_out) offers_.push_back({.request = i});
    }
    return;
  }
  find_looks(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    State& at = state(requests[i].id);
    if (at.left_out) continue;
    // All that a first call took may have been reading: what one costs is not known then.
    if (source_.timed == 0 && !at.forced) continue;
    const DraftYield::Round round = at.yield.estimate(at.tenant().yield);
    const double reading = at.record.arrears(requests[i].tokens.size()) * source_.reading_seconds;
    offers_.push_back({i, round.tokens, round.rows, reading / kReadingRounds, at.forced});
  }
  offers_.resize(worthwhile(true));
  // Looks are of the drafter: without one there is a plain round to compare with.
  const bool any_forced = !offers_.empty() && offers_.front().forced;
  if (!any_forced && times_.wants_plain()) offers_.clear();
}

Status Gate::ask(std::span<const DraftRequest> requests) {
  asked_.clear();
  const bool chooses = goes_by_word();
  for (const Offer& offer : offers_) {
    DraftRequest& copy = asked_.emplace_back(requests[offer.request]);
    State& at = state(copy.id);
    copy.tree = &at.record.tree;
    if (chooses) copy.ahead = nullptr;
    at.asked = true;
    at.tenant().idle = 0.0;
  }
  asked_count_ = static_cast<int>(asked_.size());
  if (asked_.empty()) return {};
  const double start = options_.clock();
  AERIE_RETURN_IF_ERROR(inner().propose(asked_));
  draft_seconds_ = options_.clock() - start;
  const double plain = cost_.plain(asked_count_);
  double most_arrears = 0.0;
  for (const DraftRequest& request : asked_) {
    DraftRecord& record = state(request.id).record;
    most_arrears = std::max(most_arrears, record.note(request.tokens.size(), request.unread));
  }
  if (source_.time(draft_seconds_, asked_, most_arrears, kCheap * plain)) {
    source_.warn_if_dear(plain);
  }
  for (const DraftRequest& request : asked_) {
    State& at = state(request.id);
    at.claimed = promised(at.record.tree);
    if (at.record.tree.empty()) continue;
    calibrate(at.record, at.tenant().record, request.tokens.size());
    if (may_be_cut(at.record.tree)) continue;
    source_.whole = true;
    if (has_window(at.record.tree) && at.tenant().yield.rounds() == 0) {
      at.tenant().trial = kWindowTrialRounds;
    }
  }
  return {};
}

// Whether verifying what it drafted would take more than its trial may lose. What a first draft
// takes is seen in any case.
bool Gate::loses_too_much(const State& at) const {
  const Tenant& tenant = at.entry->value;
  if (tenant.trial == 0 || tenant.yield.rounds() == 0) return false;
  const int roots = cost_.roots();
  const double plain = cost_.plain(roots);
  const double more = draft_seconds_ / std::max(1, asked_count_) +
                      cost_.seconds(roots + at.record.tree.size(), roots) - plain;
  return tenant.credit - more < -kTrialLoss * plain;
}

// Of the trees that were made, those that are worth their rows.
void Gate::find_taken(std::span<const DraftRequest> requests) {
  std::erase_if(offers_, [&](Offer& offer) {
    State& at = state(requests[offer.request].id);
    const TokenTree& tree = at.record.tree;
    offer.rows = tree.size();
    offer.seconds = 0.0;
    if (at.forced && loses_too_much(at)) {
      at.forced = false;
      at.tenant().trial = 0;
    }
    offer.forced = at.forced;
    // What cannot be cut is not judged by its nodes either.
    offer.tokens = may_be_cut(tree) ? (1.0 - kDoubt) * promised(tree)
                                    : at.yield.estimate(at.tenant().yield).tokens;
    return tree.empty();
  });
  // What is being verified is paid for.
  const DraftsAhead* ahead = asked_.empty() ? nullptr : asked_.front().ahead;
  if (ahead == nullptr || !ahead->has_begun()) offers_.resize(worthwhile(false));
  const bool any_forced = !offers_.empty() && offers_.front().forced;
  if (!any_forced && times_.wants_plain() && goes_by_word()) offers_.clear();
  for (const Offer& offer : offers_) {
    State& at = state(requests[offer.request].id);
    at.taken = true;
    rows_ += at.record.tree.size();
    TokenTree& out = *requests[offer.request].tree;
    out.nodes.assign(at.record.tree.nodes.begin(), at.record.tree.nodes.end());
    out.proposals.assign(at.record.tree.proposals.begin(), at.record.tree.proposals.end());
  }
}

Status Gate::propose(std::span<DraftRequest> requests) {
  under_way_ = false;
  AERIE_RETURN_IF_ERROR(begin_round(requests));
  if (requests.empty()) return {};
  if (any_left_out_ && rounds_ % kLetInRounds == 0) {
    for (const DraftRequest& request : requests) let_in(request);
  }
  started_ = options_.clock();
  find_asked(requests);
  AERIE_RETURN_IF_ERROR(ask(requests));
  find_taken(requests);
  under_way_ = cost_.prompt_rows() == 0;
  return {};
}

// A round in which the drafter was asked is over, and so many tokens of its draft came true.
void Gate::settle(State& at, int stood) {
  Tenant& tenant = at.tenant();
  if (!at.record.is_read) {
    // It has drafted nothing yet.
    if (tenant.trial == 0) tenant.credit -= draft_seconds_ / std::max(1, asked_count_);
    return;
  }
  DraftYield::Round round;
  round.claimed = at.claimed;
  if (at.taken) {
    round.tokens = stood;
    round.rows = at.record.tree.size();
  }
  at.yield.learn(round);
  tenant.yield.learn(round);
  const int roots = cost_.roots();
  const double plain = cost_.plain(roots);
  const double more = draft_seconds_ + cost_.seconds(rows_, roots) - plain;
  tenant.credit += round.tokens * plain / roots - more / std::max(1, asked_count_);
  tenant.credit = std::min(tenant.credit, kMostCredit * plain);
  if (tenant.trial > 0) {
    // Reading a prompt is paid once, and says nothing of what drafting costs.
    const bool lost = source_.timed > 0 && tenant.credit < -kTrialLoss * plain;
    tenant.trial = lost ? 0 : tenant.trial - 1;
  } else if (at.look > 0) {
    --at.look;
  } else {
    tenant.patience = std::max(kLeastPatience, tenant.patience * (1.0 - 1.0 / 16.0));
    tenant.pass_over = 0;
  }
}

Status Gate::observe(std::span<const DraftCommit> commits) {
  bool ended = false;
  for (const DraftCommit& commit : commits) {
    const auto found = states_.find(commit.id);
    if (found == states_.end() || commit.tree == nullptr) continue;
    State& at = found->second;
    if (at.length == 0 || commit.tokens.size() < at.length) continue;
    ended = true;
    const int stood = judge(commit.tokens.subspan(at.length), at.record, at.tenant().record);
    if (std::exchange(at.asked, false)) settle(at, stood);
    at.record.tree.clear();
  }
  if (ended && std::exchange(under_way_, false)) {
    const double expected = draft_seconds_ + cost_.seconds(rows_, cost_.roots());
    times_.learn(rows_ > cost_.roots(), options_.clock() - started_, expected);
  }
  if (!any_left_out_) return inner().observe(commits);
  commits_.clear();
  for (const DraftCommit& commit : commits) {
    const auto found = states_.find(commit.id);
    if (found == states_.end() || !found->second.left_out) commits_.push_back(commit);
  }
  return commits_.empty() ? Status() : inner().observe(commits_);
}

}  // namespace

std::unique_ptr<Drafter> make_gate(std::unique_ptr<Drafter> drafter, const PassCost& cost,
                                   const GateOptions& options) {
  return std::make_unique<Gate>(std::move(drafter), cost, options);
}

}  // namespace aerie
