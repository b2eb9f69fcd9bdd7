// What the tests of bench/ ask of HTML and SVG.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aerie::measure {

// Whether every element that begins also ends, in order; `meta` and the doctype need not.
inline void expect_balanced(const std::string& markup) {
  std::vector<std::string> open;
  for (size_t at = markup.find('<'); at != std::string::npos; at = markup.find('<', at + 1)) {
    const size_t end = markup.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string inside = markup.substr(at + 1, end - at - 1);
    ASSERT_EQ(inside.find('<'), std::string::npos) << inside;
    const std::string name = inside.substr(0, inside.find_first_of(" />", 1));
    if (inside.back() == '/' || name == "meta" || name == "!DOCTYPE") continue;
    if (inside[0] != '/') {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << inside;
    ASSERT_EQ("/" + open.back(), name);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

}  // namespace aerie::measure
