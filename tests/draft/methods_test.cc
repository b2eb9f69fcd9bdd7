// What the descriptions of all methods promise each other.
#include "draft/method.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "draft/heads/heads.h"
#include "draft/speculative_config.h"

namespace aerie::methods_test {

TEST(Methods, EachIsWhole) {
  std::set<std::string_view> names;
  for (const Method* method : methods()) {
    SCOPED_TRACE(method->name);
    EXPECT_TRUE(names.insert(method->name).second);
    EXPECT_EQ(find_method(method->name), method);
    EXPECT_FALSE(method->what.empty());
    EXPECT_NE(method->make, nullptr);
    EXPECT_NE(method->find(kTokensKey), nullptr);
    const bool has_weights = is_head_method(method->name) || method->of_model;
    EXPECT_EQ(has_weights, method->find(kDraftTypeKey) != nullptr);
    for (const MethodAlias& alias : method->aliases) {
      EXPECT_NE(method->find(alias.key), nullptr) << alias.name;
      EXPECT_EQ(method->find(alias.name), nullptr) << alias.name;
    }
  }
  EXPECT_EQ(find_method("no_such_method"), nullptr);
}

TEST(Methods, DefaultsAreWithinTheirRanges) {
  for (const Method* method : methods()) {
    std::set<std::string_view> names;
    for (const MethodKey& key : method->keys) {
      SCOPED_TRACE(std::string(method->name) + " " + std::string(key.name));
      EXPECT_TRUE(names.insert(key.name).second);
      EXPECT_FALSE(key.what.empty());
      if (key.kind == MethodKey::Kind::kText) continue;
      EXPECT_TRUE(key.fallback == MethodKey::kUnsaid ||
                  (key.fallback >= key.least && key.fallback <= key.most));
    }
    for (const auto& [name, value] : method->in_auto.numbers) {
      SCOPED_TRACE(std::string(method->name) + " in auto: " + std::string(name));
      const MethodKey* key = method->find(name);
      ASSERT_NE(key, nullptr);
      EXPECT_TRUE(value >= key->least && value <= key->most);
    }
  }
}

// "auto" has an order, and takes nothing that needs a file.
TEST(Methods, AutoTakesWhatNeedsTheTargetAlone) {
  std::set<int> places;
  for (const Method* method : methods()) {
    SCOPED_TRACE(method->name);
    if (method->in_auto.place == 0) continue;
    EXPECT_TRUE(places.insert(method->in_auto.place).second);
    for (const MethodKey& key : method->keys) EXPECT_FALSE(key.required);
  }
  EXPECT_EQ(auto_speculation().methods.size(), places.size());
}

TEST(Methods, OneIsMeantByAModelAlone) {
  EXPECT_EQ(std::ranges::count_if(methods(), [](const Method* m) { return m->of_model; }), 1);
  std::set<std::string_view> words;
  for (const Method* method : methods()) {
    if (method->model_word.empty()) continue;
    EXPECT_TRUE(words.insert(method->model_word).second) << method->model_word;
  }
}

}  // namespace aerie::methods_test
