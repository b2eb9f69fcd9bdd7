#include "draft/network/network_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "draft/network/network_draft.h"
#include "sampling/filters.h"
#include "sampling/inverse_cdf.h"

namespace aerie {
namespace {

// Tokens beyond those that can become children, to see how far ahead the children are.
constexpr int kRunnersUp = 3;

// How much closer the scores of two tokens have to be than their log-odds of being the target's
// choice, noise included: with the target's noise in both, what remains unknown is only by how much
// the network's logits are off.
constexpr double kNoiseSharpness = 2.0;

// Rounds after which a network whose first choices never come true is reported, and how seldom
// that is. The worst heads in use are right every fifth time.
constexpr int kTrialRounds = 48;
constexpr int kChanceHits = 2;

// Of drafts whose shape must not depend on what is drawn.
StaticTree drawn_shape(const NetworkDrafterOptions& options) {
  if (options.shape != nullptr) return *options.shape;
  const auto ranks = static_cast<size_t>(options.top_k);
  return StaticTree::grown(options.num_tokens, usual_rank_probability().first(ranks),
                           draft_depth(options));
}

// Of its first choices alone, for a rule that takes no trees.
StaticTree first_path(const StaticTree& shape) {
  return StaticTree::grown(shape.deepest(), usual_rank_probability().first(1), shape.deepest());
}

int32_t likeliest(const Distribution& q) {
  const auto best = std::ranges::max_element(q.probs);
  return q.ids[static_cast<size_t>(best - q.probs.begin())];
}

using Draft = NetworkDraft;

class NetworkDrafter final : public Drafter {
 public:
  NetworkDrafter(std::unique_ptr<DraftNetwork> network, const NetworkDrafterOptions& options);

  std::string_view method() const override { return options_.method; }
  const DrafterNeeds& needs() const override { return network_->needs(); }
  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override;
  int reusable(std::span<const int32_t> tokens, int /*drafter*/,
               std::string_view tenant) const override {
    return network_->reusable(tokens, tenant);
  }
  bool will_share(SequenceId reader, int /*length*/, int /*drafter*/,
                  std::string_view /*tenant*/) const override {
    return network_->will_share(find(reader));
  }
  void keep(SequenceId id, std::span<const int32_t> tokens) override {
    if (const int place = find(id); place >= 0) network_->keep(place, tokens);
  }
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  struct Active {
    int place;
    Draft* draft;
    DraftRequest* request;
  };

  LevelLimits tree_limits() const;
  int find(SequenceId id) const;
  bool activate(DraftRequest& request, Active& active);
  int rows_of(const Active& active) const;
  int logits_of(const Active& active) const;
  Status run_level();
  void rank_all(const DraftOutputs& outputs, std::span<const Active> group);
  void take_top(const DraftOutputs& outputs);
  std::span<const float> all_logits(const DraftOutputs& outputs);
  void set_row(const DraftOutputs& outputs, int row);
  std::span<const float> target_logits();
  void expand(const Active& active, int32_t node);
  void follow_path(int32_t root);
  bool take_best(Draft& draft, int wanted);
  double promised(size_t rank, double probability);
  void offer_depths(const Active& active, const DraftOutputs& outputs, int first_row);
  void list_depths(const Active& active, const DraftOutputs& outputs, int first_row);
  void grow_from_depths(const Active& active);
  void take_ranked(Draft& draft, int wanted);
  void rank(Draft& draft, const SamplingContext& context, int wanted);
  int32_t distribution(Draft& draft, const SamplingContext& context);
  void draw(Draft& draft, int32_t distribution, uint64_t root_position, int wanted);
  void drop_unreadable();
  void finish(const Active& active);
  void learn(Draft& draft, const DraftCommit& commit);
  void watch(const Draft& draft, bool hit);

  std::unique_ptr<DraftNetwork> network_;
  NetworkDrafterOptions options_;
  int vocab_;
  int ranks_ = 1;  // the most children of a node
  StaticTree drawn_shape_, drawn_chain_;
  std::vector<std::unique_ptr<Draft>> drafts_;  // [place]
  int trials_ = 0, hits_ = 0;                   // of the trial rounds
  // Scratch.
  std::vector<Active> active_;
  std::vector<int32_t> path_;
  // The best of each row of a pass, if it is ranked by logits alone.
  std::vector<int32_t> top_ids_;
  std::vector<float> top_logits_, log_sums_;
  bool ranked_ = false;
  // The row under way.
  int row_ = 0;
  const DraftOutputs* outputs_ = nullptr;
  std::vector<float> followed_;  // its logits, where they hang on the tokens before it
  float confidence_ = -1.0f;     // DraftNetwork::follow() of it
  double best_share_ = 0.0;      // of its likeliest token
  std::vector<int32_t> before_;
  std::vector<float> scattered_, fetched_;
  std::vector<ScoredToken> ranking_;
  std::vector<LevelTree::Child> children_;
  std::vector<int32_t> taken_;
};

NetworkDrafter::NetworkDrafter(std::unique_ptr<DraftNetwork> network,
                               const NetworkDrafterOptions& options)
    : network_(std::move(network)),
      options_(options),
      drawn_shape_(drawn_shape(options)),
      drawn_chain_(first_path(drawn_shape_)) {
  if (network_->depths() > 1) {
    options_.num_steps = std::min(draft_depth(options), network_->depths());
  }
  const bool pruned = !network_->target_ids().empty();
  vocab_ = pruned ? options.vocab : std::min(options.vocab, network_->vocab());
  if (pruned) {
    scattered_.assign(static_cast<size_t>(vocab_), -std::numeric_limits<float>::infinity());
  }
  drafts_.resize(static_cast<size_t>(options.max_sequences));
  const size_t ranked = usual_rank_probability().size() + kRunnersUp;
  ranking_.reserve(ranked);
  children_.reserve(ranked);
  taken_.reserve(ranked);
  path_.reserve(static_cast<size_t>(std::max(draft_depth(options), network_->depths())));
  if (network_->follows()) {
    followed_.resize(static_cast<size_t>(network_->vocab()));
    before_.reserve(path_.capacity() + 1);
  }
  ranks_ = options.shape != nullptr ? options.shape->most_ranks() : options.top_k;
  ranks_ = std::min(ranks_, network_->vocab());
  if (options.backend != nullptr) {
    const auto rows = static_cast<size_t>(options.max_logits);
    top_ids_.resize(rows * static_cast<size_t>(ranks_));
    top_logits_.resize(top_ids_.size());
    log_sums_.resize(rows);
  }
}

// Where nothing has to be computed for a node, all of a level's nodes are gone on from.
LevelLimits NetworkDrafter::tree_limits() const {
  LevelLimits limits;
  limits.max_nodes = options_.num_tokens;
  limits.max_depth = draft_depth(options_);
  limits.top_k = options_.top_k;
  if (network_->depths() > 1 && !network_->follows()) limits.width = limits.max_nodes;
  limits.top_p = options_.top_p;
  limits.min_probability = options_.min_probability;
  limits.beams = options_.beams;
  limits.shape = options_.shape;
  return limits;
}

Status NetworkDrafter::open(const DraftSequence& sequence) {
  const auto free =
      std::ranges::find_if(drafts_, [](const auto& draft) { return draft == nullptr; });
  if (free == drafts_.end()) {
    return resource_exhausted("{} serves {} sequences, and all are open", options_.method,
                              drafts_.size());
  }
  AERIE_RETURN_IF_ERROR(network_->open(static_cast<int>(free - drafts_.begin()), sequence));
  auto draft = std::make_unique<Draft>(sequence, vocab_);
  draft->tree.reserve(tree_limits());
  const size_t nodes = LevelTree::most_nodes(tree_limits());
  draft->expansions.reserve(nodes + 1);
  const auto depths = static_cast<size_t>(network_->depths());
  const size_t ranks = usual_rank_probability().size();
  draft->offers.reserve(std::max(nodes + ranks, depths * ranks));
  if (depths > 1) {
    draft->depths.resize(depths);
    for (DraftDepth& depth : draft->depths) depth.children.reserve(ranks);
  }
  if (draft->draws()) {
    const auto run = static_cast<size_t>(most_nodes_run(options_));
    draft->distributions.resize(std::max(run + 1, depths));
  }
  *free = std::move(draft);
  return {};
}

// -1: it is not open.
int NetworkDrafter::find(SequenceId id) const {
  for (size_t place = 0; place < drafts_.size(); ++place) {
    if (drafts_[place] != nullptr && drafts_[place]->sequence.id == id) {
      return static_cast<int>(place);
    }
  }
  return -1;
}

void NetworkDrafter::close(SequenceId id) {
  const int place = find(id);
  if (place < 0) return;
  network_->close(place);
  drafts_[static_cast<size_t>(place)].reset();
}

// Whether there is anything to draft for it; if so all rows that it needs have room.
bool NetworkDrafter::activate(DraftRequest& request, Active& active) {
  const int place = find(request.id);
  if (place < 0) return false;
  Draft& draft = *drafts_[static_cast<size_t>(place)];
  draft.length = 0;
  LevelLimits limits = tree_limits();
  if (draft.draws()) limits.shape = draft.sequence.trees ? &drawn_shape_ : &drawn_chain_;
  limits.max_nodes = std::min(limits.max_nodes, request.max_nodes);
  limits.max_depth = std::min(limits.max_depth, request.max_depth);
  if (request.tokens.empty() || limits.max_nodes <= 0 || limits.max_depth <= 0) return false;
  limits.max_depth =
      network_->start(place, request.tokens, most_nodes_run(options_), limits.max_depth);
  request.unread = network_->unread(place);
  if (limits.max_depth <= 0) return false;
  active = {place, &draft, &request};
  draft.tree.start(limits);
  draft.length = request.tokens.size();
  draft.expansions.assign(1, {});
  draft.offers.clear();
  draft.drawn = 0;
  return true;
}

int NetworkDrafter::rows_of(const Active& active) const {
  const std::span<const int32_t> frontier = active.draft->tree.frontier();
  const bool root = !frontier.empty() && frontier[0] < 0;
  return root ? network_->root_rows(active.place) : static_cast<int>(frontier.size());
}

int NetworkDrafter::logits_of(const Active& active) const {
  const std::span<const int32_t> frontier = active.draft->tree.frontier();
  const bool root = !frontier.empty() && frontier[0] < 0;
  return root ? network_->depths() : static_cast<int>(frontier.size());
}

// Runs the frontiers of all drafts and gives their nodes children. Sequences go on in groups whose
// rows fit a pass. The error is the network's.
Status NetworkDrafter::run_level() {
  for (size_t begin = 0; begin < active_.size();) {
    size_t end = begin;
    int rows = 0, logits = 0;
    for (; end < active_.size(); ++end) {
      const Active& active = active_[end];
      const int more = rows_of(active), wanted = logits_of(active);
      if (more == 0) continue;
      const bool fits = rows + more <= options_.max_rows && logits + wanted <= options_.max_logits;
      assert(fits || rows > 0);
      if (!fits && rows > 0) break;
      rows += more;
      logits += wanted;
      for (const int32_t node : active.draft->tree.frontier()) {
        if (node < 0) {
          network_->add_root(active.place);
        } else {
          network_->add_node(active.place, active.draft->tree, node);
        }
      }
    }
    if (rows > 0) {
      const DraftOutputs outputs = network_->run();
      AERIE_RETURN_IF_ERROR(network_->status());
      rank_all(outputs, std::span(active_).subspan(begin, end - begin));
      int row = 0;
      for (size_t i = begin; i < end; ++i) {
        const Active& active = active_[i];
        if (network_->depths() > 1) {
          offer_depths(active, outputs, row);
          row += network_->depths();
          continue;
        }
        for (const int32_t node : active.draft->tree.frontier()) {
          set_row(outputs, row++);
          expand(active, node);
        }
      }
      AERIE_RETURN_IF_ERROR(network_->status());  // of logits that were fetched
    }
    begin = end;
  }
  for (const Active& active : active_) {
    if (network_->depths() > 1) {
      grow_from_depths(active);
    } else {
      active.draft->tree.advance();
    }
  }
  return {};
}

// The best tokens of all rows, if any draft goes by logits alone.
void NetworkDrafter::rank_all(const DraftOutputs& outputs, std::span<const Active> group) {
  const bool known_now = options_.backend != nullptr && !network_->follows();
  ranked_ = known_now && std::ranges::any_of(group, [](const Active& active) {
              return active.draft->plain && !active.draft->draws();
            });
  if (!ranked_) return;
  const auto vocab = static_cast<int64_t>(outputs.vocab);
  // Of a vocabulary of its own, logits behind those of target_ids() are padding.
  const int64_t known =
      network_->target_ids().empty() ? std::min<int64_t>(vocab, vocab_) : network_->vocab();
  if (outputs.top.k >= ranks_ && known == network_->vocab()) return take_top(outputs);
  const std::span<const float> logits = all_logits(outputs);
  options_.backend->top_k(*options_.pool, logits.data(), vocab, outputs.rows, known, ranks_,
                          top_ids_.data(), top_logits_.data(), log_sums_.data());
}

// What the network found itself.
void NetworkDrafter::take_top(const DraftOutputs& outputs) {
  const auto ranks = static_cast<size_t>(ranks_), found = static_cast<size_t>(outputs.top.k);
  for (size_t row = 0; row < static_cast<size_t>(outputs.rows); ++row) {
    std::ranges::copy(outputs.top.ids.subspan(row * found, ranks), top_ids_.data() + row * ranks);
    std::ranges::copy(outputs.top.logits.subspan(row * found, ranks),
                      top_logits_.data() + row * ranks);
    log_sums_[row] = outputs.top.log_sums[row];
  }
}

// [rows][vocab]
std::span<const float> NetworkDrafter::all_logits(const DraftOutputs& outputs) {
  if (outputs.source == nullptr) return outputs.logits;
  const auto width = static_cast<size_t>(outputs.vocab);
  fetched_.resize(static_cast<size_t>(outputs.rows) * width);
  for (int row = 0; row < outputs.rows; ++row) {
    std::ranges::copy(outputs.source->fetch(row),
                      fetched_.data() + static_cast<size_t>(row) * width);
  }
  return fetched_;
}

void NetworkDrafter::set_row(const DraftOutputs& outputs, int row) {
  row_ = row;
  outputs_ = &outputs;
}

// The row under way in the order of the target's ids.
std::span<const float> NetworkDrafter::target_logits() {
  const std::span<const int32_t> ids = network_->target_ids();
  const std::span<const float> logits =
      network_->follows() ? std::span<const float>(followed_) : outputs_->logits_of(row_);
  if (ids.empty()) return logits.first(std::min(logits.size(), static_cast<size_t>(vocab_)));
  for (size_t i = 0; i < ids.size(); ++i) scattered_[static_cast<size_t>(ids[i])] = logits[i];
  return scattered_;
}

void NetworkDrafter::expand(const Active& active, int32_t node) {
  Draft& draft = *active.draft;
  path_.clear();
  for (int32_t i = node; i >= 0; i = draft.tree.nodes()[static_cast<size_t>(i)].parent) {
    path_.push_back(draft.tree.nodes()[static_cast<size_t>(i)].token);
  }
  std::ranges::reverse(path_);
  if (network_->follows()) follow_path(active.request->tokens.back());
  const std::unique_ptr<TokenConstraint> constraint = draft.constraint_after(path_);
  const SamplingContext context{active.request->tokens, path_, constraint.get()};
  DraftExpansion& own = draft.expansion(node);
  own.first_offer = static_cast<int32_t>(draft.offers.size());
  const int wanted = draft.tree.wanted(node);
  if (draft.draws()) {
    own.distribution = distribution(draft, context);
    draw(draft, own.distribution, context.committed.size() - 1, wanted);
  } else {
    rank(draft, context, wanted);
  }
  own.offers = static_cast<int32_t>(draft.offers.size()) - own.first_offer;
  drop_unreadable();
  draft.tree.expand(node, children_);
  draft.expansions.resize(draft.tree.nodes().size() + 1);
}

// The logits of the row under way as they are behind the path.
void NetworkDrafter::follow_path(int32_t root) {
  const std::span<const float> logits = outputs_->logits_of(row_);
  std::ranges::copy(logits.first(followed_.size()), followed_.begin());
  before_.assign(1, root);
  before_.insert(before_.end(), path_.begin(), path_.end());
  confidence_ = network_->follow(*outputs_, row_, before_, followed_);
}

// Of a network that drafts all depths at once: what follows the nodes of each of them.
void NetworkDrafter::offer_depths(const Active& active, const DraftOutputs& outputs,
                                  int first_row) {
  Draft& draft = *active.draft;
  const bool draws_on_a_path = draft.draws() && draft.sequence.constraint != nullptr;
  if (!network_->follows() && !draws_on_a_path) return list_depths(active, outputs, first_row);
  // Under a constraint each node draws from a distribution of its own, too: what is drawn and
  // forbidden cannot be left out.
  for (; !draft.tree.frontier().empty(); draft.tree.advance()) {
    for (const int32_t node : draft.tree.frontier()) {
      const int depth = node < 0 ? 0 : draft.tree.nodes()[static_cast<size_t>(node)].depth;
      set_row(outputs, first_row + depth);
      expand(active, node);
    }
  }
}

// What any node of a depth offers. Penalties on drafted tokens are those of the path of first
// choices, for all paths; so is a constraint, and what it forbids on others is pruned later.
void NetworkDrafter::list_depths(const Active& active, const DraftOutputs& outputs, int first_row) {
  Draft& draft = *active.draft;
  path_.clear();
  for (size_t depth = 0; depth < draft.depths.size(); ++depth) {
    DraftDepth& list = draft.depths[depth];
    set_row(outputs, first_row + static_cast<int>(depth));
    const std::unique_ptr<TokenConstraint> constraint = draft.constraint_after(path_);
    const SamplingContext context{active.request->tokens, path_, constraint.get()};
    list.expansion = {static_cast<int32_t>(draft.offers.size()), 0, -1};
    list.children.clear();
    if (draft.draws()) {
      list.expansion.distribution = distribution(draft, context);
      const Distribution& q = draft.distributions[static_cast<size_t>(list.expansion.distribution)];
      path_.push_back(likeliest(q));
      continue;
    }
    rank(draft, context, ranks_);
    list.children.assign(children_.begin(), children_.end());
    list.expansion.offers = static_cast<int32_t>(draft.offers.size()) - list.expansion.first_offer;
    if (children_.empty()) return;
    path_.push_back(children_[0].token);
  }
}

void NetworkDrafter::grow_from_depths(const Active& active) {
  Draft& draft = *active.draft;
  for (; !draft.tree.frontier().empty(); draft.tree.advance()) {
    for (const int32_t node : draft.tree.frontier()) {
      const int depth = node < 0 ? 0 : draft.tree.nodes()[static_cast<size_t>(node)].depth;
      const DraftDepth& list = draft.depths[static_cast<size_t>(depth)];
      DraftExpansion& own = draft.expansion(node);
      own = list.expansion;
      if (draft.draws()) {
        own.first_offer = static_cast<int32_t>(draft.offers.size());
        draw(draft, own.distribution, active.request->tokens.size() - 1, draft.tree.wanted(node));
        own.offers = static_cast<int32_t>(draft.offers.size()) - own.first_offer;
        draft.tree.expand(node, children_);
      } else {
        draft.tree.expand(node, list.children);
      }
      draft.expansions.resize(draft.tree.nodes().size() + 1);
    }
  }
}

// What rank_all() found, in children_.
void NetworkDrafter::take_ranked(Draft& draft, int wanted) {
  const std::span<const int32_t> ids = network_->target_ids();
  const auto first = static_cast<size_t>(row_ * ranks_);
  for (size_t i = first; i < first + static_cast<size_t>(std::min(wanted, ranks_)); ++i) {
    const auto index = static_cast<size_t>(top_ids_[i]);
    const double promised =
        std::exp(double{top_logits_[i]} - double{log_sums_[static_cast<size_t>(row_)]});
    const int32_t token = ids.empty() ? top_ids_[i] : ids[index];
    const double share = this->promised(i - first, promised);
    draft.offers.push_back({token, share});
    children_.push_back({token, draft.calibration.estimate(share)});
  }
}

// What a token of this rank promises that has such a probability. A network that knows how sure it
// is says so of the likeliest token; others share the rest, and none promises more than that one.
double NetworkDrafter::promised(size_t rank, double probability) {
  if (confidence_ < 0.0f) return probability;
  const double sure = confidence_;
  if (rank == 0) {
    best_share_ = std::max(probability, 1e-9);
    return sure;
  }
  return probability *
         std::min((1.0 - sure) / std::max(1.0 - best_share_, 1e-9), sure / best_share_);
}

// The same of the row under way alone, if that is all that its draft asks for.
bool NetworkDrafter::take_best(Draft& draft, int wanted) {
  if (options_.backend == nullptr || !draft.plain || !network_->follows()) return false;
  const int64_t known = network_->target_ids().empty()
                            ? std::min<int64_t>(network_->vocab(), vocab_)
                            : network_->vocab();
  options_.backend->top_k(*options_.pool, followed_.data(), known, 1, known, ranks_,
                          top_ids_.data(), top_logits_.data(), log_sums_.data());
  row_ = 0;
  take_ranked(draft, wanted);
  return true;
}

// The best `wanted` children after the row under way, in children_.
void NetworkDrafter::rank(Draft& draft, const SamplingContext& context, int wanted) {
  children_.clear();
  if (ranked_ && draft.plain) return take_ranked(draft, wanted);
  if (take_best(draft, wanted)) return;
  const bool noisy = draft.sequence.sampling.temperature > 0;
  draft.sampler.ranking(target_logits(), context, noisy ? wanted + kRunnersUp : wanted, ranking_);
  double total = 0.0;
  const double best = ranking_[0].score;
  if (noisy) {
    for (const ScoredToken& token : ranking_) {
      total += std::exp((token.score - best) * kNoiseSharpness);
    }
  }
  const size_t most = std::min(ranking_.size(), static_cast<size_t>(wanted));
  for (size_t i = 0; i < most; ++i) {
    const ScoredToken& token = ranking_[i];
    const double share =
        noisy ? std::exp((token.score - best) * kNoiseSharpness) / total : std::exp(token.score);
    const double offered = promised(i, share);
    draft.offers.push_back({token.id, offered});
    children_.push_back({token.id, draft.calibration.estimate(offered)});
  }
}

// Of the row under way; its index.
int32_t NetworkDrafter::distribution(Draft& draft, const SamplingContext& context) {
  draft.sampler.distribution(target_logits(), context, draft.distributions[draft.drawn]);
  return static_cast<int32_t>(draft.drawn++);
}

// The number of children is their shape's, whatever comes of the draws.
void NetworkDrafter::draw(Draft& draft, int32_t distribution, uint64_t root_position, int wanted) {
  children_.clear();
  const Distribution& q = draft.distributions[static_cast<size_t>(distribution)];
  taken_.clear();
  for (int rank = 0; rank < wanted; ++rank) {
    const auto place =
        static_cast<uint32_t>(draft.tree.nodes().size()) + static_cast<uint32_t>(rank);
    const double uniform =
        noise_uniform(draft.sampler.noise(), NoiseStream::kDraft, root_position, place << 16);
    const int32_t token =
        rank == 0 ? inverse_cdf(q, uniform) : inverse_cdf_without(q, taken_, uniform);
    if (token < 0) return;
    taken_.push_back(token);
    const double promised = usual_rank_probability()[static_cast<size_t>(rank)];
    draft.offers.push_back({token, promised});
    children_.push_back({token, draft.calibration.estimate(promised)});
  }
}

// Where nothing can follow, the sampler's answer may be a token that the network lacks.
void NetworkDrafter::drop_unreadable() {
  std::erase_if(children_,
                [&](const LevelTree::Child& child) { return !network_->reads(child.token); });
}

void NetworkDrafter::finish(const Active& active) {
  Draft& draft = *active.draft;
  TokenTree& tree = *active.request->tree;
  draft.tree.finish(tree);
  if (!draft.draws()) return;
  // A shape's nodes are the tree's.
  for (int32_t i = 0; i < tree.size(); ++i) {
    TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    node.proposal =
        &draft.distributions[static_cast<size_t>(draft.expansion(node.parent).distribution)];
    node.without_replacement =
        draft.tree.children(node.parent).data() != &draft.tree.nodes()[static_cast<size_t>(i)];
  }
}

Status NetworkDrafter::propose(std::span<DraftRequest> requests) {
  active_.clear();
  network_->begin();
  for (DraftRequest& request : requests) {
    Active active;
    if (activate(request, active)) active_.push_back(active);
  }
  const auto goes_on = [](const Active& active) { return !active.draft->tree.frontier().empty(); };
  Status status = network_->status();
  while (status.ok() && std::ranges::any_of(active_, goes_on)) status = run_level();
  for (const Active& active : active_) {
    if (status.ok()) {
      finish(active);
    } else {
      active.draft->length = 0;  // there is no draft
    }
  }
  return status;
}

// Walks down the draft along what was committed, whoever proposed it: what was offered there is
// held against what came, and path_ becomes the nodes on the way.
void NetworkDrafter::learn(Draft& draft, const DraftCommit& commit) {
  const auto end = static_cast<size_t>(commit.first) + static_cast<size_t>(commit.rows);
  int32_t node = -1;
  for (size_t at = draft.length; at < commit.tokens.size() && at <= end; ++at) {
    const DraftExpansion& here = draft.expansion(node);
    for (int32_t i = 0; i < here.offers; ++i) {
      const DraftOffer& offer = draft.offers[static_cast<size_t>(here.first_offer + i)];
      draft.calibration.judge(offer.promised, offer.token == commit.tokens[at]);
    }
    if (node < 0 && here.offers > 0) {
      watch(draft, draft.offers[static_cast<size_t>(here.first_offer)].token == commit.tokens[at]);
    }
    node = draft.tree.find_child(node, commit.tokens[at]);
    // The token at `end` is the new root: it is for the next draft to read.
    if (node < 0 || at == end) break;
    path_.push_back(node);
  }
}

void NetworkDrafter::watch(const Draft& draft, bool hit) {
  if (options_.pairing.empty() || trials_ >= kTrialRounds) return;
  // On a flat distribution the best drafter is seldom right, and what is drawn is no first choice.
  if (draft.sequence.sampling.temperature > 1 || draft.draws()) return;
  hits_ += hit ? 1 : 0;
  if (++trials_ < kTrialRounds || hits_ > kChanceHits) return;
  log(LogLevel::kWarning,
      fmt::format("{}: of its first {} first choices {} came true, which is near chance. Usual "
                  "causes: the head is of another model or another fine-tune than the target; it "
                  "was trained on chats and the prompt has no chat template; its layers are tapped "
                  "one off (try tap_layers); its config.json lacks the rope_theta that it was "
                  "trained with. The output is right all the same, only slower",
                  options_.pairing, trials_, hits_));
}

Status NetworkDrafter::observe(std::span<const DraftCommit> commits) {
  for (const DraftCommit& commit : commits) {
    const int place = find(commit.id);
    if (place < 0) continue;
    Draft& draft = *drafts_[static_cast<size_t>(place)];
    path_.clear();
    if (draft.length != 0) learn(draft, commit);
    network_->observe(place, commit, path_);
    draft.length = 0;
    assert(network_->in_step(place, commit));
  }
  return {};
}

}  // namespace

Status check(const NetworkDrafterOptions& options) {
  const auto most_ranks = static_cast<int>(usual_rank_probability().size());
  if (options.num_tokens < 1) {
    return invalid_argument("num_speculative_tokens is {}, which is not positive",
                            options.num_tokens);
  }
  if (options.top_k < 1 || options.top_k > most_ranks) {
    return invalid_argument("topk is {}, must be 1 to {}", options.top_k, most_ranks);
  }
  return {};
}

int64_t draft_cache_positions(const NetworkDrafterOptions& options, int64_t each) {
  const int64_t longest = each + kernels::kPagePositions;
  if (options.cache_positions == 0) return longest * options.max_sequences;
  // Nodes that are run, and pages that are full in part.
  const int64_t spare = int64_t{most_nodes_run(options)} + 2 * kernels::kPagePositions;
  return std::max(longest, std::min(longest * options.max_sequences,
                                    options.cache_positions + spare * options.max_sequences));
}

int draft_depth(const NetworkDrafterOptions& options) {
  const int steps = options.num_steps > 0 ? options.num_steps : options.num_tokens;
  return std::min(steps, options.num_tokens);
}

int most_nodes_run(const NetworkDrafterOptions& options) {
  if (options.shape != nullptr) return options.shape->size();
  return std::max(options.num_tokens, (draft_depth(options) - 1) * options.top_k);
}

int most_nodes_in_pass(const NetworkDrafterOptions& options) {
  return std::max(options.top_k, drawn_shape(options).widest());
}

std::unique_ptr<Drafter> make_network_drafter(std::unique_ptr<DraftNetwork> network,
                                              const NetworkDrafterOptions& options) {
  assert(check(options).ok());
  assert(options.max_logits >= most_nodes_in_pass(options));
  return std::make_unique<NetworkDrafter>(std::move(network), options);
}

}  // namespace aerie
