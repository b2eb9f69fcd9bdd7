#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/tensor/golden_file.h"

namespace aerie::dtype_test {

std::vector<DType> all_types() {
  std::vector<DType> types;
  types.reserve(kDTypeCount);
  for (int i = 0; i < kDTypeCount; ++i) types.push_back(static_cast<DType>(i));
  return types;
}

TEST(DTypeInfo, NamesAreDistinctAndFoundInAnyCase) {
  for (const DType type : all_types()) {
    std::string name(dtype_info(type).name);
    EXPECT_EQ(dtype_from_name(name), type);
    for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    EXPECT_EQ(dtype_from_name(name), type);
  }
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_name("q4"), std::nullopt);
  EXPECT_EQ(dtype_from_name("q4_0_"), std::nullopt);
}

TEST(DTypeInfo, SizesOfGgmlsBlocks) {
  EXPECT_EQ(dtype_bytes(DType::kF32, 3), 12);
  EXPECT_EQ(dtype_bytes(DType::kBF16, 3), 6);
  EXPECT_EQ(dtype_bytes(DType::kQ4_0, 64), 36);
  EXPECT_EQ(dtype_bytes(DType::kQ8_0, 64), 68);
  EXPECT_EQ(dtype_bytes(DType::kQ4_K, 512), 288);
  EXPECT_EQ(dtype_bytes(DType::kQ5_K, 256), 176);
  EXPECT_EQ(dtype_bytes(DType::kQ6_K, 256), 210);
  EXPECT_EQ(dtype_bytes(DType::kQ6_K, 0), 0);
  EXPECT_EQ(dtype_bytes(DType::kQ4_1, int64_t{1} << 40), (int64_t{1} << 40) / 32 * 20);
}

TEST(Dequantize, MatchesGgufPythonBitForBit) {
  GoldenFile golden("dequantize.bin");
  int types = 0;
  for (; !golden.at_end(); ++types) {
    const std::string name = golden.bytes(golden.u32());
    const std::string blocks = golden.bytes(golden.u32());
    const std::vector<float> expected = golden.floats(golden.u32());
    const auto type = dtype_from_name(name);
    ASSERT_TRUE(type) << name;
    const auto elements = static_cast<int64_t>(expected.size());
    ASSERT_EQ(dtype_bytes(*type, elements), static_cast<int64_t>(blocks.size())) << name;
    std::vector<float> actual(expected.size());
    dequantize(*type, blocks.data(), elements, actual.data());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
          << name << " element " << i << ": " << actual[i] << ", not " << expected[i];
    }
  }
  EXPECT_EQ(types, kDTypeCount);
}

TEST(Dequantize, NeedsNoAlignment) {
  GoldenFile golden("dequantize.bin");
  while (!golden.at_end()) {
    const DType type = dtype_from_name(golden.bytes(golden.u32())).value();
    std::string shifted(1, 'x');
    shifted += golden.bytes(golden.u32());
    const std::vector<float> expected = golden.floats(golden.u32());
    std::vector<float> actual(expected.size());
    dequantize(type, shifted.data() + 1, static_cast<int64_t>(actual.size()), actual.data());
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0);
  }
}

// Where the Python package knows no NaN: every code of such a block is one.
TEST(Dequantize, Mxfp4ScaleThatIsNotANumber) {
  std::array<uint8_t, 17> block = {255};
  for (uint8_t j = 0; j < 16; ++j) block[1u + j] = static_cast<uint8_t>(j | (15 - j) << 4);
  float out[32];
  dequantize(DType::kMXFP4, block.data(), 32, out);
  for (const float value : out) EXPECT_TRUE(std::isnan(value));
}

// Any bytes are blocks: infinite and NaN scales give values of their kind and nothing else.
TEST(Dequantize, ScalesThatAreNotFinite) {
  for (const auto& [type, at] : {std::pair{DType::kQ4_0, 0u},
                                 {DType::kQ4_1, 2u},
                                 {DType::kQ2_K, 80u},
                                 {DType::kQ3_K, 108u},
                                 {DType::kQ6_K, 208u},
                                 {DType::kIQ4_NL, 0u},
                                 {DType::kIQ4_XS, 0u}}) {
    const auto elements = static_cast<size_t>(dtype_info(type).block_elements);
    std::vector<uint8_t> block(static_cast<size_t>(dtype_info(type).block_bytes), 0x5A);
    std::vector<float> out(elements);
    for (const uint16_t half : {0x7C00, 0xFC00, 0x7E00, 0xFFFF}) {
      std::memcpy(&block[at], &half, 2);
      dequantize(type, block.data(), static_cast<int64_t>(elements), out.data());
      for (const float value : out) {
        EXPECT_FALSE(std::isfinite(value)) << dtype_info(type).name;
        EXPECT_TRUE(std::isnan(value) || (half & 0x3FF) == 0) << dtype_info(type).name;
      }
    }
  }
}

TEST(Dequantize, NoElements) {
  for (const DType type : all_types()) dequantize(type, nullptr, 0, nullptr);
}

constexpr uint8_t kHalfOne[2] = {0x00, 0x3C};
constexpr uint8_t kHalfTwo[2] = {0x00, 0x40};

template <size_t kBlock>
std::vector<float> one_block(DType type, const std::array<uint8_t, kBlock>& block) {
  EXPECT_EQ(static_cast<int>(kBlock), dtype_info(type).block_bytes);
  std::vector<float> out(static_cast<size_t>(dtype_info(type).block_elements));
  dequantize(type, block.data(), static_cast<int64_t>(out.size()), out.data());
  return out;
}

// Low nibbles are the first half of a block, high nibbles the second.
TEST(Dequantize, Q4_0ByHand) {
  std::array<uint8_t, 18> block = {kHalfTwo[0], kHalfTwo[1]};
  for (uint8_t j = 0; j < 16; ++j) block[2u + j] = static_cast<uint8_t>(j | (15 - j) << 4);
  const auto out = one_block(DType::kQ4_0, block);
  for (size_t j = 0; j < 16; ++j) {
    EXPECT_EQ(out[j], 2.0f * (static_cast<float>(j) - 8.0f));
    EXPECT_EQ(out[j + 16], 2.0f * (7.0f - static_cast<float>(j)));
  }
}

TEST(Dequantize, Q4_1ByHand) {
  std::array<uint8_t, 20> block = {kHalfTwo[0], kHalfTwo[1], kHalfOne[0], kHalfOne[1]};
  block[4] = 0xF3;
  const auto out = one_block(DType::kQ4_1, block);
  EXPECT_EQ(out[0], 7.0f);
  EXPECT_EQ(out[16], 31.0f);
  EXPECT_EQ(out[1], 1.0f);
}

// The fifth bits of a block lie in four bytes, in the order of the elements.
TEST(Dequantize, Q5ByHand) {
  std::array<uint8_t, 22> q5_0 = {kHalfOne[0], kHalfOne[1], 0x01, 0x00, 0x00, 0x80};
  const auto out_0 = one_block(DType::kQ5_0, q5_0);
  std::array<uint8_t, 24> q5_1 = {kHalfOne[0], kHalfOne[1], kHalfTwo[0], kHalfTwo[1], 0x02};
  q5_1[8 + 15] = 0xA0;
  const auto out_1 = one_block(DType::kQ5_1, q5_1);
  for (size_t j = 0; j < 32; ++j) {
    EXPECT_EQ(out_0[j], j == 0 || j == 31 ? 0.0f : -16.0f) << j;
    EXPECT_EQ(out_1[j], j == 1 ? 18.0f : j == 31 ? 12.0f : 2.0f) << j;
  }
}

TEST(Dequantize, Q8_0ByHand) {
  std::array<uint8_t, 34> block = {kHalfTwo[0], kHalfTwo[1], 0x80, 0x7F};
  const auto out = one_block(DType::kQ8_0, block);
  EXPECT_EQ(out[0], -256.0f);
  EXPECT_EQ(out[1], 254.0f);
  EXPECT_EQ(out[2], 0.0f);
}

// Sub-block scales 1, 2, 3, 4, 21, 22, 23, 24 and minimums 5, 6, 7, 8, 53, 54, 55, 56: the last
// four have bits in both halves of their split.
constexpr std::array<float, 8> kScales = {1, 2, 3, 4, 21, 22, 23, 24};
constexpr std::array<float, 8> kMins = {5, 6, 7, 8, 53, 54, 55, 56};
constexpr uint8_t kPacked[12] = {1 | 1 << 6, 2 | 1 << 6, 3 | 1 << 6, 4 | 1 << 6,
                                 5 | 3 << 6, 6 | 3 << 6, 7 | 3 << 6, 8 | 3 << 6,
                                 5 | 5 << 4, 6 | 6 << 4, 7 | 7 << 4, 8 | 8 << 4};

TEST(Dequantize, Q4_KByHand) {
  std::array<uint8_t, 144> block = {kHalfOne[0], kHalfOne[1], kHalfTwo[0], kHalfTwo[1]};
  std::memcpy(&block[4], kPacked, 12);
  for (size_t i = 0; i < 128; ++i) block[16 + i] = 0x93;
  const auto out = one_block(DType::kQ4_K, block);
  for (size_t i = 0; i < 256; ++i) {
    const float q = i / 32 % 2 == 0 ? 3.0f : 9.0f;
    ASSERT_EQ(out[i], kScales[i / 32] * q - 2.0f * kMins[i / 32]) << i;
  }
}

TEST(Dequantize, Q5_KByHand) {
  std::array<uint8_t, 176> block = {kHalfOne[0], kHalfOne[1], kHalfTwo[0], kHalfTwo[1]};
  std::memcpy(&block[4], kPacked, 12);
  for (size_t i = 0; i < 32; ++i) block[16 + i] = 0xA5;  // sub-blocks 0, 2, 5 and 7 have the bit
  for (size_t i = 0; i < 128; ++i) block[48 + i] = 0x93;
  const auto out = one_block(DType::kQ5_K, block);
  for (size_t i = 0; i < 256; ++i) {
    const size_t j = i / 32;
    const bool fifth = j == 0 || j == 2 || j == 5 || j == 7;
    const float q = (j % 2 == 0 ? 3.0f : 9.0f) + (fifth ? 16.0f : 0.0f);
    ASSERT_EQ(out[i], kScales[j] * q - 2.0f * kMins[j]) << i;
  }
}

// Scale i and minimum 15 - i of sub-block i; the codes of quarter n are n.
TEST(Dequantize, Q2_KByHand) {
  std::array<uint8_t, 84> block = {};
  for (uint8_t i = 0; i < 16; ++i) block[i] = static_cast<uint8_t>(i | (15 - i) << 4);
  for (size_t i = 0; i < 64; ++i) block[16 + i] = 0b11100100;
  block[80] = kHalfTwo[0];
  block[81] = kHalfTwo[1];
  block[82] = kHalfOne[0];
  block[83] = kHalfOne[1];
  const auto out = one_block(DType::kQ2_K, block);
  for (size_t i = 0; i < 256; ++i) {
    const auto sub_block = static_cast<float>(i / 16);
    const auto code = static_cast<float>(i % 128 / 32);
    ASSERT_EQ(out[i], 2.0f * sub_block * code - (15.0f - sub_block)) << i;
  }
}

// The scale of sub-block i is 3 i + 2 - 32, whose bits are spread over two bytes. A third bit that
// is set adds 4 to what stands for -4 .. -1.
TEST(Dequantize, Q3_KByHand) {
  std::array<uint8_t, 110> block = {};
  for (size_t i = 0; i < 32; ++i) block[i] = 0b10000001;  // groups 0 and 7
  for (size_t i = 0; i < 64; ++i) block[32 + i] = 0b11100100;
  for (size_t i = 0; i < 16; ++i) {
    const size_t scale = 3 * i + 2;
    block[96 + i % 8] |= static_cast<uint8_t>((scale & 15) << (i / 8 * 4));
    block[104 + i % 4] |= static_cast<uint8_t>(scale >> 4 << (i / 4 * 2));
  }
  block[108] = kHalfOne[0];
  block[109] = kHalfOne[1];
  const auto out = one_block(DType::kQ3_K, block);
  for (size_t i = 0; i < 256; ++i) {
    const float scale = 3.0f * static_cast<float>(i / 16) + 2.0f - 32.0f;
    const bool third = i < 32 || i >= 224;
    const float code = static_cast<float>(i % 128 / 32) - (third ? 0.0f : 4.0f);
    ASSERT_EQ(out[i], scale * code) << i;
  }
}

constexpr std::array<float, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

TEST(Dequantize, Iq4ByHand) {
  std::array<uint8_t, 18> nl = {kHalfTwo[0], kHalfTwo[1]};
  std::array<uint8_t, 136> xs = {kHalfOne[0], kHalfOne[1]};
  for (uint8_t j = 0; j < 16; ++j) nl[2u + j] = static_cast<uint8_t>(j | (15 - j) << 4);
  for (size_t j = 0; j < 128; ++j) xs[8 + j] = nl[2 + j % 16];
  // The scale of sub-block j is 8 j - 32.
  for (size_t j = 0; j < 8; ++j) {
    xs[2 + j / 4] |= static_cast<uint8_t>(8 * j >> 4 << (j % 4 * 2));
    xs[4 + j / 2] |= static_cast<uint8_t>((8 * j & 15) << (j % 2 * 4));
  }
  const auto out_nl = one_block(DType::kIQ4_NL, nl);
  const auto out_xs = one_block(DType::kIQ4_XS, xs);
  for (size_t i = 0; i < 256; ++i) {
    const float value = i % 32 < 16 ? kIq4Values[i % 16] : kIq4Values[15 - i % 16];
    const float scale = 8.0f * static_cast<float>(i / 32) - 32.0f;
    ASSERT_EQ(out_nl[i % 32], 2.0f * value) << i;
    ASSERT_EQ(out_xs[i], scale * value) << i;
  }
}

// FP4's values, times a power of two from the least subnormal one to those beyond a float's reach.
TEST(Dequantize, Mxfp4ByHand) {
  constexpr std::array<double, 8> kFp4 = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (const int exponent : {0, 1, 2, 126, 127, 128, 253, 254}) {
    std::array<uint8_t, 17> block = {static_cast<uint8_t>(exponent)};
    for (uint8_t j = 0; j < 16; ++j) block[1u + j] = static_cast<uint8_t>(j | (15 - j) << 4);
    const auto out = one_block(DType::kMXFP4, block);
    for (size_t i = 0; i < 32; ++i) {
      const size_t code = i < 16 ? i : 31 - i;
      const double value = std::ldexp(kFp4[code % 8], exponent - 127);
      ASSERT_EQ(out[i], static_cast<float>(code < 8 ? value : -value)) << i;
    }
  }
}

TEST(Dequantize, Q6_KByHand) {
  std::array<uint8_t, 210> block = {};
  for (size_t i = 0; i < 128; ++i) block[i] = 0x93;
  for (size_t i = 0; i < 64; ++i) block[128 + i] = 0b11100100;  // quarter n has the top bits n
  for (size_t i = 0; i < 16; ++i) block[192 + i] = static_cast<uint8_t>(i) - 8;
  block[208] = kHalfOne[0];
  block[209] = kHalfOne[1];
  const auto out = one_block(DType::kQ6_K, block);
  for (size_t i = 0; i < 256; ++i) {
    const size_t quarter = i % 128 / 32, sub_block = i / 16;
    const float q = (quarter < 2 ? 3.0f : 9.0f) + 16.0f * static_cast<float>(quarter) - 32.0f;
    ASSERT_EQ(out[i], (static_cast<float>(sub_block) - 8.0f) * q) << i;
  }
}

}  // namespace aerie::dtype_test
