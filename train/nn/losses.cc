#include "train/nn/losses.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace aerie::train {
namespace {

constexpr std::array<std::pair<Divergence, std::string_view>, 6> kNames = {{
    {Divergence::kForwardKl, "kl"},
    {Divergence::kReverseKl, "reverse-kl"},
    {Divergence::kJensenShannon, "js"},
    {Divergence::kTotalVariation, "tv"},
    {Divergence::kNegativeLogAcceptance, "nla"},
    {Divergence::kAcceptance, "lk"},
}};

at::Tensor kl(const at::Tensor& log_a, const at::Tensor& log_b) {
  return (log_a.exp() * (log_a - log_b)).sum(-1);
}

at::Tensor overlap(const at::Tensor& log_p, const at::Tensor& log_q) {
  return at::minimum(log_p.exp(), log_q.exp()).sum(-1);
}

}  // namespace

Expected<Divergence> parse_divergence(std::string_view name) {
  for (const auto& [kind, text] : kNames) {
    if (text == name) {
      return kind;
    }
  }
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("\"{}\" is no loss: there are kl, reverse-kl, js, tv, nla and lk", name));
}

std::string_view divergence_name(Divergence divergence) {
  return kNames[static_cast<size_t>(divergence)].second;
}

at::Tensor divergence(Divergence kind, const at::Tensor& target_logits,
                      const at::Tensor& draft_logits) {
  const at::Tensor log_p = target_logits.detach().log_softmax(-1);
  const at::Tensor log_q = draft_logits.log_softmax(-1);
  switch (kind) {
    case Divergence::kForwardKl:
      return kl(log_p, log_q);
    case Divergence::kReverseKl:
      return kl(log_q, log_p);
    case Divergence::kJensenShannon: {
      const at::Tensor log_mean = at::logaddexp(log_p, log_q) - 0.6931471805599453;
      return 0.5 * (kl(log_p, log_mean) + kl(log_q, log_mean));
    }
    case Divergence::kTotalVariation:
      return 1.0 - overlap(log_p, log_q);
    case Divergence::kNegativeLogAcceptance:
      return -overlap(log_p, log_q).clamp_min(1e-20).log();
    case Divergence::kAcceptance: {
      const at::Tensor accepted = overlap(log_p, log_q);
      const at::Tensor share = (accepted.detach() * -3.0).exp();
      return share * kl(log_p, log_q) + (1.0 - share) * (1.0 - accepted);
    }
  }
  return {};
}

at::Tensor smooth_l1_rows(const at::Tensor& a, const at::Tensor& b) {
  return at::smooth_l1_loss(a, b, at::Reduction::None).mean(-1);
}

at::Tensor acceptance(const at::Tensor& target_logits, const at::Tensor& draft_logits) {
  return overlap(target_logits.detach().log_softmax(-1), draft_logits.detach().log_softmax(-1));
}

}  // namespace aerie::train
