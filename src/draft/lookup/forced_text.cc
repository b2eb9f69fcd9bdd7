#include "draft/lookup/forced_text.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "draft/auto/round_cost.h"

namespace aerie {
namespace {

// That a forced token is spelled as the tokenizer would; the last one may go on into what is free.
constexpr float kSpelled = 0.95f;
// Of fewer tokens the inner drafter makes the better draft.
constexpr size_t kLeastTokens = 2;
// What drafts must promise beyond plain decoding, as `auto` has it.
constexpr double kMargin = 0.04;

class ForcedText final : public Drafter {
 public:
  ForcedText(std::unique_ptr<Drafter> inner, const Tokenizer& tokenizer, const PassCost* cost)
      : inner_(std::move(inner)), tokenizer_(tokenizer) {
    if (cost != nullptr) cost_.emplace(*cost);
  }

  std::string_view method() const override { return inner_->method(); }
  const DrafterNeeds& needs() const override { return inner_->needs(); }
  Status open(const DraftSequence& sequence) override {
    AERIE_RETURN_IF_ERROR(inner_->open(sequence));
    if (sequence.constraint != nullptr) constraints_[sequence.id] = sequence.constraint;
    return {};
  }
  void close(SequenceId id) override {
    constraints_.erase(id);
    inner_->close(id);
  }
  int reusable(std::span<const int32_t> tokens, int drafter,
               std::string_view tenant) const override {
    return inner_->reusable(tokens, drafter, tenant);
  }
  bool will_share(SequenceId reader, int length, int drafter,
                  std::string_view tenant) const override {
    return inner_->will_share(reader, length, drafter, tenant);
  }
  void keep(SequenceId id, std::span<const int32_t> tokens) override { inner_->keep(id, tokens); }
  void forget() override { inner_->forget(); }
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override { return inner_->observe(commits); }

 private:
  bool draft(const TokenConstraint& constraint, DraftRequest& request);
  int depth_that_pays(std::span<const DraftRequest> requests);

  std::unique_ptr<Drafter> inner_;
  const Tokenizer& tokenizer_;
  std::optional<RoundCost> cost_;
  std::unordered_map<SequenceId, const TokenConstraint*> constraints_;
  // Scratch.
  std::vector<DraftRequest> rest_;
  std::vector<int32_t> ids_;
};

bool ForcedText::draft(const TokenConstraint& constraint, DraftRequest& request) {
  const std::string forced = constraint.forced();
  if (forced.empty()) return false;
  ids_.clear();
  EncodeOptions options;
  options.add_special = false;
  if (!tokenizer_.encode(forced, options, ids_).ok() || ids_.size() < kLeastTokens) return false;
  const auto most = static_cast<size_t>(std::min(request.max_nodes, request.max_depth));
  float probability = 1.0f;
  for (size_t i = 0; i < std::min(most, ids_.size()); ++i) {
    probability *= kSpelled;
    request.tree->add(ids_[i], static_cast<int32_t>(i) - 1, nullptr, probability);
  }
  return true;
}

// Of the chains that were made, how many tokens of each make the most of the pass; 0: none do.
int ForcedText::depth_that_pays(std::span<const DraftRequest> requests) {
  cost_->start(requests);
  const int roots = cost_->roots();
  double tokens = roots;
  int rows = roots, best = 0;
  double bar = tokens / cost_->plain(roots) * (1.0 + kMargin);
  for (int depth = 1;; ++depth) {
    const int before = rows;
    for (const DraftRequest& request : requests) {
      if (request.tree->size() < depth) continue;
      ++rows;
      tokens +=
          static_cast<double>(request.tree->nodes[static_cast<size_t>(depth) - 1].probability);
    }
    if (rows == before) return best;
    const double rate = tokens / cost_->seconds(rows, roots);
    if (rate <= bar) continue;
    bar = rate;
    best = depth;
  }
}

Status ForcedText::propose(std::span<DraftRequest> requests) {
  if (constraints_.empty()) return inner_->propose(requests);
  bool any = false;
  for (DraftRequest& request : requests) {
    const auto found = constraints_.find(request.id);
    if (found != constraints_.end() && draft(*found->second, request)) any = true;
  }
  if (any && cost_) {
    const auto most = static_cast<size_t>(depth_that_pays(requests));
    for (DraftRequest& request : requests) {
      std::vector<TokenTree::Node>& nodes = request.tree->nodes;
      nodes.resize(std::min(nodes.size(), most));
    }
  }
  rest_.clear();
  int rows = 0;
  for (const DraftRequest& request : requests) {
    if (request.tree->empty()) {
      rest_.push_back(request);
    } else {
      rows += 1 + request.tree->size();
    }
  }
  if (rest_.empty()) return {};
  for (DraftRequest& request : rest_) {
    request.other_rows += rows;
    request.other_tokens += rows;
  }
  return inner_->propose(rest_);
}

}  // namespace

std::unique_ptr<Drafter> make_forced_text_drafter(std::unique_ptr<Drafter> inner,
                                                  const Tokenizer& tokenizer,
                                                  const PassCost* cost) {
  return std::make_unique<ForcedText>(std::move(inner), tokenizer, cost);
}

}  // namespace aerie
