// The pre-tokenizers that GGUF files name: their parts, and where they cut texts.
#include "tokenizer/load/recipes.h"

#include <gtest/gtest.h>

#include "format/json.h"
#include "tests/tokenizer/vocabularies.h"
#include "tokenizer/load/hf_components.h"
#include "tokenizer/pieces/byte_alphabet.h"

namespace aerie::recipes_test {

using nlohmann::json;

// The recipe that a tokenizer.json with these parts has.
Recipe recipe_of(const json& row) {
  const json file = {{"normalizer", row.at("normalizer")},
                     {"pre_tokenizer", row.at("pre_tokenizer")}};
  const auto parsed = parse_json(file.dump(), "row");
  EXPECT_TRUE(parsed.ok());
  const auto root = JsonObject::view(*parsed, "row");
  Normalizer normalizer;
  HfShape shape;
  EXPECT_TRUE(read_hf_normalizer(*root, normalizer, shape).ok());
  const auto pre = read_hf_pre_tokenizer(*root, shape);
  EXPECT_TRUE(pre.ok()) << pre.status().message();
  EXPECT_TRUE(shape.is_recipe) << row.at("names");
  return shape.recipe;
}

std::vector<size_t> cuts(const Recipe& recipe, const std::string& text) {
  Normalizer normalizer;
  PreTokenizer pre;
  EXPECT_TRUE(add_recipe(recipe, normalizer, pre).ok());
  auto scratch = pre.make_scratch();
  std::vector<std::string_view> words;
  EXPECT_TRUE(pre.split(text, {true, false}, scratch, words).ok());
  std::vector<size_t> lengths;
  for (const std::string_view word : words) {
    std::string bytes(word);
    // Rules behind the spelling leave words spelled.
    if (!recipe.rules_on_bytes.empty()) {
      bytes.clear();
      EXPECT_TRUE(append_named_bytes(word, bytes));
    }
    lengths.push_back(bytes.size());
  }
  return lengths;
}

TEST(Recipes, PartsAndCuts) {
  const json all = json::parse(test::read_file("tests/golden/tokenizers/recipes.json"));
  size_t names = 0;
  for (const json& row : all.at("recipes")) {
    Recipe published = recipe_of(row);
    for (const auto& name : row.at("names")) {
      const auto recipe = recipe_of_name(name.get<std::string>());
      ASSERT_TRUE(recipe.ok()) << recipe.status().message();
      published.ignore_merges = recipe->ignore_merges;
      EXPECT_EQ(*recipe, published) << name;
      EXPECT_FALSE(name_of_recipe(*recipe).empty()) << name;
      EXPECT_EQ(*recipe_of_name(name_of_recipe(*recipe)), *recipe) << name;
      ++names;
    }
    for (size_t i = 0; i < all.at("texts").size(); ++i) {
      EXPECT_EQ(cuts(published, all.at("texts")[i].get<std::string>()),
                row.at("cuts")[i].get<std::vector<size_t>>())
          << row.at("names") << " " << all.at("texts")[i];
    }
  }
  EXPECT_GE(names, 25u);
}

// Tiktoken's tokenizers, converted, keep the matches by removing what lies between them.
TEST(Recipes, RemovingTheRestIsKeepingTheMatches) {
  Recipe recipe = *recipe_of_name("dbrx");
  recipe.rules[0].behavior = SplitBehavior::kRemoved;
  recipe.rules[0].invert = true;
  EXPECT_EQ(name_of_recipe(recipe), "dbrx");
  recipe.rules[0].invert = false;
  EXPECT_EQ(name_of_recipe(recipe), "");
}

}  // namespace aerie::recipes_test
