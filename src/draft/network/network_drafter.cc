#include "draft/network/network_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "draft/network/network_draft.h"
#include "draft/network/row_offers.h"

namespace aerie {
namespace {

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
  const DrafterNeeds& needs() const override { return needs_; }
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
  bool is_chain(const Draft& draft) const;
  bool activate(DraftRequest& request, Active& active);
  int rows_of(const Active& active) const;
  int logits_of(const Active& active) const;
  Status run_level();
  void expand(const Active& active, int32_t node);
  void offer_depths(const Active& active, int first_row);
  void list_depths(const Active& active, int first_row);
  void grow_from_depths(const Active& active);
  void finish(const Active& active);
  void learn(Draft& draft, const DraftCommit& commit);
  void watch(const Draft& draft, bool hit);

  std::unique_ptr<DraftNetwork> network_;
  NetworkDrafterOptions options_;
  DrafterNeeds needs_;
  RowOffers rows_;
  StaticTree drawn_shape_, drawn_chain_;
  std::vector<std::unique_ptr<Draft>> drafts_;  // [place]
  int trials_ = 0, hits_ = 0;                   // of the trial rounds
  // Scratch.
  std::vector<Active> active_;
  std::vector<int32_t> path_;
};

NetworkDrafter::NetworkDrafter(std::unique_ptr<DraftNetwork> network,
                               const NetworkDrafterOptions& options)
    : network_(std::move(network)),
      options_(options),
      needs_(network_->needs()),
      rows_(*network_, options_),
      drawn_shape_(drawn_shape(options)),
      drawn_chain_(first_path(drawn_shape_)) {
  needs_.knows_noise = true;
  needs_.pays_by_level = network_->depths() == 1 && !network_->runs_ahead();
  if (network_->depths() > 1) {
    options_.num_steps = std::min(draft_depth(options), network_->depths());
  }
  drafts_.resize(static_cast<size_t>(options.max_sequences));
  path_.reserve(static_cast<size_t>(std::max(draft_depth(options), network_->depths())));
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
  auto draft = std::make_unique<Draft>(sequence, rows_.vocab());
  draft->tree.reserve(tree_limits());
  const size_t nodes = LevelTree::most_nodes(tree_limits());
  draft->expansions.reserve(nodes + 1);
  const auto depths = static_cast<size_t>(network_->depths());
  const size_t ranks = usual_rank_probability().size();
  const size_t beyond = draft->goes_by_noise() ? RowOffers::kRunnersUp : 0;
  const auto rows = static_cast<size_t>(most_nodes_run(options_)) + 1;
  draft->offers.reserve(std::max(nodes + ranks + rows * beyond, depths * (ranks + beyond)));
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

// Whether each node is the likeliest token behind the one before it, to the end.
bool NetworkDrafter::is_chain(const Draft& draft) const {
  return drafts_chains(options_) && network_->depths() == 1 && draft.plain && !draft.draws();
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
  if (needs_.pays_by_level) limits.least_path = request.least_path;
  if (request.tokens.empty() || limits.max_nodes <= 0 || limits.max_depth <= 0) return false;
  limits.max_depth =
      network_->start(place, request.tokens, most_nodes_run(options_), limits.max_depth);
  request.unread = network_->unread(place);
  if (limits.max_depth <= 0) return false;
  if (is_chain(draft)) {
    network_->expect_chain(place, std::min(limits.max_nodes, limits.max_depth));
  }
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
      const auto is_plain = [](const Active& active) {
        return active.draft->plain && !active.draft->draws();
      };
      rows_.begin_pass(outputs,
                       std::any_of(active_.begin() + static_cast<std::ptrdiff_t>(begin),
                                   active_.begin() + static_cast<std::ptrdiff_t>(end), is_plain));
      int row = 0;
      for (size_t i = begin; i < end; ++i) {
        const Active& active = active_[i];
        if (network_->depths() > 1) {
          offer_depths(active, row);
          row += network_->depths();
          continue;
        }
        for (const int32_t node : active.draft->tree.frontier()) {
          rows_.set_row(row++);
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

void NetworkDrafter::expand(const Active& active, int32_t node) {
  Draft& draft = *active.draft;
  path_.clear();
  for (int32_t i = node; i >= 0; i = draft.tree.nodes()[static_cast<size_t>(i)].parent) {
    path_.push_back(draft.tree.nodes()[static_cast<size_t>(i)].token);
  }
  std::ranges::reverse(path_);
  if (network_->follows()) rows_.follow(active.request->tokens.back(), path_);
  const std::unique_ptr<TokenConstraint> constraint = draft.constraint_after(path_);
  const SamplingContext context{active.request->tokens, path_, constraint.get()};
  DraftExpansion& own = draft.expansion(node);
  own.first_offer = static_cast<int32_t>(draft.offers.size());
  const int wanted = draft.tree.wanted(node);
  if (draft.draws()) {
    own.distribution = rows_.distribution(draft, context);
    rows_.draw(draft, own.distribution, context.committed.size() - 1, wanted);
  } else {
    rows_.rank(draft, context, wanted);
  }
  own.offers = static_cast<int32_t>(draft.offers.size()) - own.first_offer;
  rows_.drop_unreadable();
  draft.tree.expand(node, rows_.children());
  draft.expansions.resize(draft.tree.nodes().size() + 1);
}

// Of a network that drafts all depths at once: what follows the nodes of each of them.
void NetworkDrafter::offer_depths(const Active& active, int first_row) {
  Draft& draft = *active.draft;
  const bool draws_on_a_path = draft.draws() && draft.sequence.constraint != nullptr;
  if (!network_->follows() && !draws_on_a_path) return list_depths(active, first_row);
  // Under a constraint each node draws from a distribution of its own, too: what is drawn and
  // forbidden cannot be left out.
  for (; !draft.tree.frontier().empty(); draft.tree.advance()) {
    for (const int32_t node : draft.tree.frontier()) {
      const int depth = node < 0 ? 0 : draft.tree.nodes()[static_cast<size_t>(node)].depth;
      rows_.set_row(first_row + depth);
      expand(active, node);
    }
  }
}

// What any node of a depth offers. Penalties on drafted tokens are those of the path of first
// choices, for all paths; so is a constraint, and what it forbids on others is pruned later.
void NetworkDrafter::list_depths(const Active& active, int first_row) {
  Draft& draft = *active.draft;
  path_.clear();
  for (size_t depth = 0; depth < draft.depths.size(); ++depth) {
    DraftDepth& list = draft.depths[depth];
    rows_.set_row(first_row + static_cast<int>(depth));
    const std::unique_ptr<TokenConstraint> constraint = draft.constraint_after(path_);
    const SamplingContext context{active.request->tokens, path_, constraint.get()};
    list.expansion = {static_cast<int32_t>(draft.offers.size()), 0, -1};
    list.children.clear();
    if (draft.draws()) {
      list.expansion.distribution = rows_.distribution(draft, context);
      const Distribution& q = draft.distributions[static_cast<size_t>(list.expansion.distribution)];
      path_.push_back(likeliest(q));
      continue;
    }
    rows_.rank(draft, context, rows_.ranks());
    const std::span<const LevelTree::Child> children = rows_.children();
    list.children.assign(children.begin(), children.end());
    list.expansion.offers = static_cast<int32_t>(draft.offers.size()) - list.expansion.first_offer;
    if (children.empty()) return;
    path_.push_back(children[0].token);
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
        rows_.draw(draft, own.distribution, active.request->tokens.size() - 1,
                   draft.tree.wanted(node));
        own.offers = static_cast<int32_t>(draft.offers.size()) - own.first_offer;
        draft.tree.expand(node, rows_.children());
      } else {
        draft.tree.expand(node, list.children);
      }
      draft.expansions.resize(draft.tree.nodes().size() + 1);
    }
  }
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
  network_->begin(requests.empty() ? nullptr : requests.front().ahead);
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
    const auto offers =
        std::span<const DraftOffer>(draft.offers)
            .subspan(static_cast<size_t>(here.first_offer), static_cast<size_t>(here.offers));
    for (const DraftOffer& offer : offers) {
      draft.calibration.judge(offer.promised, offer.token == commit.tokens[at]);
    }
    if (draft.goes_by_noise()) rows_.learn(draft, offers, commit.tokens[at]);
    if (node < 0 && !offers.empty()) watch(draft, offers[0].token == commit.tokens[at]);
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

bool drafts_chains(const NetworkDrafterOptions& options) {
  return options.top_k == 1 && options.shape == nullptr && options.min_probability <= 0.0;
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
