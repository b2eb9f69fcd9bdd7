// Losses with their gradients in place are those of autograd over losses.h.
#include "train/nn/loss_gradients.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "train/nn/autocast.h"
#include "train/nn/output_loss.h"

namespace aerie::train::loss_gradients_test {

constexpr Divergence kAll[] = {Divergence::kForwardKl,
                               Divergence::kReverseKl,
                               Divergence::kJensenShannon,
                               Divergence::kTotalVariation,
                               Divergence::kNegativeLogAcceptance,
                               Divergence::kAcceptance};
constexpr double kScale = 0.75;

at::Tensor random(at::IntArrayRef shape, uint64_t seed, double deviation) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator) * deviation;
}

double largest(const at::Tensor& x) {
  return x.abs().max().item<double>();
}

struct Expected {
  at::Tensor losses, gradient;
};

Expected by_autograd(Divergence kind, const at::Tensor& target, const at::Tensor& draft) {
  const at::Tensor leaf = draft.to(at::kDouble).clone().set_requires_grad(true);
  const at::Tensor losses = divergence(kind, target.to(at::kDouble), leaf);
  (losses.sum() * kScale).backward();
  return {losses.detach(), leaf.grad()};
}

// 37 and 5 tokens are no multiple of any vector; 1000 are many.
TEST(LossGradients, AreThoseOfAutograd) {
  for (const Divergence kind : kAll) {
    for (const int64_t tokens : {5, 37, 1000}) {
      SCOPED_TRACE(std::string(divergence_name(kind)) + " of " + std::to_string(tokens));
      const at::Tensor target = random({9, tokens}, 1, 4.0), draft = random({9, tokens}, 2, 4.0);
      const Expected expected = by_autograd(kind, target, draft);
      at::Tensor logits = draft.clone();
      const at::Tensor losses = divergence_to_gradients(kind, target, logits, kScale);
      EXPECT_LT(largest(losses - expected.losses), 2e-5 * std::max(1.0, largest(expected.losses)));
      EXPECT_LT(largest(logits - expected.gradient), 1e-5);
    }
  }
}

// What devices use is written with operations on whole tensors.
TEST(LossGradients, OfTensorsAreThoseOfRows) {
  for (const Divergence kind : kAll) {
    SCOPED_TRACE(divergence_name(kind));
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor target = random({9, 500}, 1, 4.0).to(type);
      const at::Tensor draft = random({9, 500}, 2, 4.0).to(type);
      const at::Tensor rows = draft.clone(), tensors = draft.clone();
      const at::Tensor expected = divergence_to_gradients(kind, target, rows, kScale);
      const at::Tensor losses = divergence_by_tensors(kind, target, tensors, kScale);
      EXPECT_LT(largest(losses - expected), 2e-5 * std::max(1.0, largest(expected)));
      EXPECT_LT(largest(tensors.to(at::kFloat) - rows.to(at::kFloat)),
                type == at::kFloat ? 1e-5 : 4e-3);
    }
  }
}

// What 16 bits hold is exact in floats, so only the gradients' own rounding is left.
TEST(LossGradients, OfSixteenBitsAreRoundedOnce) {
  for (const Divergence kind : kAll) {
    SCOPED_TRACE(divergence_name(kind));
    const at::Tensor target = random({4, 300}, 3, 4.0).to(at::kBFloat16);
    at::Tensor logits = random({4, 300}, 4, 4.0).to(at::kBFloat16);
    const Expected expected = by_autograd(kind, target, logits);
    const at::Tensor losses = divergence_to_gradients(kind, target, logits, kScale);
    EXPECT_LT(largest(losses - expected.losses), 2e-5 * std::max(1.0, largest(expected.losses)));
    const at::Tensor off = (logits.to(at::kDouble) - expected.gradient).abs();
    EXPECT_LE(largest(at::relu(off - expected.gradient.abs() * (1.0 / 256.0))), 1e-5);
  }
}

TEST(LossGradients, FarApartLogitsStayFinite) {
  const at::Tensor target = at::tensor({300.0F, -300.0F, 0.0F}).view({1, 3});
  for (const Divergence kind : kAll) {
    at::Tensor logits = at::tensor({-300.0F, 300.0F, 0.0F}).view({1, 3});
    const at::Tensor losses = divergence_to_gradients(kind, target, logits, kScale);
    EXPECT_TRUE(losses.isfinite().all().item<bool>()) << divergence_name(kind);
    EXPECT_TRUE(logits.isfinite().all().item<bool>()) << divergence_name(kind);
  }
}

TEST(LossGradients, TheLikeliestIsTheFirstOfEquals) {
  at::Tensor logits = random({6, 131}, 5, 1.0);
  logits[2][7] = logits[2][90] = 9.0;
  logits[3][130] = 9.0;
  const at::Tensor places = likeliest(logits);
  EXPECT_TRUE(places.equal(logits.argmax(-1)));
  EXPECT_EQ(places[2].item<int64_t>(), 7);
  EXPECT_EQ(places[3].item<int64_t>(), 130);
}

constexpr int64_t kRows = 600, kWidth = 24;

// The gradients of x and of the matrix, in two parts of unequal size; the target's rows stand in
// another order than the drafter's.
void expect_gradients_of_both_factors(int64_t tokens, bool sixteen_bits) {
  const at::Tensor wanted = random({kRows + 3, tokens}, 1, 2.0);
  const at::Tensor places = at::arange(kRows, at::kLong).flip(0) + 2;
  const at::Tensor x = random({kRows, kWidth}, 2, 1.0);
  at::Tensor output = random({tokens, kWidth}, 3, 0.5).set_requires_grad(true);
  const at::Tensor x_leaf = x.clone().set_requires_grad(true);
  const at::Tensor output_leaf = output.detach().clone().set_requires_grad(true);
  const at::Tensor logits = at::linear(x_leaf, output_leaf);
  const at::Tensor losses =
      divergence(Divergence::kForwardKl, wanted.index_select(0, places), logits);
  (losses.sum() * kScale).backward();

  const Autocast autocast(at::kCPU, sixteen_bits);
  const double bound = sixteen_bits ? 0.03 : 1e-5;
  output.mutable_grad() = at::ones_like(output.detach());  // is added to
  OutputLoss loss(output);
  for (const auto& [begin, rows] : {std::pair<int64_t, int64_t>{0, 520}, {520, 80}}) {
    const auto of = [begin = begin, rows = rows](const at::Tensor& all) {
      return all.detach().narrow(0, begin, rows);
    };
    const OutputLoss::Result part =
        loss.run(Divergence::kForwardKl, of(x), {wanted, of(places)}, kScale);
    EXPECT_LT(largest(part.losses - of(losses)), bound * largest(losses.detach()));
    EXPECT_LT(largest(part.gradient - of(x_leaf.grad())), bound * largest(x_leaf.grad()));
    const double same =
        part.likeliest.eq(of(logits).argmax(-1)).to(at::kDouble).mean().item<double>();
    EXPECT_GE(same, sixteen_bits ? 0.9 : 1.0);
  }
  loss.finish();
  EXPECT_LT(largest(output.grad() - 1.0 - output_leaf.grad()), bound * largest(output_leaf.grad()));

  const at::NoGradGuard no_grad;
  const at::Tensor before = output.grad().clone();
  const OutputLoss::Result seen = loss.run(Divergence::kForwardKl, x, {wanted, places}, kScale);
  loss.finish();
  EXPECT_LT(largest(seen.losses - losses.detach()), bound * largest(losses.detach()));
  EXPECT_FALSE(seen.gradient.defined());
  EXPECT_TRUE(output.grad().equal(before));
}

// The second vocabulary is so large that gradients are added before the end.
TEST(OutputLoss, HasTheGradientsOfBothFactors) {
  for (const int64_t tokens : {50, 60'000}) {
    SCOPED_TRACE(tokens);
    expect_gradients_of_both_factors(tokens, false);
  }
}

TEST(OutputLoss, HasTheGradientsOfBothFactorsIn16Bits) {
  if (!adds_bfloats_exactly(at::kCPU)) {
    GTEST_SKIP() << "this processor lacks what LibTorch adds products of BF16 in floats with";
  }
  for (const int64_t tokens : {50, 60'000}) {
    SCOPED_TRACE(tokens);
    expect_gradients_of_both_factors(tokens, true);
  }
}

}  // namespace aerie::train::loss_gradients_test
