// The Llama family computed as the papers write it: one token at a time, in double, straight from
// the file's tensors. Shares no code with the engine but the file reader and the block formats.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "format/gguf/gguf.h"
#include "tests/testing/tiny_model.h"

namespace aerie {

// How far the pair of a head turns at a position, and what its length is multiplied with.
struct NaiveRope {
  int dimensions = 0;
  std::function<double(int pair, int position)> angle;
  double magnitude = 1.0;
};
// 10000^(-2 pair / dimensions) for each position.
NaiveRope plain_rope(int dimensions);

class NaiveLlama {
 public:
  NaiveLlama(const GgufFile& file, const test::TinySpec& spec, NaiveRope rope)
      : file_(file), spec_(spec), rope_(std::move(rope)) {}

  // What the final norm makes of each token.
  std::vector<std::vector<double>> states(std::span<const int32_t> tokens);
  // The logits after each token.
  std::vector<std::vector<double>> logits(std::span<const int32_t> tokens);

  // What the engine's taps are held to: final norm and head on a residual stream.
  std::vector<double> head(std::span<const double> x);

 private:
  using Vector = std::vector<double>;
  struct Cache {
    std::vector<Vector> keys, values;
  };
  Vector output(const Vector& state) const;
  Vector tensor(const std::string& name) const;
  Vector product(const std::string& name, const Vector& x) const;
  Vector norm(const std::string& name, std::span<const double> x) const;
  void turn(Vector& x, int heads, int position) const;
  Vector attend(const Vector& q, const Cache& cache) const;

  const GgufFile& file_;
  const test::TinySpec& spec_;
  NaiveRope rope_;
};

}  // namespace aerie
