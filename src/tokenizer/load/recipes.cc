#include "tokenizer/load/recipes.h"

#include "base/errors.h"
#include "format/text.h"
#include "tokenizer/pieces/normalizer_steps.h"

namespace aerie {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kDigitPattern = R"(\p{N})";
const std::string_view kPunctuationPattern = R"([!-/:-@\[-`{-~\p{P}])";

namespace {

// Patterns as in the tokenizer.json of the models that introduced them.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";
constexpr std::string_view kDeepSeekLetters =
    "\\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-"
    "\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-"
    "\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-"
    "\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-"
    "\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149"
    "\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-"
    "\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-"
    "\U0001e943"
    "]+";
constexpr std::string_view kDeepSeekSigns = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kDeepSeekHan = R"([一-龥ࠀ-一가-퟿]+)";
// With line ends as they are, not as escapes.
constexpr std::string_view kDeepSeek3 = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                                        "\r\n"
                                        R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                                        "\r\n"
                                        R"(]*|\s*[)"
                                        "\r\n"
                                        R"(]+|\s+(?!\S)|\s+)";

struct Row {
  std::vector<std::string_view> names;  // of tokenizer.ggml.pre; the first is written
  Recipe recipe;
};

SplitRule isolated(std::string_view pattern) {
  return {std::string(pattern), SplitBehavior::kIsolated, false};
}

SplitRule contiguous(std::string_view pattern) {
  return {std::string(pattern), SplitBehavior::kContiguous, false};
}

// Only what was looked up: a name is in the table if its normaliser and its rules are known.
std::vector<Row> make_table() {
  const bool nfc = true, plain = false;
  std::vector<Row> table;
  const auto row = [&](std::vector<std::string_view> names, bool normal_form,
                       std::vector<SplitRule> rules, bool ignore_merges = false) {
    table.push_back({std::move(names), {normal_form, std::move(rules), {}, ignore_merges}});
  };
  const SplitRule gpt2 = isolated(kGpt2Pattern), digit = isolated(kDigitPattern);
  row({"gpt-2", "gpt2", "phi-2"}, plain, {gpt2});
  row({"mpt", "olmo"}, nfc, {gpt2});
  row({"smollm", "starcoder", "refact", "codeshell"}, plain, {digit, gpt2});
  row({"command-r"}, nfc, {digit, gpt2});
  row({"llama-bpe", "llama3", "llama-v3", "lfm2"}, plain, {isolated(kLlama3)}, true);
  row({"dbrx", "chatglm-bpe", "glm4"}, plain, {isolated(kLlama3)});
  row({"qwen2"}, nfc, {isolated(kQwen2)});
  row({"stablelm2"}, plain, {isolated(kQwen2)});
  row({"qwen35"}, nfc, {isolated(kQwen35)});
  row({"gpt-4o", "llama4"}, plain, {isolated(kGpt4o)});
  row({"tekken"}, plain, {isolated(kTekken)}, true);
  row({"bailingmoe"}, plain, {isolated(kBailing)});
  row({"bloom", "poro-chat", "gpt3-finnish"}, plain, {isolated(kBloom)});
  row({"viking"}, plain, {isolated(kBloom), digit});
  row({"deepseek-llm"}, plain,
      {isolated("[\r\n]"), isolated(kDeepSeekLetters), isolated(kDeepSeekSigns), isolated("\\s+$"),
       isolated(kDeepSeekHan), digit});
  row({"deepseek-coder"}, plain,
      {isolated("[\r\n]"), isolated("\\s?\\p{L}+"), isolated("\\s?\\p{P}+"), isolated(kDeepSeekHan),
       digit});
  row({"deepseek-v3"}, plain,
      {isolated("\\p{N}{1,3}"), isolated("[一-龥぀-ゟ゠-ヿ]+"), isolated(kDeepSeek3)});
  table.push_back({{"falcon"},
                   {false,
                    {contiguous(kPunctuationPattern), gpt2},
                    {contiguous(kDigitPattern), isolated("[0-9][0-9][0-9]")},
                    false}});
  // For files whose converter did not know the pre-tokenizer: what llama.cpp does then.
  row({"default"}, plain,
      {isolated("[\\p{P}\\$\\+<=>\\^~\\|]+"), gpt2, isolated("\\p{N}+"),
       isolated("[0-9][0-9][0-9]")});
  return table;
}

const std::vector<Row>& table() {
  static const std::vector<Row> kTable = make_table();
  return kTable;
}

Status add_rules(const std::vector<SplitRule>& rules, PreTokenizer& pre_tokenizer) {
  for (const SplitRule& rule : rules) {
    AERIE_ASSIGN_OR_RETURN(Regex regex, Regex::compile(rule.pattern));
    pre_tokenizer.add_split(std::move(regex), rule.behavior, rule.invert);
  }
  return {};
}

// Removing what does not match is the same as keeping the matches apart for a pattern that every
// character is part of a match of, as those do that end in this way.
Recipe canonical(Recipe recipe) {
  for (SplitRule& rule : recipe.rules) {
    if (rule.invert && rule.behavior == SplitBehavior::kRemoved &&
        rule.pattern.ends_with(R"(\s+(?!\S)|\s+)")) {
      rule.behavior = SplitBehavior::kIsolated;
      rule.invert = false;
    }
  }
  return recipe;
}

}  // namespace

Expected<Recipe> recipe_of_name(std::string_view name) {
  std::string known;
  for (const Row& row : table()) {
    for (const std::string_view candidate : row.names) {
      if (candidate == name) return row.recipe;
      known += known.empty() ? "" : ", ";
      known += candidate;
    }
  }
  return not_supported(
      "tokenizer.ggml.pre is '{}', and this build knows only {}; convert the model with one of "
      "these or use a newer build",
      printable(name, 40), known);
}

std::string_view name_of_recipe(const Recipe& recipe) {
  const Recipe wanted = canonical(recipe);
  for (const Row& row : table()) {
    if (row.recipe == wanted) return row.names.front();
  }
  return {};
}

Status add_recipe(const Recipe& recipe, Normalizer& normalizer, PreTokenizer& pre_tokenizer) {
  if (recipe.nfc) normalizer.add(normal_form_step(NormalForm::kNfc));
  AERIE_RETURN_IF_ERROR(add_rules(recipe.rules, pre_tokenizer));
  if (recipe.rules_on_bytes.empty()) return {};
  pre_tokenizer.add_byte_names();
  return add_rules(recipe.rules_on_bytes, pre_tokenizer);
}

}  // namespace aerie
