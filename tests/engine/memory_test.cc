#include "engine/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aerie::memory_test {

using ::testing::HasSubstr;
constexpr int64_t kMiB = 1 << 20;

TEST(Memory, IsKnownHere) {
  EXPECT_GT(available_memory(), kMiB);
}

TEST(Memory, TakesWhatFits) {
  EXPECT_TRUE(check_memory("m", 50 * kMiB, 30 * kMiB, 20 * kMiB, 100 * kMiB).ok());
  EXPECT_FALSE(check_memory("m", 50 * kMiB, 30 * kMiB, 20 * kMiB + 1, 100 * kMiB).ok());
  EXPECT_TRUE(check_memory("m", 50 * kMiB, 30 * kMiB, 20 * kMiB, -1).ok());
}

TEST(Memory, SaysWhatDoesNotFit) {
  const Status status = check_memory("big.gguf", 50 * kMiB, 30 * kMiB, 20 * kMiB, 70 * kMiB);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  for (const char* part : {"big.gguf", "50 MiB", "30 MiB", "20 MiB", "70 MiB", "smaller"}) {
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
}

}  // namespace aerie::memory_test
