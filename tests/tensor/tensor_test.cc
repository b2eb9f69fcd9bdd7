#include "tensor/tensor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <utility>
#include <vector>

namespace aerie::tensor_test {

TEST(Shape, ToString) {
  EXPECT_EQ(shape_to_string({576, 49152, 1, 1}), "[576, 49152]");
  EXPECT_EQ(shape_to_string({5, 1, 1, 1}), "[5]");
  EXPECT_EQ(shape_to_string({1, 1, 1, 1}), "[1]");
  EXPECT_EQ(shape_to_string({2, 1, 3, 1}), "[2, 1, 3]");
}

TEST(TensorView, RowsAndBytes) {
  const std::vector<std::byte> bytes(2 * 3 * 36);
  const TensorView view{DType::kQ4_0, Device::kCpu, {64, 2, 3, 1}, bytes.data()};
  EXPECT_TRUE(view.valid());
  EXPECT_EQ(view.rows(), 6);
  EXPECT_EQ(view.elements(), 384);
  EXPECT_EQ(view.row_bytes(), 36);
  EXPECT_EQ(view.bytes(), 216);
  EXPECT_EQ(view.row(5) - bytes.data(), 180);
  EXPECT_FALSE(TensorView().valid());
  EXPECT_EQ(TensorView().bytes(), 0);
}

TEST(Buffer, IsZeroedAndAligned) {
  for (const size_t size : {size_t{1}, size_t{63}, size_t{4096}, (size_t{2} << 20) - 1,
                            size_t{2} << 20, (size_t{2} << 20) + 5}) {
    const Expected<Buffer> buffer = Buffer::allocate(size);
    ASSERT_TRUE(buffer.ok()) << size;
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % Buffer::kAlignment, 0u);
    EXPECT_TRUE(std::all_of(buffer->data(), buffer->data() + size,
                            [](std::byte b) { return b == std::byte{0}; }));
  }
}

// Bytes of this process that are in memory.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Otherwise a page would lie near the thread that allocates, not near the one that uses it.
TEST(Buffer, LargeOnesAreNotTouched) {
  constexpr int64_t kSize = int64_t{64} << 20;
  const int64_t before = resident_bytes();
  Expected<Buffer> buffer = Buffer::allocate(kSize);
  ASSERT_TRUE(buffer.ok());
  EXPECT_LT(resident_bytes() - before, kSize / 4);
  std::fill(buffer->data(), buffer->data() + kSize, std::byte{1});
  EXPECT_GT(resident_bytes() - before, kSize / 2);
  *buffer = Buffer();
  EXPECT_LT(resident_bytes() - before, kSize / 4);
}

TEST(Buffer, OfNoBytes) {
  Expected<Buffer> buffer = Buffer::allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), 0u);
  EXPECT_TRUE(buffer->as<float>().empty());
  EXPECT_TRUE(Buffer().as<float>().empty());
}

TEST(Buffer, MovesItsBytes) {
  Expected<Buffer> first = Buffer::allocate(16);
  ASSERT_TRUE(first.ok());
  first->as<float>()[3] = 1.5f;
  const std::byte* data = first->data();
  const Buffer second = std::move(first).value();
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.as<float>().size(), 4u);
  EXPECT_EQ(second.as<float>()[3], 1.5f);
}

TEST(Buffer, TooLargeIsAStatus) {
  for (const size_t size : {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - (size_t{1} << 20)}) {
    const Expected<Buffer> buffer = Buffer::allocate(size);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(buffer.status().message().find(std::to_string(size)), std::string::npos);
  }
}

TEST(Arena, BuffersLieSideBySideAndOutliveIt) {
  std::vector<Buffer> buffers;
  const int64_t before = resident_bytes();
  {
    Expected<Arena> reserved = Arena::reserve(size_t{64} << 20);
    ASSERT_TRUE(reserved.ok());
    Arena arena = std::move(reserved).value();
    for (const size_t size : {size_t{100}, size_t{1}, size_t{1} << 20, size_t{0}, size_t{64}}) {
      Expected<Buffer> buffer = arena.allocate(size);
      ASSERT_TRUE(buffer.ok());
      EXPECT_EQ(buffer->size(), size);
      buffers.push_back(std::move(buffer).value());
    }
  }
  EXPECT_EQ(buffers[1].data() - buffers[0].data(), 128);
  EXPECT_EQ(buffers[2].data() - buffers[1].data(), 64);
  EXPECT_EQ(buffers[4].data() - buffers[2].data(), 1 << 20);
  EXPECT_LT(resident_bytes() - before, int64_t{16} << 20);
  for (Buffer& buffer : buffers) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % Buffer::kAlignment, 0u);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size(),
                            [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(buffer.data(), buffer.size(), std::byte{1});
  }
}

TEST(Arena, WhatDoesNotFitHasMemoryOfItsOwn) {
  for (const size_t reserved : {size_t{0}, size_t{100}, size_t{4096}}) {
    Arena arena = std::move(Arena::reserve(reserved)).value();
    std::vector<Buffer> buffers;
    for (int i = 0; i < 5; ++i) {
      Expected<Buffer> buffer = arena.allocate(1000);
      ASSERT_TRUE(buffer.ok());
      std::fill_n(buffer->data(), buffer->size(), static_cast<std::byte>(i));
      buffers.push_back(std::move(buffer).value());
    }
    for (int i = 0; i < 5; ++i) {
      const Buffer& buffer = buffers[static_cast<size_t>(i)];
      EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size(),
                              [&](std::byte b) { return b == static_cast<std::byte>(i); }));
    }
  }
}

TEST(Arena, TooLargeIsAStatus) {
  const Expected<Arena> arena = Arena::reserve(SIZE_MAX);
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.status().code(), StatusCode::kResourceExhausted);
}

}  // namespace aerie::tensor_test
