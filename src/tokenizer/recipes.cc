#include "tokenizer/recipes.h"

#include <fmt/format.h>

#include <algorithm>

#include "format/text.h"
#include "tokenizer/normalizer_steps.h"

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
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr std::string_view kDeepSeekSigns = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kDeepSeekHan = R"([一-龥ࠀ-一가-퟿]+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

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
  row({"llama-bpe", "llama3", "llama-v3"}, plain, {isolated(kLlama3)}, true);
  row({"dbrx", "chatglm-bpe", "glm4"}, plain, {isolated(kLlama3)});
  row({"qwen2"}, nfc, {isolated(kQwen2)});
  row({"stablelm2"}, plain, {isolated(kQwen2)});
  row({"qwen35"}, nfc, {isolated(kQwen35)});
  row({"gpt-4o", "llama4"}, plain, {isolated(kGpt4o)});
  row({"tekken"}, plain, {isolated(kTekken)}, true);
  row({"bailingmoe"}, plain, {isolated(kBailing)});
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
  return Status(StatusCode::kUnsupported,
                fmt::format("tokenizer.ggml.pre is '{}', and this build knows only {}; convert the "
                            "model with one of these or use a newer build",
                            printable(name, 40), known));
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
