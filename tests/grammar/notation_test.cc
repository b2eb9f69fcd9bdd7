#include "grammar/notation.h"

#include <gtest/gtest.h>

namespace aerie::grammar::notation_test {

TEST(Notations, AreToldByHowTheFirstRuleIsDefined) {
  for (const char* text :
       {"root ::= \"a\"", "# x = y\n\n  root::=\"a: b\"", "// x: y\n%x: y\nroot\n::= \"a\""}) {
    EXPECT_EQ(notation_of(text).defines, "::=") << text;
  }
}

TEST(Notations, WhatTellsNothingIsReadAsTheFirst) {
  for (const char* text : {"", "\n", "#", "# root ::= x", "%", "root = \"a\"", "\r\n \t"}) {
    EXPECT_EQ(notation_of(text).defines, "::=") << text;
  }
}

}  // namespace aerie::grammar::notation_test
