#include "tools/files/tokenize.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/format/gguf/gguf_writer.h"
#include "tests/tokenizer/vocabularies.h"

namespace aerie::tokenize_tool_test {

class TokenizeTool : public ::testing::Test {
 protected:
  void SetUp() override {
    test::BpeData data = test::byte_vocabulary();
    data.tokens[4] = "no name of byte 4";
    test::add_merge(data, "\xE4", "\xB8");
    test::add_token(data, "<s>", TokenType::kControl);
    test::GgufWriter writer;
    writer.add_string("tokenizer.ggml.model", "gpt2")
        .add_array("tokenizer.ggml.tokens", data.tokens)
        .add_array("tokenizer.ggml.merges", data.merges)
        .add_array("tokenizer.ggml.token_type",
                   std::vector<int32_t>(data.types.begin(), data.types.end()))
        .add_u32("tokenizer.ggml.bos_token_id", 257)
        .add_bool("tokenizer.ggml.add_bos_token", true);
    options_.model = ::testing::TempDir() + "tokenize_tool_test.gguf";
    const Status written = writer.write(options_.model);
    ASSERT_TRUE(written.ok()) << written.message();
  }
  std::string run(const std::string& text) {
    options_.text = text;
    std::ostringstream out;
    const Status status = tokenize(options_, out);
    return status.ok() ? out.str() : "error: " + status.message();
  }

  TokenizeCommand options_;
};

TEST_F(TokenizeTool, LinesOfIdAndPiece) {
  EXPECT_EQ(run("a\n\t\\ é中"),
            "     97  a\n"
            "     10  \\n\n"
            "      9  \\t\n"
            "     92  \\\\\n"
            "     32   \n"
            "    195  \\xc3\n"
            "    169  \\xa9\n"
            "    256  \\xe4\\xb8\n"
            "    173  \\xad\n");
}

TEST_F(TokenizeTool, IdsOnlyAndBack) {
  options_.ids_only = true;
  options_.add_special = true;
  options_.special = true;
  EXPECT_EQ(run("中<s>\x04"), "[257, 256, 173, 257]\n");
  EXPECT_EQ(run("<s>"), "[257]\n");
  options_.special = false;
  EXPECT_EQ(run("<s>"), "[257, 60, 115, 62]\n");
  options_.decode = true;
  EXPECT_EQ(run("[257, 256, 173, 257]\n"), "中\n");
  EXPECT_EQ(run(" 256 "), "\uFFFD\n");
  options_.special = true;
  EXPECT_EQ(run("257,256 173"), "<s>中\n");
  EXPECT_EQ(run(""), "\n");
}

TEST_F(TokenizeTool, Json) {
  options_.json = true;
  const auto json = nlohmann::json::parse(run("中"));
  EXPECT_EQ(json.at("ids"), (std::vector<int>{256, 173}));
  EXPECT_EQ(json.at("tokens").at(0).at("bytes"), (std::vector<int>{0xE4, 0xB8}));
  EXPECT_EQ(json.at("tokens").at(0).at("id"), 256);
  options_.ids_only = true;
  EXPECT_EQ(run("ab"), "{\"ids\":[97,98]}\n");
  options_.decode = true;
  EXPECT_EQ(run("97 10 98"), "{\"text\":\"a\\nb\"}\n");
}

TEST_F(TokenizeTool, BadIdsAndFiles) {
  options_.decode = true;
  for (const char* text : {"258", "-1", "x", "1x", "99999999999999999999", "1.5", "0x10"}) {
    EXPECT_EQ(run(std::string("1 ") + text),
              std::string("error: '") + text + "' is not a token id; the model has ids 0 to 257");
  }
  options_.model = "/nonexistent/file.gguf";
  EXPECT_NE(run("1").find("/nonexistent/file.gguf"), std::string::npos);
}

TEST_F(TokenizeTool, Frequencies) {
  const std::string one = ::testing::TempDir() + "tokenize_tool_one.txt";
  const std::string two = ::testing::TempDir() + "tokenize_tool_two.txt";
  std::ofstream(one, std::ios::binary) << "b中aab\n";
  std::ofstream(two, std::ios::binary) << "cb<s>";
  options_.frequencies = {one, two};
  options_.special = true;
  // b 3 times, a twice, the others once: ties by id.
  EXPECT_EQ(run(""), "98\n97\n10\n99\n173\n256\n257\n");
  options_.json = true;
  EXPECT_EQ(run(""), "[98,97,10,99,173,256,257]\n");
  // Parts end with lines, and every byte is counted.
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += i % 7 == 0 ? "aaaaaaaaaaaaaaaaaaaaaaab\n" : "ccc ";
  text += std::string(9 << 20, 'd');
  std::ofstream(one, std::ios::binary) << text;
  options_.frequencies = {one};
  EXPECT_EQ(run(""), "[100,97,99,32,10,98]\n");
  options_.frequencies = {one, ::testing::TempDir() + "tokenize_tool_none.txt"};
  EXPECT_EQ(run("").find("error: "), 0u);
  std::remove(one.c_str());
  std::remove(two.c_str());
}

}  // namespace aerie::tokenize_tool_test
