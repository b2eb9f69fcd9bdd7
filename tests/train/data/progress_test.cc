#include "train/data/progress.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

namespace aerie::train::progress_test {

TEST(Progress, Durations) {
  EXPECT_EQ(duration_text(0.0), "0 s");
  EXPECT_EQ(duration_text(12.1), "13 s");
  EXPECT_EQ(duration_text(59.5), "1 min 00 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 05 min");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "a long time");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "a long time");
}

// A file is no terminal: whole lines, and none before its time.
TEST(Progress, FilesGetWholeLinesRarely) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    ProgressLine line(file);
    EXPECT_FALSE(line.is_due());
    line.show("one");
    line.show("two");
    EXPECT_FALSE(line.is_due());
  }
  std::rewind(file);
  std::array<char, 64> text = {};
  const size_t size = std::fread(text.data(), 1, text.size(), file);
  EXPECT_EQ(std::string(text.data(), size), "one\ntwo\n");
  std::fclose(file);
  ProgressLine none(nullptr);
  EXPECT_FALSE(none.is_due());
  none.show("nowhere");
}

}  // namespace aerie::train::progress_test
