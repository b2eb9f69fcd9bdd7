#include "tests/kernels/attention/attention_testing.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace aerie::kernels {
namespace {

// Not a number, infinite, largest finite and smallest subnormal, of both signs.
constexpr uint16_t kGarbage[] = {0x7E00, 0xFE01, 0x7C00, 0xFC00, 0x7D55, 0x7BFF, 0xFBFF, 0x0001};

// Numbers of variance 1 that depend on nothing but their arguments.
std::vector<float> numbers_of(Token token, uint64_t kind, int64_t count, float size) {
  if (token >= kHugeToken) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float same = token == kNanToken ? std::nanf("") : token == kInfToken ? kInf : 65504.0f;
    return std::vector<float>(static_cast<size_t>(count), same);
  }
  Random random(token * 4 + kind);
  return uniform_floats(random, count, -1.732f * size, 1.732f * size);
}

int pages_for(int positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}

// Of both signs: not a number, infinite, and of any size.
constexpr float kGarbageScales[] = {std::numeric_limits<float>::quiet_NaN(),
                                    std::numeric_limits<float>::infinity(),
                                    -std::numeric_limits<float>::infinity(),
                                    3e38f,
                                    -3e38f,
                                    1e-45f,
                                    -1.0f};

void fill_with_garbage(const KvLayout& layout, std::span<std::byte> plane, Random& random) {
  static_assert(std::size(kGarbage) == 8);
  const size_t halves_in_all = plane.size() / sizeof(uint16_t);
  auto* to = reinterpret_cast<uint16_t*>(plane.data());
  for (size_t i = 0; i < halves_in_all;) {
    // Three bits choose one, and there are 64.
    uint64_t bits = random.next();
    for (int n = 0; n < 21 && i < halves_in_all; ++n, bits >>= 3) to[i++] = kGarbage[bits & 7];
  }
  const auto halves = static_cast<int64_t>(plane.size()) / layout.half_head();
  for (int64_t i = 0; i < halves; ++i) {
    for (int64_t at = layout.elements(); at < layout.half_head(); at += sizeof(float)) {
      const float scale = kGarbageScales[random.index(std::size(kGarbageScales))];
      std::memcpy(plane.data() + i * layout.half_head() + at, &scale, sizeof(scale));
    }
  }
}

// A key or value, or the part of it that has a scale in common, as a cache holds it.
struct Rounded {
  std::vector<uint16_t> halves;  // kF16
  std::vector<int8_t> codes;     // kQ8
  float scale = 0.0f;
};

Rounded rounded_part(KvType type, std::span<const float> x) {
  Rounded part;
  if (type == KvType::kF16) {
    for (const float value : x) part.halves.push_back(f32_to_f16(value));
    return part;
  }
  part.codes.resize(x.size());
  part.scale = quantize_kv(x.data(), static_cast<int>(x.size()), part.codes.data());
  return part;
}

// `part` to places[i] of one head's keys or values in a page; the scale goes to `scale`.
void put_part(const Rounded& part, std::byte* half, std::byte* scale,
              std::span<const int32_t> places) {
  for (size_t d = 0; d < part.halves.size(); ++d) {
    reinterpret_cast<uint16_t*>(half)[places[d]] = part.halves[d];
  }
  if (part.codes.empty()) return;
  std::memcpy(scale, &part.scale, sizeof(part.scale));
  for (size_t d = 0; d < part.codes.size(); ++d) {
    reinterpret_cast<int8_t*>(half)[places[d]] = part.codes[d];
  }
}

// What tokens are in caches of one shape, and where elements lie in a page. Most of the tests' time
// would go into finding out the same again: every row's lone run has a cache of its own.
class Entries {
 public:
  explicit Entries(const AttentionShape& shape) : shape_(shape) {
    const KvLayout layout = shape.layout();
    for (int offset = 0; offset < kPagePositions; ++offset) {
      for (int d = 0; d < layout.head_dim; ++d) {
        keys_.push_back(static_cast<int32_t>(layout.key_element(offset, d)));
        if (d >= layout.value_dim()) continue;
        values_.push_back(static_cast<int32_t>(layout.value_element(offset, d)));
      }
    }
  }

  static Entries& of(const AttentionShape& shape) {
    static auto& last = *new std::unique_ptr<Entries>();
    const auto is_like = [&](const AttentionShape& other) {
      return other.kv_heads == shape.kv_heads && other.head_dim == shape.head_dim &&
             other.type == shape.type && other.value_prefix == shape.value_prefix;
    };
    if (last == nullptr || !is_like(last->shape_)) last = std::make_unique<Entries>(shape);
    return *last;
  }

  // For each head the part of a key that is not a value's, and the value.
  const std::vector<std::pair<Rounded, Rounded>>& heads(Token token) {
    constexpr size_t kMostTokens = 4096;
    if (heads_.size() > kMostTokens) heads_.clear();
    auto& heads = heads_[token];
    if (!heads.empty()) return heads;
    const std::vector<float> keys = key_of(shape_, token), values = value_of(shape_, token);
    const KvLayout layout = shape_.layout();
    const auto key_width = static_cast<size_t>(layout.head_dim);
    const auto width = static_cast<size_t>(layout.value_dim());
    const auto prefix = static_cast<size_t>(layout.value_prefix);
    for (size_t h = 0; h < static_cast<size_t>(layout.kv_heads); ++h) {
      const auto key = std::span(keys).subspan(h * key_width, key_width);
      heads.emplace_back(rounded_part(layout.type, key.subspan(prefix)),
                         rounded_part(layout.type, std::span(values).subspan(h * width, width)));
    }
    return heads;
  }

  // Of the elements of the key, or of the value, at `offset` in its page.
  std::span<const int32_t> key_places(int offset) const { return row(keys_, offset); }
  std::span<const int32_t> value_places(int offset) const { return row(values_, offset); }

 private:
  static std::span<const int32_t> row(const std::vector<int32_t>& places, int offset) {
    const size_t width = places.size() / kPagePositions;
    return std::span(places).subspan(static_cast<size_t>(offset) * width, width);
  }

  AttentionShape shape_;
  std::vector<int32_t> keys_, values_;
  std::unordered_map<Token, std::vector<std::pair<Rounded, Rounded>>> heads_;
};

// Rounds to codes with one scale and back.
void round_to_codes(std::span<float> values) {
  std::vector<int8_t> codes(values.size());
  const float scale = quantize_kv(values.data(), static_cast<int>(values.size()), codes.data());
  for (size_t d = 0; d < values.size(); ++d) values[d] = scale * static_cast<float>(codes[d]);
}

}  // namespace

float AttentionShape::scale() const {
  return 1.0f / std::sqrt(static_cast<float>(head_dim));
}

int AttentionShape::first_seen(int position) const {
  return window > 0 ? std::max(0, position - window + 1) : 0;
}

std::string AttentionShape::name() const {
  std::string text =
      std::to_string(heads) + "_" + std::to_string(kv_heads) + "_" + std::to_string(head_dim);
  if (window > 0) text += "_Window" + std::to_string(window);
  if (soft_cap != 0.0f) text += "_Cap" + std::to_string(static_cast<int>(soft_cap));
  if (sinks) text += "_Sinks";
  if (value_prefix > 0) text += "_Prefix" + std::to_string(value_prefix);
  if (type != KvType::kF16) text += std::string("_") + kv_type_name(type);
  return text;
}

AttentionShape AttentionShape::with(KvType other) const {
  AttentionShape shape = *this;
  shape.type = other;
  return shape;
}

std::vector<Token> random_tokens(Random& random, int count) {
  std::vector<Token> tokens(static_cast<size_t>(count));
  for (Token& token : tokens) token = random.next() >> 8;
  return tokens;
}

// Some queries look at everything, some at next to nothing but a few positions.
std::vector<float> query_of(const AttentionShape& shape, Token token) {
  constexpr float kSizes[] = {0.2f, 1.0f, 8.0f};
  return numbers_of(token, 0, shape.query_width(), kSizes[token % 3]);
}
std::vector<float> key_of(const AttentionShape& shape, Token token) {
  return numbers_of(token, 1, shape.kv_width(), 1.0f);
}
std::vector<float> value_of(const AttentionShape& shape, Token token) {
  if (shape.value_prefix > 0) {
    const std::vector<float> keys = key_of(shape, token);
    std::vector<float> values;
    for (auto key = keys.begin(); key != keys.end(); key += shape.head_dim) {
      values.insert(values.end(), key, key + shape.value_prefix);
    }
    return values;
  }
  return numbers_of(token, 2, shape.kv_width(), 1.0f);
}

std::vector<float> sinks_of(const AttentionShape& shape) {
  Random random(static_cast<uint64_t>(shape.heads));
  return uniform_floats(random, shape.heads, -9.0f, 9.0f);
}

TestCache::TestCache(const AttentionShape& shape, int pages, uint64_t seed)
    : shape_(shape), kv_(pages * shape.layout().page()), free_(static_cast<size_t>(pages)) {
  Random random(seed);
  fill_with_garbage(shape.layout(), kv_.span(), random);
  std::iota(free_.begin(), free_.end(), 0);
  random.shuffle(free_);
}

int TestCache::open(int positions) {
  std::vector<int32_t> pages;
  for (int i = 0; i < pages_for(positions); ++i) {
    if (free_.empty()) std::abort();
    pages.push_back(free_.back());
    free_.pop_back();
  }
  sequences_.push_back(std::make_unique<Fenced<int32_t>>(pages));
  return static_cast<int>(sequences_.size()) - 1;
}

void TestCache::lose_page(int sequence, int index) {
  (*sequences_[static_cast<size_t>(sequence)])[index] = 1 << 28;
}

int32_t TestCache::slot(int sequence, int position) const {
  const int32_t page = pages(sequence)[position / kPagePositions];
  return page * kPagePositions + position % kPagePositions;
}

int32_t TestCache::stray_slot() {
  if (strays_.empty()) {
    if (free_.empty()) std::abort();
    for (int32_t i = 0; i < kPagePositions; ++i) {
      strays_.push_back(free_.back() * kPagePositions + i);
    }
    free_.pop_back();
    Random random(strays_.size());
    random.shuffle(strays_);
  }
  const int32_t slot = strays_.back();
  strays_.pop_back();
  return slot;
}

void TestCache::put(int32_t slot, Token token) {
  const KvLayout layout = shape_.layout();
  Entries& entries = Entries::of(shape_);
  const int page = slot / kPagePositions, offset = slot % kPagePositions;
  const auto prefix = static_cast<size_t>(layout.value_prefix);
  int h = 0;
  for (const auto& [key, value] : entries.heads(token)) {
    std::byte *key_half = kv_.data() + layout.keys(page, h),
              *value_half = kv_.data() + layout.values(page, h);
    put_part(key, key_half, key_half + layout.scale_at(offset, layout.value_prefix),
             entries.key_places(offset).subspan(prefix));
    put_part(value, value_half, value_half + layout.scale_at(offset, 0),
             entries.value_places(offset));
    ++h;
  }
}

void TestCache::put_chain(int sequence, const std::vector<Token>& chain, int from) {
  for (int p = from; p < static_cast<int>(chain.size()); ++p) {
    put(slot(sequence, p), chain[static_cast<size_t>(p)]);
  }
}

void AttentionBatch::add_linear(int sequence, Token token, int position, int committed) {
  std::vector<int32_t> tail;
  for (int p = committed; p <= position; ++p) tail.push_back(cache_.slot(sequence, p));
  add_tail(sequence, token, committed, tail);
  rows_.back().linear = true;
}

void AttentionBatch::add_tail(int sequence, Token token, int committed,
                              std::span<const int32_t> tail) {
  AttentionRow row;
  row.position = committed + static_cast<int32_t>(tail.size()) - 1;
  row.committed = committed;
  row.pages = cache_.pages(sequence);
  row.group = sequence;
  tails_.push_back(std::make_unique<Fenced<int32_t>>(tail));
  row.tail = tails_.back()->data();
  rows_.push_back(row);
  queries_.push_back(query_of(cache_.shape(), token));
}

std::vector<float> AttentionBatch::run(const Backend& backend, int threads) const {
  const AttentionShape& shape = cache_.shape();
  int32_t positions = 1;
  for (const AttentionRow& row : rows_) positions = std::max(positions, row.position + 1);
  Expected<AttentionWorkspace> workspace = AttentionWorkspace::allocate(
      shape.layout(), shape.heads, static_cast<int>(rows_.size()), positions);
  if (!workspace.ok()) std::abort();
  for (float& x : workspace->partials.as<float>()) x = std::nanf("");

  std::vector<float> flat;
  for (const std::vector<float>& query : queries_)
    flat.insert(flat.end(), query.begin(), query.end());
  const Fenced<float> q(flat);
  Fenced<float> out(static_cast<int64_t>(rows_.size()) * shape.out_width());
  AttentionArgs args;
  args.q = q.data();
  args.out = out.data();
  args.heads = shape.heads;
  args.scale = shape.scale();
  args.window = shape.window;
  args.soft_cap = shape.soft_cap;
  const Fenced<float> sinks(sinks_);
  if (shape.sinks) args.sinks = sinks.data();
  args.layout = shape.layout();
  args.kv = cache_.data();
  args.rows = rows_;
  args.workspace = &*workspace;
  backend.attention(pool_of(threads), args);
  return {out.span().begin(), out.span().end()};
}

std::vector<float> attend_alone(const Backend& backend, const AttentionShape& shape,
                                const std::vector<Token>& chain) {
  const int length = static_cast<int>(chain.size());
  TestCache cache(shape, pages_for(length), chain.front());
  const int sequence = cache.open(length);
  const int first = shape.first_seen(length - 1);
  cache.put_chain(sequence, chain, first);
  for (int i = 0; (i + 1) * kPagePositions <= first; ++i) cache.lose_page(sequence, i);
  AttentionBatch batch(cache);
  batch.add_linear(sequence, chain.back(), length - 1, length - 1);
  return batch.run(backend);
}

std::vector<float> rounded(const AttentionShape& shape, std::vector<float> values) {
  if (shape.type == KvType::kF16) {
    for (float& value : values) value = f16_to_f32(f32_to_f16(value));
    return values;
  }
  const bool are_keys = std::cmp_equal(values.size(), shape.kv_width());
  const auto width = static_cast<size_t>(are_keys ? shape.head_dim : shape.value_prefix);
  const auto prefix = are_keys ? static_cast<size_t>(shape.value_prefix) : 0;
  for (size_t at = 0; at < values.size(); at += width) {
    const std::span<float> head = std::span(values).subspan(at, width);
    if (prefix > 0) round_to_codes(head.first(prefix));
    round_to_codes(head.subspan(prefix));
  }
  return values;
}

double tolerance(const AttentionShape& shape, double largest_score) {
  const double floats =
      2e-7 * (8.0 + largest_score * std::sqrt(static_cast<double>(shape.head_dim)) +
              4.0 * double{shape.soft_cap});
  return shape.type == KvType::kF16 ? floats : floats + 2e-5 * (4.0 + largest_score);
}

namespace {

DoubleAttention computed_in_double(const AttentionShape& shape, const std::vector<Token>& chain) {
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  const std::vector<float> q = query_of(shape, chain.back());
  std::vector<std::vector<float>> keys, values;
  for (auto p = static_cast<size_t>(shape.first_seen(static_cast<int>(chain.size()) - 1));
       p < chain.size(); ++p) {
    keys.push_back(rounded(shape, key_of(shape, chain[p])));
    values.push_back(rounded(shape, value_of(shape, chain[p])));
  }
  DoubleAttention result;
  for (int h = 0; h < shape.heads; ++h) {
    const auto kv_head = static_cast<size_t>(h / (shape.heads / shape.kv_heads));
    const size_t from = kv_head * head_dim;
    std::vector<double> scores;
    for (const std::vector<float>& key : keys) {
      double score = 0.0;
      for (size_t d = 0; d < head_dim; ++d) {
        score += double{q[static_cast<size_t>(h) * head_dim + d]} * double{key[from + d]};
      }
      score *= double{shape.scale()};
      result.largest_score = std::max(result.largest_score, std::fabs(score));
      const double cap = double{shape.soft_cap};
      scores.push_back(cap != 0.0 ? cap * std::tanh(score / cap) : score);
    }
    // A sink is a score without a value.
    if (shape.sinks) scores.push_back(double{sinks_of(shape)[static_cast<size_t>(h)]});
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = shape.sinks ? std::exp(scores.back() - largest) : 0.0;
    const auto value_dim = static_cast<size_t>(shape.value_dim());
    std::vector<double> sums(value_dim, 0.0);
    for (size_t i = 0; i < keys.size(); ++i) {
      const double weight = std::exp(scores[i] - largest);
      total += weight;
      for (size_t d = 0; d < value_dim; ++d) {
        sums[d] += weight * double{values[i][kv_head * value_dim + d]};
      }
    }
    for (const double sum : sums) result.out.push_back(sum / total);
  }
  return result;
}

}  // namespace

DoubleAttention attend_in_double(const AttentionShape& shape, const std::vector<Token>& chain) {
  // Every instruction set is compared with the same.
  using Key = std::tuple<std::string, float, std::vector<Token>>;
  static auto& known = *new std::map<Key, DoubleAttention>();
  const auto [found, is_new] = known.try_emplace({shape.name(), shape.soft_cap, chain});
  if (is_new) found->second = computed_in_double(shape, chain);
  return found->second;
}

std::string isa_type_test_name(const testing::TestParamInfo<std::tuple<Isa, KvType>>& info) {
  return std::string(isa_name(std::get<0>(info.param))) + "_" +
         kv_type_name(std::get<1>(info.param));
}

std::span<const float> row_of(const std::vector<float>& out, const AttentionShape& shape,
                              size_t r) {
  const auto width = static_cast<size_t>(shape.out_width());
  return std::span<const float>(out).subspan(r * width, width);
}

}  // namespace aerie::kernels
