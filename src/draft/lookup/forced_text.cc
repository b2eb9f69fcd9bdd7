#include "draft/lookup/forced_text.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace aerie {
namespace {

// That a forced token is spelled as the tokenizer would; the last one may go on into what is free.
constexpr float kSpelled = 0.95f;
// Of fewer tokens the inner drafter makes the better draft.
constexpr size_t kLeastTokens = 2;

class ForcedText final : public Drafter {
 public:
  ForcedText(std::unique_ptr<Drafter> inner, const Tokenizer& tokenizer)
      : inner_(std::move(inner)), tokenizer_(tokenizer) {}

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

  std::unique_ptr<Drafter> inner_;
  const Tokenizer& tokenizer_;
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

Status ForcedText::propose(std::span<DraftRequest> requests) {
  if (constraints_.empty()) return inner_->propose(requests);
  rest_.clear();
  int rows = 0;
  for (DraftRequest& request : requests) {
    const auto found = constraints_.find(request.id);
    if (found != constraints_.end() && draft(*found->second, request)) {
      rows += 1 + request.tree->size();
    } else {
      rest_.push_back(request);
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
                                                  const Tokenizer& tokenizer) {
  return std::make_unique<ForcedText>(std::move(inner), tokenizer);
}

}  // namespace aerie
