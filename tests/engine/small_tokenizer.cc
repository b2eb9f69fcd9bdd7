#include "tests/engine/small_tokenizer.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace aerie::test {

Json added_token(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

Json small_tokenizer() {
  std::vector<std::string> names = {"<unk>", "<s>", "</s>", "<|user|>", "<|end|>", "\u2581"};
  for (char c = 'a'; c <= 'z'; ++c) names.emplace_back(1, c);
  for (char c = 'A'; c <= 'Z'; ++c) names.emplace_back(1, c);
  for (char c = '0'; c <= '9'; ++c) names.emplace_back(1, c);
  for (const char c : std::string(".,:;!?'-()\n")) names.emplace_back(1, c);
  Json merges = Json::array();
  for (const auto& [left, right] :
       {std::pair("t", "h"), std::pair("\u2581", "th"), std::pair("i", "n"),
        std::pair("\u2581th", "e"), std::pair("in", "g")}) {
    merges.push_back({left, right});
    names.push_back(std::string(left) + right);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kSmallTokens));
  Json vocab = Json::object();
  for (size_t i = 0; i < names.size(); ++i) vocab[names[i]] = i;
  Json json;
  json["added_tokens"] = Json::array();
  for (const int id : {0, 1, 2, 3, 4}) {
    json["added_tokens"].push_back(added_token(id, names[static_cast<size_t>(id)]));
  }
  const Json space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const Json sign = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({prepend, space})}};
  json["pre_tokenizer"] = nullptr;
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", Json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
      {"pair", Json::array()},
      {"special_tokens",
       {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", Json::array({"<s>"})}}}}}};
  const Json fallback = {{"type", "ByteFallback"}}, fuse = {{"type", "Fuse"}};
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders", Json::array({sign, fallback, fuse, strip})}};
  json["model"] = {{"type", "BPE"},          {"unk_token", "<unk>"}, {"fuse_unk", true},
                   {"byte_fallback", false}, {"vocab", vocab},       {"merges", merges}};
  return json;
}

}  // namespace aerie::test
