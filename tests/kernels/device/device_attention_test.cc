// Attention of devices against a softmax in double, on the emulated device: chains and trees of
// rows over pages in any order, and the same bits however the rows are put together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/cache_place.h"
#include "kernels/simt/emulation.h"
#include "tests/testing/device/test_device.h"
#include "tests/testing/sweeps.h"

namespace aerie::device::device_attention_test {

struct Shape {
  int heads, kv_heads, head_dim;
  int window = 0;
  float soft_cap = 0.0f;
  bool sinks = false;
  int committed = 250;   // positions of the tree's sequence before it
  int value_prefix = 0;  // CacheShape's

  int kv_head(int head) const { return head / (heads / kv_heads); }
  int value_dim() const { return value_prefix > 0 ? value_prefix : head_dim; }
  CacheShape cache() const { return {kv_heads, head_dim, value_prefix}; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
};

struct Row {
  int sequence = 0;
  bool linear = true;
  std::vector<int> slots;  // of all positions up to its own
  std::vector<int> tail;   // of those that are not committed
  int committed = 0;
};

// Numbers that binary16 holds.
class Numbers {
 public:
  explicit Numbers(unsigned seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  uint16_t half(float most) {
    return simt::to_f16(most * static_cast<float>(below(2001) - 1000) * 0.001f);
  }
  template <typename T>
  void shuffle(std::vector<T>& v) {
    std::ranges::shuffle(v, random_);
  }

 private:
  std::mt19937 random_;
};

class AttentionCase {
 public:
  AttentionCase(const Shape& shape, Device& device)
      : shape_(shape), device_(device), numbers_(static_cast<unsigned>(shape.head_dim)) {
    free_.resize(kPagesOf * 4 + static_cast<size_t>(shape.committed / kPage));
    std::iota(free_.begin(), free_.end(), 0);
    numbers_.shuffle(free_);
    pages_all_ = static_cast<int>(free_.size());
    fill_plane();
    add_chain(130, 11);
    add_tree(shape.committed, 14);
    add_chain(0, 3);
    add_tree(0, 5);
    for (size_t i = 0; i < rows_.size() * static_cast<size_t>(shape.heads * shape.head_dim); ++i) {
      q_.push_back(numbers_.half(6.0f));
    }
    for (int h = 0; h < shape.heads; ++h) sinks_.push_back(static_cast<float>(h % 5) - 2.0f);
  }

  int rows() const { return static_cast<int>(rows_.size()); }

  // Of these rows; tiles have `of_tile` rows at most, `at_once` tiles go into a launch.
  std::vector<uint16_t> run(int first, int count, int of_tile, int at_once) {
    describe(first, count, of_tile);
    Attend a;
    a.pass = {upload(counts_), upload(pass_rows_), upload(tiles_), nullptr, nullptr,
              nullptr,         upload(indices_)};
    const int width = shape_.heads * shape_.head_dim, out_width = shape_.heads * shape_.value_dim();
    const std::vector<uint16_t> q(q_.begin() + first * width, q_.begin() + (first + count) * width);
    a.q = upload(q);
    a.plane = upload(plane_);
    a.heads = shape_.heads;
    a.shape = shape_.cache();
    a.scale = shape_.scale();
    a.soft_cap = shape_.soft_cap;
    a.window = shape_.window;
    a.sinks = shape_.sinks ? upload(sinks_) : nullptr;
    a.most_rows = count;
    a.most_chunks = most_ / kChunk + 1;
    a.partials = upload(std::vector<float>(
        static_cast<size_t>(partial_floats(a.shape, a.heads, count, a.most_chunks))));
    const int parts = shape_.value_prefix > 0 ? latent_parts(a.heads) : 1;
    const auto counters =
        static_cast<size_t>(arrival_counters(a.shape, count, a.most_chunks) * parts);
    a.arrived = upload(std::vector<unsigned>(counters));
    std::vector<uint16_t> out(static_cast<size_t>(count * out_width));
    a.out = upload(out);
    a.out_stride = out_width;
    a.out_head = shape_.value_dim();
    const int tiles = counts_[kTileCount];
    for (a.first_tile = 0; a.first_tile < tiles; a.first_tile += at_once) {
      a.most_tiles = std::min(at_once, tiles - a.first_tile);
      device_.attend(a);
    }
    device_.copy_out(out.data(), a.out, out.size() * 2);
    std::vector<unsigned> arrived(counters, 1);
    device_.copy_out(arrived.data(), a.arrived, counters * 4);
    EXPECT_TRUE(device_.wait()) << device_.error();
    EXPECT_EQ(std::ranges::count(arrived, 0u), static_cast<std::ptrdiff_t>(counters));
    for (void* memory : memory_) device_.release(memory);
    memory_.clear();
    return out;
  }

  std::vector<double> expected(int r, int head) const {
    const Row& row = rows_[static_cast<size_t>(r)];
    const int dim = shape_.head_dim, last = static_cast<int>(row.slots.size()) - 1;
    const int first = shape_.window > 0 ? std::max(0, last - shape_.window + 1) : 0;
    const uint16_t* q = q_.data() + (static_cast<int64_t>(r) * shape_.heads + head) * dim;
    std::vector<double> scores;
    for (int p = first; p <= last; ++p) {
      const int slot = row.slots[static_cast<size_t>(p)];
      double score = 0.0;
      for (int d = 0; d < dim; ++d) score += double{simt::from_f16(q[d])} * key(slot, head, d);
      score *= shape_.scale();
      if (shape_.soft_cap > 0) score = shape_.soft_cap * std::tanh(score / shape_.soft_cap);
      scores.push_back(score);
    }
    double largest = *std::ranges::max_element(scores), total = 0.0;
    if (shape_.sinks) {
      largest = std::max(largest, double{sinks_[static_cast<size_t>(head)]});
      total = std::exp(sinks_[static_cast<size_t>(head)] - largest);
    }
    std::vector<double> out(static_cast<size_t>(shape_.value_dim()));
    for (int p = first; p <= last; ++p) {
      const double share = std::exp(scores[static_cast<size_t>(p - first)] - largest);
      total += share;
      for (int d = 0; d < shape_.value_dim(); ++d) {
        out[static_cast<size_t>(d)] += share * value(row.slots[static_cast<size_t>(p)], head, d);
      }
    }
    for (double& x : out) x /= total;
    return out;
  }

 private:
  static constexpr int kPagesOf = 5;  // of a sequence that is not long

  // In the plane, of a head of keys.
  size_t key_at(int slot, int h, int d) const {
    const CacheShape cache = shape_.cache();
    if (cache.value_prefix > 0) return static_cast<size_t>(slot * cache.head_dim + d);
    return static_cast<size_t>(head_offset(cache, slot, h) + key_element(cache, slot, d));
  }
  size_t value_at(int slot, int h, int d) const {
    const CacheShape cache = shape_.cache();
    if (cache.value_prefix > 0) return key_at(slot, h, d);
    return static_cast<size_t>(head_offset(cache, slot, h) + value_element(cache, slot, d));
  }
  double key(int slot, int head, int d) const {
    return simt::from_f16(plane_[key_at(slot, shape_.kv_head(head), d)]);
  }
  double value(int slot, int head, int d) const {
    return simt::from_f16(plane_[value_at(slot, shape_.kv_head(head), d)]);
  }

  // What no row sees has keys that are no numbers, and large values.
  void fill_plane() {
    const CacheShape cache = shape_.cache();
    plane_.resize(static_cast<size_t>(head_offset(cache, pages_all_ * kPage, 0)));
    for (int slot = 0; slot < pages_all_ * kPage; ++slot) {
      for (int h = 0; h < shape_.kv_heads; ++h) {
        for (int d = 0; d < shape_.head_dim; ++d) {
          plane_[value_at(slot, h, d)] = 0x7bff;
          plane_[key_at(slot, h, d)] = 0x7fff;
        }
      }
    }
  }

  void put(int slot) {
    for (int h = 0; h < shape_.kv_heads; ++h) {
      for (int d = 0; d < shape_.head_dim; ++d) {
        plane_[key_at(slot, h, d)] = numbers_.half(1.0f);
        if (shape_.value_prefix == 0) plane_[value_at(slot, h, d)] = numbers_.half(1.0f);
      }
    }
  }

  // Slots of `count` positions of new pages.
  std::vector<int> open(int count) {
    pages_.emplace_back();
    std::vector<int> slots;
    for (int p = 0; p < count; ++p) {
      if (p % kPage == 0) {
        pages_.back().push_back(free_.back());
        free_.pop_back();
      }
      slots.push_back(pages_.back().back() * kPage + p % kPage);
      put(slots.back());
    }
    return slots;
  }

  void add_chain(int committed, int count) {
    const std::vector<int> slots = open(committed + count);
    for (int i = 0; i < count; ++i) {
      Row row;
      row.sequence = static_cast<int>(pages_.size()) - 1;
      row.committed = committed;
      row.slots.assign(slots.begin(), slots.begin() + committed + i + 1);
      rows_.push_back(row);
    }
  }

  // Each node below one of those before it, deeper ones more often; their slots lie anywhere.
  void add_tree(int committed, int count) {
    const std::vector<int> slots = open(committed);
    std::vector<int> stray(kPage);
    std::iota(stray.begin(), stray.end(), free_.back() * kPage);
    free_.pop_back();
    numbers_.shuffle(stray);
    std::vector<std::vector<int>> paths = {{}};
    for (int i = 0; i < count; ++i) {
      const int back = numbers_.below(3);
      std::vector<int> tail = paths[static_cast<size_t>(std::max(0, i - back))];
      tail.push_back(stray[static_cast<size_t>(i)]);
      put(tail.back());
      paths.push_back(tail);
      Row row;
      row.sequence = static_cast<int>(pages_.size()) - 1;
      row.linear = false;
      row.committed = committed;
      row.slots = slots;
      row.slots.insert(row.slots.end(), tail.begin(), tail.end());
      row.tail = tail;
      rows_.push_back(row);
    }
  }

  void describe(int first, int count, int of_tile) {
    counts_.assign(kPassCounts, 0);
    pass_rows_.clear();
    tiles_.clear();
    indices_.clear();
    most_ = 0;
    std::vector<int32_t> pages_at;
    for (const std::vector<int32_t>& pages : pages_) {
      pages_at.push_back(static_cast<int32_t>(indices_.size()));
      indices_.insert(indices_.end(), pages.begin(), pages.end());
    }
    for (int r = first; r < first + count; ++r) {
      const Row& row = rows_[static_cast<size_t>(r)];
      const int position = static_cast<int>(row.slots.size()) - 1;
      const bool goes_on = r > first && tiles_.back().count < of_tile &&
                           rows_[static_cast<size_t>(r - 1)].sequence == row.sequence;
      if (!goes_on) tiles_.push_back({r - first, 0, position, position});
      PassTile& tile = tiles_.back();
      ++tile.count;
      tile.least = std::min(tile.least, position);
      tile.most = std::max(tile.most, position);
      most_ = std::max(most_, position);
      pass_rows_.push_back({position, row.slots.back(), row.committed,
                            pages_at[static_cast<size_t>(row.sequence)],
                            static_cast<int32_t>(indices_.size()), row.linear ? 1 : 0});
      indices_.insert(indices_.end(), row.tail.begin(), row.tail.end());
    }
    counts_[kRowCount] = count;
    counts_[kTileCount] = static_cast<int32_t>(tiles_.size());
  }

  template <typename T>
  T* upload(const std::vector<T>& data) {
    void* to = device_.allocate(data.size() * sizeof(T));
    memory_.push_back(to);
    device_.copy_in(to, data.data(), data.size() * sizeof(T));
    EXPECT_TRUE(device_.wait()) << device_.error();
    return static_cast<T*>(to);
  }

  Shape shape_;
  Device& device_;
  Numbers numbers_;
  int pages_all_ = 0, most_ = 0;
  std::vector<int32_t> free_;
  std::vector<std::vector<int32_t>> pages_;  // [sequence]
  std::vector<Row> rows_;
  std::vector<uint16_t> plane_, q_;
  std::vector<float> sinks_;
  std::vector<int32_t> counts_, indices_;
  std::vector<PassRow> pass_rows_;
  std::vector<PassTile> tiles_;
  std::vector<void*> memory_;
};

class DeviceAttention : public testing::TestWithParam<Shape> {
 protected:
  // Threads of an emulated device take turns in another order for each shape.
  DeviceAttention() { simt::set_order(static_cast<uint64_t>(GetParam().head_dim)); }
  ~DeviceAttention() override { simt::set_order(0); }

  void SetUp() override {
    case_.emplace(GetParam(), test::device_of_tests());
    of_tile_ = most_tile_rows(GetParam().heads / GetParam().kv_heads);
    if (GetParam().value_prefix > 0) of_tile_ = 1;
  }

  std::optional<AttentionCase> case_;
  int of_tile_ = 1;
};

TEST_P(DeviceAttention, IsSoftmaxOfWhatRowsSee) {
  const std::vector<uint16_t> out = case_->run(0, case_->rows(), of_tile_, 1000);
  const int heads = GetParam().heads, dim = GetParam().value_dim();
  double worst = 0.0;
  for (int r = 0; r < case_->rows(); ++r) {
    for (int h = 0; h < heads; ++h) {
      const std::vector<double> expected = case_->expected(r, h);
      for (int d = 0; d < dim; ++d) {
        const double x = simt::from_bf16(out[static_cast<size_t>((r * heads + h) * dim + d)]);
        const double error = std::abs(x - expected[static_cast<size_t>(d)]);
        // No number is no small error.
        worst = error <= worst ? worst : error;
        ASSERT_LE(error, 0.004) << "row " << r << " head " << h << " dimension " << d;
      }
    }
  }
  RecordProperty("worst", std::to_string(worst));
}

TEST_P(DeviceAttention, HoweverRowsArePutTogether) {
  const int rows = case_->rows(), width = GetParam().heads * GetParam().value_dim();
  const std::vector<uint16_t> all = case_->run(0, rows, of_tile_, 1000);
  simt::set_order(1);
  EXPECT_EQ(case_->run(0, rows, std::min(of_tile_, 3), 2), all) << "tiles of 3, two at a time";
  const int every = test::thinned() ? 12 : 4;
  for (int r = static_cast<int>(test::turn_of_test() % every); r < rows; r += every) {
    const std::vector<uint16_t> alone = case_->run(r, 1, 1, 1);
    EXPECT_TRUE(std::ranges::equal(
        alone, std::span(all).subspan(static_cast<size_t>(r * width), alone.size())))
        << "row " << r << " alone";
  }
}

std::string name_of(const testing::TestParamInfo<Shape>& info) {
  const Shape& s = info.param;
  return std::to_string(s.heads) + "x" + std::to_string(s.kv_heads) + "x" +
         std::to_string(s.head_dim) + (s.window > 0 ? "_window" : "") +
         (s.soft_cap > 0 ? "_capped" : "") + (s.sinks ? "_sinks" : "") + "_" +
         (s.value_prefix > 0 ? "of" + std::to_string(s.value_prefix) + "_" : "") +
         std::to_string(s.committed);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DeviceAttention,
    testing::Values(Shape{2, 2, 16}, Shape{3, 1, 48, 0, 4.0f}, Shape{4, 1, 64, 70},
                    Shape{8, 2, 80, 0, 0.0f, true}, Shape{4, 1, 128, 0, 0.0f, false, 500},
                    Shape{8, 1, 128, 150, 4.0f, true}, Shape{1, 1, 256}, Shape{8, 2, 256},
                    Shape{4, 2, 512}, Shape{8, 1, 512, 300, 4.0f, true, 500},
                    Shape{2, 1, 512, 0, 0.0f, true, 9 * kChunk - 5},
                    // More than one group of chunks; a window that begins within the first.
                    Shape{2, 1, 16, 0, 0.0f, true, 9 * kChunk - 5},
                    Shape{2, 1, 64, 7 * kChunk, 0.0f, false, 10 * kChunk - 5}),
    name_of);

// Latents: published sizes, dimensions that are no multiple of what a warp takes, more heads than a
// block takes, windows, groups of chunks.
INSTANTIATE_TEST_SUITE_P(Latents, DeviceAttention,
                         testing::Values(Shape{20, 1, 576, 0, 0.0f, false, 250, 512},
                                         Shape{2, 1, 48, 0, 0.0f, false, 500, 32},
                                         Shape{35, 1, 112, 70, 0.0f, false, 250, 80},
                                         Shape{1, 1, 32, 0, 0.0f, false, 9 * kChunk - 5, 16},
                                         Shape{10, 1, 560, 7 * kChunk, 0.0f, false, 10 * kChunk - 5,
                                               544}),
                         name_of);

}  // namespace aerie::device::device_attention_test
