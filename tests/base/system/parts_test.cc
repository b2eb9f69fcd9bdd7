#include "base/system/parts.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace aerie::parts_test {

TEST(Parts, AreFoundBesideTheProgram) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(find_part(program.filename().string()), program.string());
  EXPECT_EQ(find_part("libaerie_of_nobody.so"), "");
}

TEST(Parts, AreOpened) {
  const Expected<void*> library = open_part("libm.so.6", PartNames::kOwn);
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_NE(dlsym(*library, "lgamma"), nullptr);
}

TEST(Parts, OfWhatIsNoLibraryTheReasonIsSaid) {
  const Expected<void*> library = open_part("/proc/self/status", PartNames::kShared);
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(library.status().message(), testing::HasSubstr("/proc/self/status"));
}

}  // namespace aerie::parts_test
