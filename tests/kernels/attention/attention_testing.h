// Caches filled from chains of tokens, batches of rows over them, and attention in double.
//
// What a token's key, value and query are is a function of its number, so that a chain of numbers
// says all about what its last row should see, wherever its entries lie.
#pragma once

#include <memory>

#include "tests/kernels/kernel_testing.h"

namespace aerie::kernels {

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int window = 0;
  float soft_cap = 0.0f;
  KvType type = KvType::kF16;
  bool sinks = false;
  int value_prefix = 0;  // KvLayout::value_prefix

  KvLayout layout() const { return {kv_heads, head_dim, type, value_prefix}; }
  int value_dim() const { return layout().value_dim(); }
  int64_t query_width() const { return int64_t{heads} * head_dim; }
  int64_t out_width() const { return int64_t{heads} * value_dim(); }
  int64_t kv_width() const { return int64_t{kv_heads} * head_dim; }
  float scale() const;
  // The first position that a row at `position` sees.
  int first_seen(int position) const;
  std::string name() const;  // fit for a test's
  AttentionShape with(KvType other) const;
};

using Token = uint64_t;
// Tokens of which all is NaN, infinite, or as large as binary16 holds.
inline constexpr Token kNanToken = ~Token{0};
inline constexpr Token kInfToken = ~Token{1};
inline constexpr Token kHugeToken = ~Token{2};
std::vector<Token> random_tokens(Random& random, int count);

std::vector<float> query_of(const AttentionShape& shape, Token token);  // [heads][head_dim]
std::vector<float> key_of(const AttentionShape& shape, Token token);    // [kv_heads][head_dim]
std::vector<float> value_of(const AttentionShape& shape, Token token);  // [kv_heads][value_dim]
// One for each head: some far below most scores, some far above.
std::vector<float> sinks_of(const AttentionShape& shape);

// One layer's plane. Every slot holds NaN, infinities and other garbage until it is put to use;
// pages are handed out in random order.
class TestCache {
 public:
  TestCache(const AttentionShape& shape, int pages, uint64_t seed);

  // A sequence with pages for `positions`; none of it is put.
  int open(int positions);
  int32_t slot(int sequence, int position) const;
  // A slot of its own on a page that no sequence has.
  int32_t stray_slot();
  void put(int32_t slot, Token token);
  // Makes the table's entry for a page that the sequence no longer has: looking there faults.
  void lose_page(int sequence, int index);
  // Puts chain[from ..] at their positions.
  void put_chain(int sequence, const std::vector<Token>& chain, int from = 0);

  const AttentionShape& shape() const { return shape_; }
  const int32_t* pages(int sequence) const {
    return sequences_[static_cast<size_t>(sequence)]->data();
  }
  std::byte* data() { return kv_.data(); }
  const std::byte* data() const { return kv_.data(); }

 private:
  AttentionShape shape_;
  Fenced<std::byte> kv_;
  std::vector<int32_t> free_;
  std::vector<int32_t> strays_;
  std::vector<std::unique_ptr<Fenced<int32_t>>> sequences_;
};

// Rows of one call. Rows of a sequence are added side by side.
class AttentionBatch {
 public:
  explicit AttentionBatch(const TestCache& cache)
      : cache_(cache), sinks_(sinks_of(cache.shape())) {}

  // A row whose entries from `committed` on all lie where the pages say.
  void add_linear(int sequence, Token token, int position, int committed);
  // A row with slots of positions committed .. position.
  void add_tail(int sequence, Token token, int committed, std::span<const int32_t> tail);
  // The query itself instead of a token's.
  void set_query(size_t row, std::vector<float> query) { queries_[row] = std::move(query); }
  // Instead of the shape's; unused unless that has some.
  void set_sinks(std::vector<float> sinks) { sinks_ = std::move(sinks); }
  size_t size() const { return rows_.size(); }

  // [rows][heads][value_dim]. Scratch is garbage at first; everything ends where its memory does.
  std::vector<float> run(const Backend& backend, int threads = 1) const;

 private:
  const TestCache& cache_;
  std::vector<float> sinks_;
  std::vector<AttentionRow> rows_;
  std::vector<std::unique_ptr<Fenced<int32_t>>> tails_;
  std::vector<std::vector<float>> queries_;
};

// What the last token of the chain sees, on its own: one row, one sequence, one thread. Before its
// window there is garbage, and no page where it takes none.
std::vector<float> attend_alone(const Backend& backend, const AttentionShape& shape,
                                const std::vector<Token>& chain);

// Keys or values of all heads, rounded to the cache's type.
std::vector<float> rounded(const AttentionShape& shape, std::vector<float> values);

// Keys of which the values are the beginnings, as long as some models have them and short.
inline constexpr AttentionShape kLongKeys[] = {
    {16, 1, 576, 0, 0.0f, KvType::kF16, false, 512}, {3, 1, 48, 0, 0.0f, KvType::kF16, false, 32},
    {40, 1, 80, 70, 5.0f, KvType::kF16, false, 64},  {7, 1, 320, 0, 0.0f, KvType::kF16, true, 304},
    {12, 2, 64, 100, 0.0f, KvType::kF16, false, 16},
};

// The same in double from the rounded keys and values, without a cache.
struct DoubleAttention {
  std::vector<double> out;   // [heads][value_dim]
  double largest_score = 0;  // magnitude
};
DoubleAttention attend_in_double(const AttentionShape& shape, const std::vector<Token>& chain);

// How far from it a backend may be. Scores in float cost about head_dim roundings of their size,
// and weights as much relative error; with 8-bit codes, queries and weights have 16 bits.
double tolerance(const AttentionShape& shape, double largest_score);

std::string isa_type_test_name(const testing::TestParamInfo<std::tuple<Isa, KvType>>& info);

// Row `r` of attention's output.
std::span<const float> row_of(const std::vector<float>& out, const AttentionShape& shape, size_t r);

}  // namespace aerie::kernels
