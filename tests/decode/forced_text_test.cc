#include "draft/lookup/forced_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/test_drafters.h"
#include "tests/testing/tiny_model.h"

namespace aerie::forced_text_test {

using ::testing::ElementsAre;

// Any byte, then "hello", then any byte.
class Literal final : public TokenConstraint {
 public:
  std::unique_ptr<TokenConstraint> fork() const override {
    return std::make_unique<Literal>(*this);
  }
  void advance(int32_t) override { ++at_; }
  void mask(std::span<bool> allowed) const override {
    for (size_t id = 0; id < allowed.size(); ++id) allowed[id] = allows(static_cast<int32_t>(id));
  }
  bool allows(int32_t token) const override {
    const std::string rest = forced();
    return rest.empty() || token == rest[0];
  }
  std::string forced() const override {
    return at_ == 0 || at_ > 5 ? std::string() : std::string("hello").substr(at_ - 1);
  }

 private:
  size_t at_ = 0;
};

// Proposes token 7 and notes what it is asked.
class Inner final : public test::TestDrafter {
 public:
  explicit Inner(std::vector<DraftRequest>& asked) : asked_(asked) {}
  Status propose(std::span<DraftRequest> requests) override {
    for (DraftRequest& request : requests) {
      asked_.push_back(request);
      request.tree->add(7, -1);
    }
    return {};
  }

 private:
  std::vector<DraftRequest>& asked_;
};

class ForcedTextTest : public testing::Test {
 protected:
  ForcedTextTest() {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    file_ = std::make_unique<test::TinyFile>(spec);
    tokenizer_ = std::move(Tokenizer::from_gguf(file_->gguf())).value();
    open(nullptr);
  }
  void open(const PassCost* cost) {
    drafter_ = make_forced_text_drafter(std::make_unique<Inner>(asked_), *tokenizer_, cost);
    for (const SequenceId id : {0, 1}) {
      DraftSequence sequence;
      sequence.id = id;
      sequence.max_tokens = 100;
      if (id == 1) sequence.constraint = &literal_;
      EXPECT_TRUE(drafter_->open(sequence).ok());
    }
  }
  std::vector<TokenTree> propose(int max_nodes, int max_depth = 100) {
    asked_.clear();
    std::vector<TokenTree> trees(2);
    std::vector<DraftRequest> requests(2);
    for (const SequenceId id : {0, 1}) {
      DraftRequest& request = requests[static_cast<size_t>(id)];
      request.id = id;
      request.tokens = tokens_;
      request.max_nodes = max_nodes;
      request.max_depth = max_depth;
      request.tree = &trees[static_cast<size_t>(id)];
    }
    EXPECT_TRUE(drafter_->propose(requests).ok());
    return trees;
  }
  static std::string text(const TokenTree& tree) {
    std::string out;
    for (const TokenTree::Node& node : tree.nodes) out += static_cast<char>(node.token);
    return out;
  }

  std::unique_ptr<test::TinyFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Literal literal_;
  std::vector<DraftRequest> asked_;
  std::vector<int32_t> tokens_ = {1, 2, 3};
  std::unique_ptr<Drafter> drafter_;
};

TEST_F(ForcedTextTest, IsDraftedWhereThereIsAny) {
  propose(10);
  EXPECT_EQ(asked_.size(), 2u);  // nothing is forced yet
  literal_.advance('x');
  std::vector<TokenTree> trees = propose(10);
  EXPECT_EQ(text(trees[1]), "hello");
  EXPECT_TRUE(trees[1].is_chain());
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].id, 0);
  EXPECT_EQ(asked_[0].other_rows, 6);
  EXPECT_EQ(trees[0].nodes[0].token, 7);
  literal_.advance('h');
  EXPECT_EQ(text(propose(10)[1]), "ello");
  EXPECT_EQ(text(propose(3)[1]), "ell");
  EXPECT_EQ(text(propose(10, 2)[1]), "el");
}

TEST_F(ForcedTextTest, OfASingleTokenTheInnerDrafterKnowsMore) {
  for (const char c : std::string("xhell")) literal_.advance(c);
  EXPECT_EQ(propose(10)[1].nodes[0].token, 7);
  EXPECT_EQ(asked_.size(), 2u);
}

// Where a row costs what a token costs nothing pays; where only some rows are cheap, so many are.
TEST_F(ForcedTextTest, AsMuchAsPaysIsDrafted) {
  literal_.advance('x');
  const PassCost cheap({{1, 1.0}, {64, 1.1}});
  open(&cheap);
  EXPECT_EQ(text(propose(10)[1]), "hello");
  const PassCost dear({{1, 1.0}, {64, 64.0}});
  open(&dear);
  EXPECT_EQ(propose(10)[1].nodes[0].token, 7);
  EXPECT_EQ(asked_.size(), 2u);
  const PassCost stepped({{1, 1.0}, {2, 1.0}, {5, 1.1}, {6, 4.0}, {64, 64.0}});
  open(&stepped);
  EXPECT_EQ(text(propose(10)[1]), "hel");
  EXPECT_EQ(asked_[0].other_rows, 4);
}

TEST_F(ForcedTextTest, ForgetsAClosedSequence) {
  literal_.advance('x');
  drafter_->close(1);
  EXPECT_EQ(propose(10)[1].nodes[0].token, 7);
}

}  // namespace aerie::forced_text_test
