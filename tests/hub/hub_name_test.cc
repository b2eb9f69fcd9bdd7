#include "hub/hub_name.h"

#include <gtest/gtest.h>

#include <string>

namespace aerie::hub_name_test {

TEST(HubName, HasItsParts) {
  const auto name = parse_hub_name("Org-1/Re.po_2@refs/pr/3:UD-Q4_K_XL");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->repo, "Org-1/Re.po_2");
  EXPECT_EQ(name->revision, "refs/pr/3");
  EXPECT_EQ(name->pick, "UD-Q4_K_XL");
  EXPECT_EQ(to_string(*name), "Org-1/Re.po_2@refs/pr/3:UD-Q4_K_XL");
  EXPECT_EQ(parse_hub_name("a/b:sub/x.gguf")->pick, "sub/x.gguf");
  EXPECT_EQ(parse_hub_name("a/b")->revision, "main");
  EXPECT_EQ(to_string(*parse_hub_name("a/b@main")), "a/b");
}

TEST(HubName, OtherShapesAreNone) {
  for (const char* text : {"",         "/",        "a",        "a/",
                           "/a",       "a/b/c",    "./a",      "../a",
                           "a/..",     "a/.b",     "a/b.",     "-a/b",
                           "a-/b",     "a/b--c",   "a/b..c",   "a b/c",
                           "a/b\n",    "a\\b/c",   "a/b@",     "a/b:",
                           "a/b@:q",   "a/b@../c", "a/b@-x",   "a/b@/c",
                           "a/b:../c", "a/b:/c",   "a/b:c\\d", "a/b:c//d",
                           "a/b@x y",  "C:/b",     "a/b.gguf", "a/b.safetensors",
                           "a/b.bin",  "a/b.pt",   "@v/b"}) {
    EXPECT_FALSE(parse_hub_name(text)) << text;
  }
  EXPECT_FALSE(parse_hub_name(std::string("a/b\0c", 5)));
  EXPECT_FALSE(parse_hub_name("a/" + std::string(97, 'b')));
  EXPECT_FALSE(parse_hub_name("a/b:" + std::string(2000, 'c')));
}

TEST(HubName, FilesStayInTheirFolder) {
  for (const char* name : {"a", "a.b", "a/b/c.gguf", "..a", "a..", ".hidden", "a b", "\u00e4"}) {
    EXPECT_TRUE(is_safe_file_name(name)) << name;
  }
  for (const char* name : {"", ".", "..", "/a", "a/", "a//b", "a/../b", "../a", "a/..", "a/.",
                           "a\\b", "a\tb", "a\x7f"}) {
    EXPECT_FALSE(is_safe_file_name(name)) << name;
  }
  EXPECT_FALSE(is_safe_file_name(std::string("a\0b", 3)));
  EXPECT_FALSE(is_safe_file_name(std::string(256, 'a')));
}

TEST(HubName, CommitsAreFortyDigits) {
  EXPECT_TRUE(is_commit(std::string(40, 'f')));
  for (const auto& text : {std::string(39, 'f'), std::string(41, 'f'), std::string(40, 'g'),
                           std::string(40, 'F'), std::string()}) {
    EXPECT_FALSE(is_commit(text)) << text;
  }
}

}  // namespace aerie::hub_name_test
