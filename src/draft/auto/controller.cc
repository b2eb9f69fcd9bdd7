#include "draft/auto/controller.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
#include "draft/auto/combined.h"
#include "draft/auto/draft_record.h"
#include "draft/auto/later_opening.h"
#include "draft/auto/round_cost.h"
#include "draft/method.h"
#include "draft/tenant_map.h"
#include "draft/tree/tree_growth.h"

namespace aerie {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A drafter is asked in every round while a call costs less than this part of plain decoding's
// pass.
constexpr double kCheap = 0.01;
// Nodes are chosen for their estimates being high, so that these are too high on average: those
// that promised 0.46 of a token for three rows brought 0.26. What is near certain is hardly so.
constexpr double kDoubt = 0.5;
constexpr double kGood = 0.95;  // the chance of a node of a draft as good as drafts are
double doubted(double probability) {
  return probability * (1.0 - kDoubt * (1.0 - probability));
}
constexpr int kMoreRows = 4;  // by which what a further row costs is told
// Rounds between two looks at a drafter that does not pay.
constexpr int kLeastPatience = 16;
constexpr int kMostPatience = 256;
// Of one that takes time at least so many: with these it has more to read than usual, so that
// reading is not taken for drafting.
constexpr int kLeastIdle = ControlledDrafter::kUsualArrears + 8;
// What looks at it may lose, of the time of plain decoding; and one that follows another whose
// draft came true, in plain rounds.
constexpr double kLookShare = 0.01;
constexpr double kFollowingLoss = 0.4;
constexpr int kLookDepth = 2;
// What a drafter has to make up for before it drafts again must pay within so many rounds.
constexpr double kReadingRounds = 16.0;
// Of so many sequences that a drafter is not worth its time for, it drafts for one.
constexpr int kTrialSequences = 16;
// Tokens of a prompt that are read again so that all drafters can draft.
constexpr int kWorthReading = 256;
// Of which it is kept how drafts fared.
constexpr int kMostTenants = 1024;

class Controller final : public Drafter {
 public:
  Controller(std::vector<std::unique_ptr<Drafter>> drafters, const PassCost& cost,
             const ControllerOptions& options, DrafterNeeds needs)
      : cost_(cost), options_(options), needs_(std::move(needs)), own_taps_(needs_.tap_layers) {
    if (!options_.clock) options_.clock = steady_seconds;
    for (auto& drafter : drafters) sources_.emplace_back(std::move(drafter));
    editor_.reserve(options.max_nodes * static_cast<int>(sources_.size()));
  }

  std::string_view method() const override { return kAutoWord; }
  const DrafterNeeds& needs() const override { return needs_; }
  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override;
  int reusable(std::span<const int32_t> tokens, int drafter,
               std::string_view tenant) const override;
  bool will_share(SequenceId reader, int length, int drafter,
                  std::string_view tenant) const override;
  void keep(SequenceId id, std::span<const int32_t> tokens) override;
  void forget() override;
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  // Whose sequences have something in common.
  struct Tenant {
    std::vector<TenantRecord> records;  // [source]
    int passed_over = 0;
    uint64_t round = 0;  // the last in which it had any
  };
  using Tenants = TenantMap<Tenant>;
  struct State {
    Tenants::Entry* tenant = nullptr;
    TreeLimits limits;                  // of what the rule takes
    std::vector<bool> left_out;         // [source]: does not draft for this sequence
    std::optional<LaterOpening> later;  // for those
    size_t length = 0;                  // tokens when drafts were last asked for
    bool whole = false;                 // this round's draft must not be cut
    double whole_tokens = 0.0;          // what it is expected to add
    std::vector<DraftRecord> records;   // [source]
    TokenTree tree;                     // all of theirs, merged
  };
  struct Plan {
    size_t source = 0;
    int depth = 0;  // 0: nobody is asked
    double rate = 0.0;
    double least_path = 0.0;  // as in DraftRequest
  };

  bool is_cheap(const ControlledDrafter& source) const;
  // Rather than read so much again for a drafter that takes time, a sequence does without it.
  bool goes_without(const ControlledDrafter& source, int unread) const {
    return source.timed > 0 && !is_cheap(source) && unread > kWorthReading;
  }
  bool could_pay(int roots, int most_nodes) const;
  bool pays(size_t source, const Tenant& tenant, int sequences) const;
  bool is_left_out(size_t source, const DraftSequence& sequence, Tenant& tenant);
  void let_in(const DraftRequest& request);
  Status ask(size_t source, std::span<DraftRequest> requests, int max_depth, double least_path);
  void take(size_t source, State& state);
  Plan plan(std::span<const DraftRequest> requests, double rate);
  double look_loss(size_t source, const DraftRequest& request, double rate);
  void plan_for(size_t source, std::span<const DraftRequest> requests, Plan& best);
  void begin_round(std::span<const DraftRequest> requests);
  double choose(std::span<const DraftRequest> requests);
  std::span<const DraftCommit> commits_of(size_t source, std::span<const DraftCommit> commits);
  State& state(SequenceId id) { return states_.find(id)->second; }
  TenantRecord& tenant_record(SequenceId id, size_t source) {
    return state(id).tenant->value.records[source];
  }

  std::vector<ControlledDrafter> sources_;
  RoundCost cost_;
  ControllerOptions options_;
  DrafterNeeds needs_;
  OwnTaps own_taps_;
  std::unordered_map<SequenceId, State> states_;
  Tenants tenants_{kMostTenants};
  uint64_t rounds_ = 0;
  // Scratch.
  TreeEditor editor_;
  std::vector<DraftRequest> asked_;
  std::vector<DraftCommit> commits_;
  bool any_left_out_ = false;  // of any sequence so far
  std::vector<int> kept_;      // [request]: nodes of its tree, the likeliest first
  std::vector<int> offered_;
};

Status Controller::open(const DraftSequence& sequence) {
  if (states_.contains(sequence.id)) {
    return invalid_argument("drafter auto: sequence {} is open already", sequence.id);
  }
  Tenants::Entry& tenant = tenants_.hold(
      sequence.tenant, [&] { return Tenant{std::vector<TenantRecord>(sources_.size())}; });
  tenants_.weigh(tenant, 1);
  std::vector<bool> left_out(sources_.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    left_out[i] = is_left_out(i, sequence, tenant.value);
    if (left_out[i]) continue;
    if (Status status = sources_[i].drafter->open(sequence); !status.ok()) {
      while (i-- > 0) {
        if (!left_out[i]) sources_[i].drafter->close(sequence.id);
      }
      tenants_.release(tenant);
      return status;
    }
  }
  State& state = states_[sequence.id];
  state.tenant = &tenant;
  state.left_out = std::move(left_out);
  if (std::ranges::count(state.left_out, true) > 0) {
    any_left_out_ = true;
    state.later.emplace(sequence);
  }
  if (!sequence.trees) state.limits.max_children = 1;
  state.records.resize(sources_.size());
  const auto nodes = static_cast<size_t>(options_.max_nodes);
  state.tree.nodes.reserve(nodes * sources_.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    DraftRecord& record = state.records[i];
    record.noise = UnseenNoise(sequence, *sources_[i].drafter);
    record.tree.nodes.reserve(nodes);
    record.claims.reserve(nodes);
  }
  return {};
}

// A drafter that takes time has to read what is committed, too: where it would not be asked, that
// is time for nothing. Of some sequences it does, so that a change is seen.
bool Controller::is_left_out(size_t index, const DraftSequence& sequence, Tenant& tenant) {
  const ControlledDrafter& source = sources_[index];
  if (source.timed == 0 || is_cheap(source)) return false;
  if (sequence.reused > 0) {
    const auto known = sequence.tokens.first(static_cast<size_t>(sequence.reused) + 1);
    if (source.drafter->reusable(known, sequence.drafter, sequence.tenant) < sequence.reused) {
      return true;
    }
  }
  const int sequences = static_cast<int>(states_.size()) + 1;
  if (!could_pay(sequences, sequences * options_.max_nodes)) return true;
  if (pays(index, tenant, sequences)) return false;
  return ++tenant.passed_over % kTrialSequences != 0;
}

// Drafters that were left out of a sequence have a part in it once they pay, as where there are
// fewer sequences than when it came.
void Controller::let_in(const DraftRequest& request) {
  State& at = state(request.id);
  if (!at.later || request.tokens.empty()) return;
  const int sequences = static_cast<int>(states_.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (!at.left_out[i]) continue;
    const bool is_wanted =
        is_cheap(sources_[i]) || (could_pay(sequences, sequences * options_.max_nodes) &&
                                  pays(i, at.tenant->value, sequences));
    if (!is_wanted || !sources_[i].drafter->open(at.later->with(request.tokens)).ok()) continue;
    at.left_out[i] = false;
  }
  if (std::ranges::count(at.left_out, true) == 0) at.later.reset();
}

// Whether it would be asked for so many sequences like those of the tenant that it has drafted for.
bool Controller::pays(size_t index, const Tenant& tenant, int sequences) const {
  const ControlledDrafter& source = sources_[index];
  const TenantRecord& record = tenant.records[index];
  const double count = sequences;
  const double plain = count / cost_.plain(sequences);
  double tokens = count, reached = 1.0, drafted = 1.0, levels = 0.0;
  for (int depth = 1; depth <= DepthRecord::kDepths; ++depth) {
    reached *= record.depths.estimate(depth - 1, nullptr);
    if (depth > 1) drafted *= record.levels.estimate(depth - 1, nullptr);
    tokens += count * reached;
    levels += drafted;
    const double rows = count * (1.0 + record.nodes_per_level * levels);
    const double seconds = cost_.apart(static_cast<int>(rows), sequences) +
                           source.call.seconds(levels) * std::max(1.0, count / source.batch);
    if (tokens / seconds > plain * (1.0 + options_.margin)) return true;
  }
  return false;
}

void Controller::close(SequenceId id) {
  const auto found = states_.find(id);
  if (found == states_.end()) return;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (!found->second.left_out[i]) sources_[i].drafter->close(id);
  }
  tenants_.release(*found->second.tenant);
  states_.erase(found);
}

int Controller::reusable(std::span<const int32_t> tokens, int drafter,
                         std::string_view tenant) const {
  const int all = static_cast<int>(tokens.size()) - 1;
  int reusable = all;
  for (const ControlledDrafter& source : sources_) {
    const int own = source.drafter->reusable(tokens, drafter, tenant);
    if (!goes_without(source, all - own)) reusable = std::min(reusable, own);
  }
  return reusable;
}

bool Controller::will_share(SequenceId reader, int length, int drafter,
                            std::string_view tenant) const {
  return std::ranges::all_of(sources_, [&](const ControlledDrafter& source) {
    return goes_without(source, length) ||
           source.drafter->will_share(reader, length, drafter, tenant);
  });
}

void Controller::keep(SequenceId id, std::span<const int32_t> tokens) {
  const auto found = states_.find(id);
  if (found == states_.end()) return;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (!found->second.left_out[i]) sources_[i].drafter->keep(id, tokens);
  }
}

void Controller::forget() {
  for (ControlledDrafter& source : sources_) source.forget();
  tenants_.clear();
}

bool Controller::is_cheap(const ControlledDrafter& source) const {
  const int rows = std::max(1, static_cast<int>(source.batch));
  return source.timed > 0 && !source.whole && source.seconds < kCheap * cost_.plain(rows);
}

// Whether choose() might take any node, were all drafts as good as drafts are.
bool Controller::could_pay(int roots, int most_nodes) const {
  const double bar = roots / cost_.plain(roots) * (1.0 + options_.margin);
  for (int nodes = 1; nodes <= std::min(most_nodes, options_.max_rows - roots); ++nodes) {
    if ((roots + doubted(kGood) * nodes) / cost_.seconds(roots + nodes, roots) > bar) return true;
  }
  return false;
}

Status Controller::ask(size_t index, std::span<DraftRequest> requests, int max_depth,
                       double least_path) {
  ControlledDrafter& source = sources_[index];
  source.asked = true;
  for (const DraftRequest& request : requests) tenant_record(request.id, index).idle = 0;
  asked_.clear();
  for (const DraftRequest& request : requests) {
    State& at = state(request.id);
    if (at.whole || at.left_out[index]) continue;
    DraftRecord& record = at.records[index];
    record.tree.clear();
    DraftRequest& copy = asked_.emplace_back(request);
    copy.tree = &record.tree;
    copy.max_depth = std::min(request.max_depth, max_depth);
    copy.least_path = least_path;
    record.asked = source.drafter->needs().pays_by_level ? copy.max_depth : 0;
    copy.ahead = nullptr;  // what is verified is chosen when it is there
  }
  if (asked_.empty()) return {};
  const double start = options_.clock();
  AERIE_RETURN_IF_ERROR(source.drafter->propose(asked_));
  const double seconds = options_.clock() - start;
  double arrears = 0.0;
  for (const DraftRequest& request : asked_) {
    DraftRecord& record = state(request.id).records[index];
    arrears = std::max(arrears, record.note(request.tokens.size(), request.unread));
  }
  const double plain = cost_.plain(static_cast<int>(asked_.size()));
  if (source.time(seconds, asked_, arrears, kCheap * plain)) {
    source.warn_if_dear(plain);
    for (const DraftRequest& request : asked_) {
      tenant_record(request.id, index)
          .measure(*request.tree, state(request.id).records[index].asked);
    }
  }
  for (DraftRequest& request : requests) {
    State& at = state(request.id);
    if (!at.whole) take(index, at);
  }
  return {};
}

// Joins what the drafter made to what there is already.
void Controller::take(size_t index, State& at) {
  DraftRecord& record = at.records[index];
  if (record.tree.empty()) return;
  const TenantRecord& general = at.tenant->value.records[index];
  calibrate(record, general, at.length);
  if (!may_be_cut(record.tree)) {
    sources_[index].whole = true;
    at.whole = true;
    int deepest = 0;
    for (const TokenTree::Node& node : record.tree.nodes) {
      if (node.role == NodeRole::kDraft) deepest = std::max(deepest, node.depth);
    }
    at.whole_tokens = record.depths.tokens(deepest, &general.depths);
    at.tree.nodes.assign(record.tree.nodes.begin(), record.tree.nodes.end());
    at.tree.proposals.assign(record.tree.proposals.begin(), record.tree.proposals.end());
    return;
  }
  editor_.merge(at.tree, record.tree);
}

// How many of each tree's nodes make the most of a pass, into kept_, and the tokens a second that
// are then to be expected.
double Controller::choose(std::span<const DraftRequest> requests) {
  kept_.assign(requests.size(), 0);
  offered_.assign(requests.size(), 0);
  const int roots = cost_.roots();
  int rows = roots;
  double tokens = rows;
  for (size_t i = 0; i < requests.size(); ++i) {
    const State& at = state(requests[i].id);
    if (!at.whole) continue;
    kept_[i] = offered_[i] = at.tree.size();
    tokens += at.whole_tokens;
    rows += kept_[i];
  }
  double best = tokens / cost_.seconds(rows, roots);
  double bar = best * (1.0 + options_.margin);
  while (++rows <= options_.max_rows) {
    const TokenTree::Node* likeliest = nullptr;
    size_t of = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const TokenTree& tree = state(requests[i].id).tree;
      if (offered_[i] >= std::min(tree.size(), requests[i].max_nodes)) continue;
      const TokenTree::Node& node = tree.nodes[static_cast<size_t>(offered_[i])];
      if (likeliest != nullptr && node.probability <= likeliest->probability) continue;
      likeliest = &node;
      of = i;
    }
    if (likeliest == nullptr) break;
    ++offered_[of];
    tokens += doubted(likeliest->probability);
    const double rate = tokens / cost_.seconds(rows, roots);
    if (rate <= bar) continue;
    best = bar = rate;
    kept_.assign(offered_.begin(), offered_.end());
  }
  return best;
}

void Controller::plan_for(size_t index, std::span<const DraftRequest> requests, Plan& best) {
  const ControlledDrafter& source = sources_[index];
  const auto count = static_cast<double>(requests.size());
  const int roots = cost_.roots();
  double tokens = roots, nodes_per_level = 0.0, reading = 0.0, onward = 0.0;
  for (const DraftRequest& request : requests) {
    const TenantRecord& record = tenant_record(request.id, index);
    nodes_per_level += record.nodes_per_level / count;
    onward += record.onward.estimate(DepthRecord::kHopeful) / count;
    const DraftRecord& own = state(request.id).records[index];
    reading += own.arrears(request.tokens.size()) * source.reading_seconds / kReadingRounds;
  }
  // Levels of the deepest draft, and of all of them.
  double levels = 0.0, all_levels = 0.0;
  for (int depth = 1; depth <= DepthRecord::kDepths; ++depth) {
    double gain = 0.0, nobody = 1.0;
    for (const DraftRequest& request : requests) {
      if (request.max_nodes < depth || state(request.id).left_out[index]) continue;
      const TenantRecord& record = tenant_record(request.id, index);
      double reached = 1.0, drafted = 1.0;
      for (int d = 0; d < depth; ++d) {
        reached *= state(request.id).records[index].depths.estimate(d, &record.depths);
        if (d > 0) drafted *= record.levels.estimate(d, nullptr);
      }
      gain += reached;
      all_levels += drafted;
      nobody *= 1.0 - drafted;
    }
    if (gain < 0.01 * count) return;
    tokens += gain;
    levels += 1.0 - nobody;
    const int rows = roots + static_cast<int>(nodes_per_level * all_levels);
    const double rate =
        tokens / (cost_.seconds(rows, roots) + source.call.seconds(levels) + reading);
    if (rows > options_.max_rows || rate <= best.rate) continue;
    // What a draft that gets to a node has to be worth there for another level and its row.
    const double row =
        (cost_.seconds(rows + kMoreRows, roots) - cost_.seconds(rows, roots)) / kMoreRows;
    const double level = source.call.level() / count;
    best = {index, depth, rate, std::clamp(rate * (level + row) / onward, 0.0, kGood)};
  }
}

// Seconds that a look at the drafter for this sequence is expected to cost beyond what it saves,
// where `rate` tokens a second are had without.
double Controller::look_loss(size_t source, const DraftRequest& request, double rate) {
  const ControlledDrafter& its = sources_[source];
  const DraftRecord& own = state(request.id).records[source];
  const DepthRecord& general = tenant_record(request.id, source).depths;
  const int roots = cost_.roots();
  const double tokens = roots + own.depths.tokens(kLookDepth, &general);
  return its.call.seconds(kLookDepth) + own.arrears(request.tokens.size()) * its.reading_seconds +
         cost_.seconds(roots + kLookDepth, roots) - tokens / rate;
}

// Which of the drafters that take time is asked, if what is there already promises `rate`.
Controller::Plan Controller::plan(std::span<const DraftRequest> requests, double rate) {
  Plan best;
  best.rate = rate * (1.0 + options_.margin);
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (!is_cheap(sources_[i]) && !sources_[i].asked) plan_for(i, requests, best);
  }
  if (best.depth > 0) {
    for (const DraftRequest& request : requests) {
      tenant_record(request.id, best.source).patience = kLeastPatience;
    }
    return best;
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (is_cheap(sources_[i])) continue;
    bool due = false;
    for (const DraftRequest& request : requests) {
      TenantRecord& record = tenant_record(request.id, i);
      DraftRecord& own = state(request.id).records[i];
      due = due || own.looks;
      const bool follows = own.came_true;
      if (own.looks || (!follows && record.idle < std::max(record.patience, kLeastIdle))) continue;
      const double share = follows ? kFollowingLoss : record.idle * kLookShare;
      if (share * cost_.plain(1) < look_loss(i, request, rate)) continue;
      due = own.looks = true;
      record.idle = 0;
      if (!follows) record.patience = std::min(kMostPatience, 2 * record.patience);
    }
    if (due) return {i, kLookDepth, rate};
  }
  return best;
}

// Another round for all drafters, and for each tenant that has a request in it.
void Controller::begin_round(std::span<const DraftRequest> requests) {
  ++rounds_;
  for (ControlledDrafter& source : sources_) source.asked = false;
  for (const DraftRequest& request : requests) {
    State& at = state(request.id);
    Tenant& tenant = at.tenant->value;
    const bool is_first = std::exchange(tenant.round, rounds_) != rounds_;
    for (size_t i = 0; i < sources_.size(); ++i) {
      TenantRecord& record = tenant.records[i];
      record.idle += is_first ? 1 : 0;
      if (record.idle < 2) continue;
      at.records[i].depths.grow_old(0);
      if (is_first) record.depths.grow_old(0);
    }
  }
}

Status Controller::propose(std::span<DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    const auto found = states_.find(request.id);
    if (found == states_.end()) {
      return invalid_argument("drafter auto: sequence {} is not open", request.id);
    }
    State& at = found->second;
    at.length = request.tokens.size();
    at.whole = false;
    at.tree.clear();
    for (DraftRecord& record : at.records) record.tree.clear();
  }
  if (requests.empty()) return {};
  cost_.start(requests);
  const int roots = cost_.roots();
  begin_round(requests);
  if (any_left_out_ && rounds_ % kLeastPatience == 0) {
    for (const DraftRequest& request : requests) let_in(request);
  }
  int most_nodes = 0;
  for (const DraftRequest& request : requests) most_nodes += request.max_nodes;
  const bool full = !could_pay(roots, most_nodes);
  for (size_t i = 0; i < sources_.size(); ++i) {
    const ControlledDrafter& source = sources_[i];
    if (source.timed > 0 && !is_cheap(source)) continue;
    // What is known of it is kept up all the same.
    const auto was_idle = [&](const DraftRequest& request) {
      return tenant_record(request.id, i).idle >= kLeastPatience;
    };
    if (source.timed > 0 && full && std::ranges::none_of(requests, was_idle)) continue;
    AERIE_RETURN_IF_ERROR(ask(i, requests, TreeLimits::kNone, 0.0));
  }
  const auto sort = [&] {
    for (DraftRequest& request : requests) {
      State& at = state(request.id);
      at.limits.max_nodes = request.max_nodes;
      if (!at.whole) editor_.keep_best(at.tree, at.limits);
    }
  };
  sort();
  const double rate = choose(requests);
  if (const Plan dear = plan(requests, rate); dear.depth > 0) {
    AERIE_RETURN_IF_ERROR(ask(dear.source, requests, dear.depth, dear.least_path));
    sort();
    choose(requests);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const TokenTree& tree = state(requests[i].id).tree;
    TokenTree& out = *requests[i].tree;
    out.nodes.assign(tree.nodes.begin(), tree.nodes.begin() + kept_[i]);
    out.proposals.assign(tree.proposals.begin(), tree.proposals.end());
  }
  return {};
}

Status Controller::observe(std::span<const DraftCommit> commits) {
  for (const DraftCommit& commit : commits) {
    const auto found = states_.find(commit.id);
    if (found == states_.end() || commit.tree == nullptr) continue;
    State& at = found->second;
    if (at.length == 0 || commit.tokens.size() < at.length) continue;
    for (size_t i = 0; i < sources_.size(); ++i) {
      DraftRecord& record = at.records[i];
      const int stood =
          judge(commit.tokens.subspan(at.length), record, at.tenant->value.records[i]);
      record.came_true = std::exchange(record.looked_at, false) && stood > 0;
      record.tree.clear();
    }
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    Drafter& drafter = *sources_[i].drafter;
    const std::span<const DraftCommit> own = commits_of(i, commits);
    if (!own.empty()) AERIE_RETURN_IF_ERROR(drafter.observe(own_taps_.of(drafter, own)));
  }
  return {};
}

std::span<const DraftCommit> Controller::commits_of(size_t source,
                                                    std::span<const DraftCommit> commits) {
  if (!any_left_out_) return commits;
  commits_.clear();
  for (const DraftCommit& commit : commits) {
    const auto found = states_.find(commit.id);
    if (found != states_.end() && found->second.left_out[source]) continue;
    commits_.push_back(commit);
  }
  return commits_;
}

}  // namespace

Expected<std::unique_ptr<Drafter>> make_controller(std::vector<std::unique_ptr<Drafter>> drafters,
                                                   const PassCost& cost,
                                                   const ControllerOptions& options) {
  assert(!drafters.empty());
  AERIE_ASSIGN_OR_RETURN(DrafterNeeds needs, common_needs(drafters));
  return std::unique_ptr<Drafter>(
      std::make_unique<Controller>(std::move(drafters), cost, options, std::move(needs)));
}

}  // namespace aerie
