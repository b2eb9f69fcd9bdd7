#include "tests/model/families/naive_llama.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace aerie {

NaiveRope plain_rope(int dimensions) {
  return {dimensions,
          [dimensions](int pair, int position) {
            return position * std::pow(10000.0, -2.0 * pair / dimensions);
          },
          1.0};
}

NaiveLlama::Vector NaiveLlama::tensor(const std::string& name) const {
  const auto view = file_.tensor(name);
  EXPECT_TRUE(view.ok()) << name;
  std::vector<float> floats(static_cast<size_t>(view->elements()));
  dequantize(view->dtype, view->data, view->elements(), floats.data());
  return {floats.begin(), floats.end()};
}

NaiveLlama::Vector NaiveLlama::product(const std::string& name, const Vector& x) const {
  const Vector w = tensor(name);
  Vector y(w.size() / x.size());
  for (size_t n = 0; n < y.size(); ++n) {
    for (size_t k = 0; k < x.size(); ++k) y[n] += w[n * x.size() + k] * x[k];
  }
  return y;
}

NaiveLlama::Vector NaiveLlama::norm(const std::string& name, std::span<const double> x) const {
  const Vector weight = tensor(name);
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
  Vector y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * scale * weight[i]);
  return y;
}

void NaiveLlama::turn(Vector& x, int heads, int position) const {
  for (int h = 0; h < heads; ++h) {
    for (int pair = 0; pair < rope_.dimensions / 2; ++pair) {
      double* at = x.data() + h * spec_.head_dim + 2 * pair;
      const double angle = rope_.angle(pair, position);
      const double c = std::cos(angle) * rope_.magnitude, s = std::sin(angle) * rope_.magnitude;
      const double a = at[0], b = at[1];
      at[0] = a * c - b * s;
      at[1] = a * s + b * c;
    }
  }
}

NaiveLlama::Vector NaiveLlama::attend(const Vector& q, const Cache& cache) const {
  Vector out(q.size());
  const auto dim = static_cast<size_t>(spec_.head_dim);
  for (int h = 0; h < spec_.heads; ++h) {
    const size_t from = static_cast<size_t>(h) * dim;
    const size_t kv = static_cast<size_t>(h / (spec_.heads / spec_.kv_heads)) * dim;
    Vector weights;
    double sum = 0;
    for (const Vector& key : cache.keys) {
      double score = 0;
      for (size_t d = 0; d < dim; ++d) score += q[from + d] * key[kv + d];
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
      sum += weights.back();
    }
    for (size_t p = 0; p < weights.size(); ++p) {
      for (size_t d = 0; d < dim; ++d) {
        out[from + d] += weights[p] / sum * cache.values[p][kv + d];
      }
    }
  }
  return out;
}

std::vector<double> NaiveLlama::head(std::span<const double> x) {
  return output(norm("output_norm.weight", x));
}

std::vector<double> NaiveLlama::output(const Vector& state) const {
  return product(
      file_.find_tensor("output.weight") != nullptr ? "output.weight" : "token_embd.weight", state);
}

std::vector<std::vector<double>> NaiveLlama::logits(std::span<const int32_t> tokens) {
  std::vector<Vector> result = states(tokens);
  for (Vector& one : result) one = output(one);
  return result;
}

std::vector<std::vector<double>> NaiveLlama::states(std::span<const int32_t> tokens) {
  const Vector embedding = tensor("token_embd.weight");
  const auto hidden = static_cast<size_t>(spec_.hidden);
  std::vector<Cache> caches(static_cast<size_t>(spec_.layers));
  std::vector<Vector> result;
  for (size_t position = 0; position < tokens.size(); ++position) {
    const auto row = embedding.begin() + tokens[position] * spec_.hidden;
    Vector x(row, row + spec_.hidden);
    const auto add = [&](const Vector& y) {
      for (size_t i = 0; i < hidden; ++i) x[i] += y[i];
    };
    for (int layer = 0; layer < spec_.layers; ++layer) {
      const auto name = [&](const char* part) {
        return fmt::format("blk.{}.{}.weight", layer, part);
      };
      Cache& cache = caches[static_cast<size_t>(layer)];
      const Vector a = norm(name("attn_norm"), x);
      Vector q = product(name("attn_q"), a), k = product(name("attn_k"), a);
      turn(q, spec_.heads, static_cast<int>(position));
      turn(k, spec_.kv_heads, static_cast<int>(position));
      cache.keys.push_back(k);
      cache.values.push_back(product(name("attn_v"), a));
      add(product(name("attn_output"), attend(q, cache)));
      const Vector f = norm(name("ffn_norm"), x);
      Vector gate = product(name("ffn_gate"), f);
      const Vector up = product(name("ffn_up"), f);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
      add(product(name("ffn_down"), gate));
    }
    result.push_back(norm("output_norm.weight", x));
  }
  return result;
}

}  // namespace aerie
