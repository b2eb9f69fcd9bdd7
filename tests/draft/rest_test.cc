#include "draft/lookup/rest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "draft/lookup/corpus_file.h"
#include "draft/lookup/corpus_index.h"
#include "draft/speculative_config.h"
#include "tests/draft/tree_paths.h"

namespace aerie::rest_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using test::paths_of;
using Tokens = std::vector<int32_t>;

constexpr int32_t kEnd = CorpusIndex::kEnd;

std::unique_ptr<Drafter> make(const RestOptions& options, const Tokens& corpus) {
  auto drafter = make_rest_drafter(options, corpus);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

// The draft for this text alone.
TokenTree propose(Drafter& drafter, const Tokens& text, int max_nodes = 1000) {
  DraftSequence sequence;
  sequence.max_tokens = 1000;
  EXPECT_TRUE(drafter.open(sequence).ok());
  TokenTree tree;
  DraftRequest request{.tokens = text, .max_nodes = max_nodes, .tree = &tree};
  EXPECT_TRUE(drafter.propose({&request, 1}).ok());
  drafter.close(0);
  return tree;
}

// --- The index
// ------------------------------------------------------------------------------------

// How often each token follows the string, and kEnd its other occurrences.
std::map<int32_t, int> followers(const Tokens& corpus, const Tokens& string) {
  std::map<int32_t, int> counts;
  for (size_t i = 0; i + string.size() <= corpus.size(); ++i) {
    if (!std::equal(string.begin(), string.end(), corpus.begin() + static_cast<ptrdiff_t>(i))) {
      continue;
    }
    const size_t next = i + string.size();
    ++counts[next < corpus.size() ? corpus[next] : kEnd];
  }
  return counts;
}

TEST(CorpusIndex, AgreesWithASearch) {
  std::mt19937 random(3);
  constexpr int kVocab = 4, kDepth = 6;
  for (int round = 0; round < 20; ++round) {
    Tokens corpus(1 + random() % 50);
    for (int32_t& token : corpus) token = static_cast<int32_t>(random() % (kVocab + 1)) - 1;
    const CorpusIndex index(corpus, kVocab, kDepth);
    for (int i = 0; i < 100; ++i) {
      Tokens text(1 + random() % 8);
      for (int32_t& token : text) token = static_cast<int32_t>(random() % kVocab);
      int longest = 0;
      for (size_t n = 1; n <= std::min<size_t>(text.size(), kDepth); ++n) {
        const Tokens suffix(text.end() - static_cast<ptrdiff_t>(n), text.end());
        if (!followers(corpus, suffix).empty()) longest = static_cast<int>(n);
      }
      const CorpusIndex::Range found = index.find_longest(text, 1, kDepth);
      ASSERT_EQ(found.depth, longest);
      if (longest == 0 || longest == kDepth) continue;
      const Tokens suffix(text.end() - longest, text.end());
      std::map<int32_t, int> counts = followers(corpus, suffix);
      int all = 0;
      for (const auto& [token, count] : counts) all += count;
      EXPECT_EQ(found.size(), all);
      const int ended = counts[kEnd];
      std::vector<CorpusIndex::Continuation> next;
      index.continuations(found, 0.0, next);
      counts.erase(kEnd);
      ASSERT_EQ(next.size(), counts.size());
      for (const CorpusIndex::Continuation& one : next) {
        EXPECT_EQ(one.range.size(), counts[one.token]);
        EXPECT_EQ(one.range.depth, longest + 1);
        EXPECT_DOUBLE_EQ(one.share, 1.0 * counts[one.token] / (all - ended));
      }
    }
  }
}

TEST(CorpusIndex, SamplesWhatOccursOften) {
  Tokens corpus;
  for (int i = 0; i < 5000; ++i) {
    corpus.push_back(0);
    corpus.push_back(i % 10 < 7 ? 1 : i % 10 < 9 ? 2 : 3);
  }
  const CorpusIndex index(corpus, 4, 3);
  std::vector<CorpusIndex::Continuation> next;
  index.continuations(index.find_longest(Tokens{0}, 1, 3), 0.15, next);
  ASSERT_EQ(next.size(), 2U);
  EXPECT_NEAR(next[0].share, 0.7, 0.02);
  EXPECT_NEAR(next[1].share, 0.2, 0.02);
  // The occurrences themselves are all there.
  EXPECT_EQ(next[0].range.size(), 3500);
  EXPECT_EQ(next[1].range.size(), 1000);
}

TEST(CorpusIndex, KeepsToItsDepth) {
  const CorpusIndex index({1, 2, 3, 1, 2, 3}, 4, 2);
  const CorpusIndex::Range found = index.find_longest(Tokens{1, 2}, 1, 9);
  EXPECT_EQ(found.depth, 2);
  std::vector<CorpusIndex::Continuation> next;
  index.continuations(found, 0.0, next);
  EXPECT_TRUE(next.empty());
  EXPECT_EQ(index.find_longest(Tokens{3}, 2, 9).size(), 0);
  EXPECT_EQ(index.find_longest(Tokens{}, 1, 9).size(), 0);
  EXPECT_EQ(index.find_longest(Tokens{9}, 1, 9).size(), 0);
  EXPECT_EQ(index.find_longest(Tokens{-1}, 1, 9).size(), 0);
}

// --- Proposals
// ------------------------------------------------------------------------------------

TEST(Rest, MergesWhatFollowedTheLongestMatch) {
  // After 1 2 came 3 (twice, then 4 and 5) and 6; after 2 alone 7, which does not count.
  const auto drafter = make({.vocab = 10, .num_tokens = 5, .num_steps = 2},
                            {1, 2, 3, 4, kEnd, 1, 2, 3, 5, kEnd, 1, 2, 6, kEnd, 2, 7});
  const TokenTree tree = propose(*drafter, {9, 1, 2});
  EXPECT_THAT(paths_of(tree), ElementsAre(Tokens{3}, Tokens{6}, Tokens{3, 4}, Tokens{3, 5}));
  // 2/3 and 1/3, of 2 * 3 / (3 * 4); a half of 2/3, of 2 * 3 / (4 * 5).
  EXPECT_THAT(tree.nodes[0].probability, testing::FloatNear(1.0f / 3, 1e-6f));
  EXPECT_THAT(tree.nodes[1].probability, testing::FloatNear(1.0f / 6, 1e-6f));
  EXPECT_THAT(tree.nodes[2].probability, testing::FloatNear(0.1f, 1e-6f));
  for (const TokenTree::Node& node : tree.nodes) EXPECT_EQ(node.proposal, nullptr);
  EXPECT_THAT(paths_of(propose(*drafter, {9, 1, 2}, 2)), ElementsAre(Tokens{3}, Tokens{6}));
}

TEST(Rest, LooksUpAsManyTokensAsItIsTold) {
  const Tokens corpus = {1, 2, 3, 4, kEnd, 5, 2, 3, 6, kEnd, 2, 3, 6};
  EXPECT_THAT(paths_of(propose(*make({.vocab = 10, .num_tokens = 1}, corpus), {1, 2, 3})),
              ElementsAre(Tokens{4}));
  EXPECT_THAT(
      paths_of(propose(*make({.vocab = 10, .num_tokens = 1, .max_span = 2}, corpus), {1, 2, 3})),
      ElementsAre(Tokens{6}));
  EXPECT_TRUE(propose(*make({.vocab = 10}, corpus), {9, 3}).empty());
  EXPECT_FALSE(propose(*make({.vocab = 10, .min_span = 1}, corpus), {9, 3}).empty());
  EXPECT_TRUE(propose(*make({.vocab = 10}, corpus), {3}).empty());
}

TEST(Rest, PassesOverAMatchWithNothingBehindIt) {
  const auto drafter = make({.vocab = 10, .num_tokens = 1}, {1, 2, 3, kEnd, 7, 2, 3, 8});
  EXPECT_THAT(paths_of(propose(*drafter, {1, 2, 3})), ElementsAre(Tokens{8}));
  EXPECT_TRUE(propose(*drafter, {1, 2}, 0).empty());
}

TEST(Rest, LeavesOutWhatIsRare) {
  Tokens corpus;
  for (int i = 0; i < 20; ++i) corpus.insert(corpus.end(), {1, 2, i == 7 ? 4 : 3, kEnd});
  EXPECT_THAT(paths_of(propose(*make({.vocab = 10, .min_probability = 0.1}, corpus), {1, 2})),
              ElementsAre(Tokens{3}));
  EXPECT_THAT(paths_of(propose(*make({.vocab = 10, .min_probability = 0.04}, corpus), {1, 2})),
              ElementsAre(Tokens{3}, Tokens{4}));
}

TEST(Rest, RefusesSettingsThatCannotBe) {
  const auto refused = [](const RestOptions& options, const Tokens& corpus = {1}) {
    return make_rest_drafter(options, corpus).status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({.vocab = 2, .num_tokens = 0}));
  EXPECT_TRUE(refused({.vocab = 2, .num_steps = 0}));
  EXPECT_TRUE(refused({.vocab = 2, .max_span = 3, .min_span = 4}));
  EXPECT_TRUE(refused({.vocab = 2, .max_span = 65}));
  EXPECT_TRUE(refused({.vocab = 2, .min_probability = 0.0}));
  EXPECT_TRUE(refused({.vocab = 2}, {2}));
  EXPECT_TRUE(refused({.vocab = 2}, {-2}));
  EXPECT_FALSE(refused({.vocab = 2}, {}));
}

TEST(Rest, SettingsNeedACorpus) {
  const auto says = [](const char* text) {
    const auto config = parse_speculative_spec(text);
    return config.ok() ? std::string() : config.status().message();
  };
  EXPECT_EQ(says("rest:corpus=a.txt,max_token_span=8,num_speculative_tokens=64"), "");
  EXPECT_THAT(says("rest"), HasSubstr("method rest needs 'corpus'"));
  EXPECT_THAT(says("rest:corpus=a.txt,max_token_span=2,min_token_span=3"),
              HasSubstr("'min_token_span' 3 is above 'max_token_span' 2"));
}

// --- The file
// -------------------------------------------------------------------------------------

// A token for each byte.
class ByteTokenizer final : public Tokenizer {
 public:
  int vocab_size() const override { return 256; }
  Status encode(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>& ids) const override {
    EXPECT_FALSE(options.add_special);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return {};
  }
  std::string_view piece(int32_t) const override { return {}; }
  std::string_view missing_bytes() const override { return {}; }
  bool strips_leading_space() const override { return false; }
  bool is_control(int32_t) const override { return false; }
  bool is_end(int32_t) const override { return false; }
  int32_t bos() const override { return -1; }
  int32_t eos() const override { return -1; }
  int32_t unk() const override { return -1; }
  int32_t pad() const override { return -1; }
  int32_t find(std::string_view) const override { return -1; }
  Expected<GgufTokenizerMetadata> gguf_metadata() const override {
    return Status(StatusCode::kUnsupported, "none");
  }
};

class CorpusFile : public testing::Test {
 protected:
  Expected<Tokens> read(const std::string& text, const std::string& suffix = ".txt",
                        int vocab = 256) {
    path_ = testing::TempDir() + "aerie_corpus" + suffix;
    std::ofstream(path_, std::ios::binary) << text;
    return read_corpus(path_, ByteTokenizer(), vocab);
  }

  std::string path_;
};

TEST_F(CorpusFile, IsOneText) {
  EXPECT_THAT(read("ab\nc").value(), ElementsAre('a', 'b', '\n', 'c', kEnd));
  EXPECT_THAT(read("a~b", ".txt", '~').value(), ElementsAre('a', kEnd, 'b', kEnd));
}

TEST_F(CorpusFile, OrALineForEachText) {
  EXPECT_THAT(read("{\"text\": \"ab\", \"id\": 1}\n\n{\"text\":\"c\\n\"}\r\n", ".jsonl").value(),
              ElementsAre('a', 'b', kEnd, 'c', '\n', kEnd));
}

TEST_F(CorpusFile, LongOnesComeWhole) {
  std::string text;
  for (int i = 0; i < 30000; ++i) text += "line \u00e9\n";
  text += std::string(size_t{3} << 20, 'x');
  for (int i = 0; i < 600000; ++i) text += "\u00e9\u4e2d";
  const Tokens tokens = read(text).value();
  ASSERT_EQ(tokens.size(), text.size() + 1);
  EXPECT_TRUE(std::equal(text.begin(), text.end(), tokens.begin(), [](char c, int32_t token) {
    return static_cast<unsigned char>(c) == token;
  }));
}

TEST_F(CorpusFile, SaysWhatIsWrong) {
  const auto expect_refused = [&](const Expected<Tokens>& tokens, StatusCode code,
                                  const std::string& what) {
    EXPECT_EQ(tokens.status().code(), code);
    EXPECT_THAT(tokens.status().message(), testing::StartsWith(path_));
    EXPECT_THAT(tokens.status().message(), HasSubstr(what));
  };
  expect_refused(read(""), StatusCode::kInvalidData, "the corpus is empty");
  expect_refused(read("\n", ".jsonl"), StatusCode::kInvalidData, "the corpus is empty");
  expect_refused(read(std::string("a\0b", 3)), StatusCode::kInvalidData, "not text in UTF-8");
  expect_refused(read("a\xFF"), StatusCode::kInvalidData, "not text in UTF-8");
  expect_refused(read("{\"text\": \"a\"}\n[1]\n", ".jsonl"), StatusCode::kInvalidData, "line 2");
  expect_refused(read("{\"text\": 1}\n", ".jsonl"), StatusCode::kInvalidData, "'text'");
  expect_refused(read("{\"prompt\": \"a\"}\n", ".jsonl"), StatusCode::kNotFound, "'text'");
  expect_refused(read("{\"text\": \"a\"", ".jsonl"), StatusCode::kInvalidData, "line 1");
  path_ = testing::TempDir() + "no such corpus";
  expect_refused(read_corpus(path_, ByteTokenizer(), 9), StatusCode::kNotFound, "");
  path_ = testing::TempDir();
  EXPECT_FALSE(read_corpus(path_, ByteTokenizer(), 9).ok());
}

}  // namespace aerie::rest_test
