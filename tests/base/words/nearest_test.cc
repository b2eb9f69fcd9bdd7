#include "base/words/nearest.h"

#include <gtest/gtest.h>

namespace aerie::nearest_test {

TEST(Nearest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("serve", "sevre"), 1);  // neighbours that changed places
  EXPECT_EQ(edit_distance("--port", "--prot"), 1);
  EXPECT_EQ(edit_distance("ab", "ba"), 1);
}

TEST(Nearest, NamesWhatIsNear) {
  EXPECT_EQ(nearest("--max-num-seq", {"--max-tokens", "--max-num-seqs"}), "--max-num-seqs");
  EXPECT_EQ(nearest("srve", {"run", "serve", "tune"}), "serve");
  EXPECT_EQ(nearest("--something-else", {"--port", "--host"}), "");
  EXPECT_EQ(nearest("", {"run"}), "");
  EXPECT_EQ(nearest(std::string(100000, 'x'), {std::string(100001, 'x')}), "");
  EXPECT_EQ(did_you_mean("rum", {"run"}), " (did you mean run?)");
  EXPECT_EQ(did_you_mean("elephant", {"run"}), "");
}

}  // namespace aerie::nearest_test
