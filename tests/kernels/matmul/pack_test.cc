// Packing: what lies where in a panel, threads, and the edges of memory.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "kernels/cpu/panel.h"
#include "tests/kernels/matmul/matmul_testing.h"

namespace aerie::kernels::pack_test {

// Reads a panel the way panel.h describes it.
class PanelReader {
 public:
  PanelReader(const PackedMatrix& w, int64_t n)
      : dtype_(w.dtype), format_(panel_format(w.dtype)), k_(w.k), row_(n % kPanelRows) {
    bytes_ = reinterpret_cast<const uint8_t*>(w.data.data()) +
             n / kPanelRows * panel_bytes(w.dtype, w.k);
  }

  int code(int64_t k) const {
    const int bits = format_.bits, high = format_.high_bits;
    const uint8_t* group = bytes_ + k / 32 * (kPanelRows * 32 * (bits + high) / 8);
    const int low = field(group, k % 32, bits);
    return high == 0 ? low : low | field(group + kPanelRows * 32 * bits / 8, k % 32, high) << bits;
  }
  // What the code stands for.
  int number(int64_t k) const {
    const int number = has_code_table(dtype_) ? code_table(dtype_)[code(k)] : code(k);
    return number - code_zero(dtype_);
  }
  // Entry `which` of the f16 arrays of a group of 32, or of a super-block's head.
  float group_half(int64_t group, int which) const {
    return half(scales() + group * format_.group_scales() + 32 * which + 2 * row_);
  }
  float group_bfloat(int64_t group) const {
    uint16_t bits;
    std::memcpy(&bits, scales() + group * format_.group_scales() + 2 * row_, 2);
    return bf16_to_f32(bits);
  }
  float group_e4m3(int64_t group, int half) const {
    return ue4m3_to_f32(scales()[group * format_.group_scales() + 16 * half + row_]);
  }
  float head_half(int64_t group, int which) const {
    return scale_unit(dtype_) *
           half(bytes_ + format_.heads_at(k_) + group / 8 * 64 + 32 * which + 2 * row_);
  }
  uint8_t sub(int64_t group, int which) const {
    return scales()[group * format_.group_scales() + 16 * which + row_];
  }

  // The weight that the panel's documentation makes of these.
  float weight(int64_t k) const {
    if (is_float(dtype_)) return float_weight(k);
    const int64_t g = k / 32;
    const int half = k % 32 < 16 ? 0 : 1;
    const double c = number(k);
    switch (format_.scale) {
      case PanelScale::kZero:
        return static_cast<float>(double{group_half(g, 0)} * c);
      case PanelScale::kZeroBfloat:
        return static_cast<float>(double{group_bfloat(g)} * c);
      case PanelScale::kHalfE4M3:
        return static_cast<float>(double{scale_unit(dtype_)} * double{group_e4m3(g, half)} * c);
      case PanelScale::kMin:
        return static_cast<float>(double{group_half(g, 0)} * c + double{group_half(g, 1)});
      case PanelScale::kSuperZero:
        return static_cast<float>(double{head_half(g, 0)} * static_cast<int8_t>(sub(g, 0)) * c);
      case PanelScale::kSuper:
        return static_cast<float>(double{head_half(g, 0)} * sub(g, 0) * c -
                                  double{head_half(g, 1)} * sub(g, 1));
      case PanelScale::kSuperHalf:
        return static_cast<float>(double{head_half(g, 0)} * static_cast<int8_t>(sub(g, half)) * c);
      case PanelScale::kSuperHalfOdd: {
        const int odd = (half == 0 ? sub(g, 0) % 16 : sub(g, 0) / 16) * 2 + 1;
        return static_cast<float>(double{head_half(g, 0)} * odd * c);
      }
      case PanelScale::kSuperHalfMin:
        return static_cast<float>(double{head_half(g, 0)} * (sub(g, half) % 16) * c -
                                  double{head_half(g, 1)} * (sub(g, half) / 16));
      case PanelScale::kFloat:
        break;
    }
    return 0.0f;
  }

  // Whether everything that belongs to the row is 0.
  bool is_zero() const {
    for (int64_t k = 0; k < k_; ++k) {
      if (is_float(dtype_) ? weight(k) != 0.0f : code(k) != 0) return false;
    }
    for (int64_t g = 0; !is_float(dtype_) && g < k_ / 32; ++g) {
      const bool super = has_heads(format_.scale);
      if (super && sub(g, 0) != 0) return false;
      if (super && format_.group_scales() == 32 && sub(g, 1) != 0) return false;
      if (super && (head_half(g, 0) != 0.0f || head_half(g, 1) != 0.0f)) return false;
      if (format_.scale == PanelScale::kHalfE4M3) {
        if (sub(g, 0) != 0 || sub(g, 1) != 0) return false;
        continue;
      }
      if (!super && group_half(g, 0) != 0.0f) return false;
      if (format_.scale == PanelScale::kMin && group_half(g, 1) != 0.0f) return false;
    }
    return true;
  }

 private:
  // Of codes of `bits` bits from `group` on, number i.
  int field(const uint8_t* group, int64_t i, int bits) const {
    const int64_t shared = 8 / bits;
    const uint8_t byte = group[(i / 4 / shared * 16 + row_) * 4 + i % 4];
    return byte >> (i / 4 % shared * bits) & ((1 << bits) - 1);
  }
  float float_weight(int64_t k) const {
    float value;
    dequantize(dtype_, bytes_ + (k * kPanelRows + row_) * dtype_info(dtype_).block_bytes, 1,
               &value);
    return value;
  }
  const uint8_t* scales() const { return bytes_ + format_.scales_at(k_); }
  static float half(const uint8_t* p) {
    return f16_to_f32(static_cast<uint16_t>(p[0] | p[1] << 8));
  }

  DType dtype_;
  PanelFormat format_;
  int64_t k_;
  int64_t row_;
  const uint8_t* bytes_;
};

using PackTest = IsaDTypeTest;

TEST_P(PackTest, PanelsAreAsDocumented) {
  const DType dtype = std::get<1>(GetParam());
  Random random(20);
  for (const int64_t k : lengths_for(dtype)) {
    for (const int64_t n : {1, 16, 35}) {
      const Weights w = random_weights(dtype, n, k, random);
      const PackedMatrix packed = pack(backend(), w);
      EXPECT_EQ(packed.dtype, dtype);
      ASSERT_EQ(static_cast<int64_t>(packed.data.size()),
                (n + kPanelRows - 1) / kPanelRows * panel_bytes(dtype, k));
      EXPECT_EQ(backend().packed_bytes(w.view()), static_cast<int64_t>(packed.data.size()));
      EXPECT_EQ(panel_bytes(dtype, k) % 64, 0);
      std::vector<float> expected(static_cast<size_t>(k));
      for (int64_t i = 0; i < n; ++i) {
        dequantize(dtype, w.view().row(i), k, expected.data());
        const PanelReader reader(packed, i);
        for (int64_t j = 0; j < k; ++j) {
          ASSERT_EQ(reader.weight(j), expected[static_cast<size_t>(j)])
              << "row " << i << " k " << j;
        }
      }
    }
  }
}

TEST_P(PackTest, MissingRowsAreZero) {
  const DType dtype = std::get<1>(GetParam());
  Random random(21);
  for (const int64_t n : {1, 15, 17, 30}) {
    const PackedMatrix packed = pack(backend(), random_weights(dtype, n, 512, random));
    for (int64_t i = n; i % kPanelRows != 0; ++i) {
      EXPECT_TRUE(PanelReader(packed, i).is_zero()) << "row " << i << " of " << n;
    }
    EXPECT_FALSE(PanelReader(packed, n - 1).is_zero());
  }
}

TEST_P(PackTest, ThreadsMakeNoDifference) {
  const DType dtype = std::get<1>(GetParam());
  Random random(22);
  const Weights w = random_weights(dtype, 200, 256, random);
  const PackedMatrix alone = pack(backend(), w, 1);
  for (const int threads : {2, 4}) {
    const PackedMatrix shared = pack(backend(), w, threads);
    ASSERT_EQ(alone.data.size(), shared.data.size());
    EXPECT_EQ(std::memcmp(alone.data.data(), shared.data.data(), alone.data.size()), 0)
        << threads << " threads";
  }
}

// The weights end where their memory does.
TEST_P(PackTest, ReadsNothingBeyondTheView) {
  const DType dtype = std::get<1>(GetParam());
  Random random(23);
  for (const int64_t n : {1, 16, 17}) {
    const Weights w = random_weights(dtype, n, 256, random);
    const Fenced<std::byte> fenced(w.bytes);
    const TensorView view = {dtype, Device::kCpu, {256, n, 1, 1}, fenced.data()};
    Expected<PackedMatrix> packed = backend().packed(pool_of(2), view);
    ASSERT_TRUE(packed.ok());
    const PackedMatrix expected = pack(backend(), w);
    EXPECT_EQ(std::memcmp(packed->data.data(), expected.data.data(), expected.data.size()), 0);
  }
}

// A view of several matrices is one of all their rows (experts, for one).
TEST_P(PackTest, HigherSizesAreRows) {
  const DType dtype = std::get<1>(GetParam());
  Random random(24);
  const Weights w = random_weights(dtype, 12, 256, random);
  TensorView view = w.view();
  view.shape = {256, 3, 2, 2};
  Expected<PackedMatrix> packed = backend().packed(pool_of(1), view);
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->n, 12);
  const Activations x = random_activations(backend(), 2, 256, backend().wants_int8(dtype), random);
  EXPECT_TRUE(
      same_bits(product(backend(), 1, *packed, x), product(backend(), 1, pack(backend(), w), x)));
}

// Matrices of one product: they are filled in a piece for each thread as they follow each other,
// the same that it packs and that it reads in the product.
TEST_P(PackTest, FillsWhatWasPackedInOneShareOfAll) {
  const DType dtype = std::get<1>(GetParam());
  Random random(25);
  const Weights weights[] = {random_weights(dtype, 48, 256, random),
                             random_weights(dtype, 5, 256, random),
                             random_weights(dtype, 64, 256, random)};
  std::vector<TensorView> views;
  std::vector<PackedMatrix> packed, filled;
  Arena arena = std::move(Arena::reserve(size_t{1} << 20)).value();
  for (const Weights& w : weights) {
    views.push_back(w.view());
    packed.push_back(std::move(backend().allocate(w.view(), arena)).value());
    filled.push_back(std::move(backend().allocate(w.view(), arena)).value());
  }
  for (const int threads : {1, 2, 3}) {
    backend().pack(pool_of(threads), views, packed);
    std::mutex mutex;
    std::set<std::pair<size_t, int64_t>> begins;  // matrix, panel
    backend().fill(pool_of(threads), filled,
                   [&](size_t i, int64_t offset, std::span<std::byte> part) {
                     EXPECT_EQ(offset % 64, 0);
                     EXPECT_EQ(part.data(), filled[i].data.data() + offset);
                     std::memcpy(part.data(), packed[i].data.data() + offset, part.size());
                     const std::lock_guard lock(mutex);
                     begins.emplace(i, offset / panel_bytes(dtype, 256));
                   });
    for (size_t i = 0; i < packed.size(); ++i) {
      ASSERT_EQ(filled[i].data.size(), packed[i].data.size());
      EXPECT_EQ(std::memcmp(filled[i].data.data(), packed[i].data.data(), packed[i].data.size()),
                0);
      std::fill_n(filled[i].data.data(), filled[i].data.size(), std::byte{0xFF});
    }
    // Eight panels, of which three are the first matrix's and one the second's.
    std::set<std::pair<size_t, int64_t>> expected = {{0, 0}, {1, 0}, {2, 0}};
    if (threads == 3) expected.insert({{0, 2}, {2, 1}});
    EXPECT_EQ(begins, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Vector, PackTest,
                         testing::Combine(testing::ValuesIn(kVectorIsas),
                                          testing::ValuesIn(kAllDTypes)),
                         isa_dtype_test_name);

}  // namespace aerie::kernels::pack_test
