#include "draft/lookup/lookahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/testing/allocation_counter.h"

namespace aerie::lookahead_test {

using testing::HasSubstr;

using Tokens = std::vector<int32_t>;

constexpr int kVocab = 40;
constexpr int32_t kEnd = 39;

// What the made-up target says after two tokens; a text of it repeats itself soon enough.
int32_t next_after(int32_t before, int32_t token) {
  return (before * 7 + token * 11 + 5) % kVocab;
}

// One sequence that is decoded with the made-up target.
class Session {
 public:
  explicit Session(const LookaheadOptions& options, bool chains = false)
      : options_(options), drafter_(std::move(make_lookahead_drafter(options)).value()) {
    DraftSequence sequence;
    sequence.id = 1;
    sequence.max_tokens = 5000;
    sequence.trees = !chains;
    EXPECT_TRUE(drafter_->open(sequence).ok());
    accepted_.reserve(64);
    top_.reserve(512);
    tree_.nodes.reserve(512);
    text_.reserve(5000);
    text_.assign({3, 1, 4, 1, 5, 9, 2, 6});
  }

  const TokenTree& propose(int max_nodes) {
    tree_.clear();
    DraftRequest request{.id = 1, .tokens = text_, .max_nodes = max_nodes, .tree = &tree_};
    EXPECT_TRUE(drafter_->propose({&request, 1}).ok());
    return tree_;
  }
  // Accepts what is right, adds the target's own token, and tells the drafter.
  void settle() {
    const auto first = static_cast<int>(text_.size()) - 1;
    top_.clear();
    for (int node = -1; node < tree_.size(); ++node) {
      const bool silent = node >= 0 && at(node).role == NodeRole::kWindow;
      top_.push_back(silent ? -1 : after(node));
    }
    accepted_.clear();
    for (int node = -1;;) {
      const int32_t token = after(node);
      int child = -1;
      for (int i = 0; i < tree_.size() && child < 0; ++i) {
        if (at(i).parent == node && at(i).role == NodeRole::kDraft && at(i).token == token)
          child = i;
      }
      tokens_.push_back(token);
      if (child < 0) break;
      accepted_.push_back(child);
      node = child;
    }
    text_.insert(text_.end(), tokens_.begin(), tokens_.end());
    tokens_.clear();
    DraftCommit commit;
    commit.id = 1;
    commit.tokens = text_;
    commit.first = first;
    commit.rows = 1 + static_cast<int>(accepted_.size());
    commit.tree = &tree_;
    commit.accepted = accepted_;
    commit.top_tokens = top_;
    EXPECT_TRUE(drafter_->observe({&commit, 1}).ok());
  }

  const TokenTree::Node& at(int node) const { return tree_.nodes[static_cast<size_t>(node)]; }
  int32_t token(int node) const { return node < 0 ? text_.back() : at(node).token; }
  // The target's token after a node.
  int32_t after(int node) const {
    const int32_t before = node < 0 ? text_[text_.size() - 2] : token(at(node).parent);
    return next_after(before, token(node));
  }
  int drafts() const {
    return static_cast<int>(
        std::ranges::count(tree_.nodes, NodeRole::kDraft, &TokenTree::Node::role));
  }

  LookaheadOptions options_;
  std::unique_ptr<Drafter> drafter_;
  TokenTree tree_;
  Tokens text_, accepted_, tokens_, top_;
};

// The procedure with lists, as it is described.
struct Model {
  std::vector<Tokens> rows;
  std::map<int32_t, std::deque<Tokens>> pool;

  void advance(const LookaheadOptions& options, const Tokens& last, const Tokens& text) {
    if (static_cast<int>(rows.size()) < options.ngram - 1) {
      rows.push_back(last);
      for (Tokens& row : rows) row.erase(row.begin());
    } else {
      for (size_t i = 0; i < last.size(); ++i) {
        Tokens ngram;
        for (const Tokens& row : rows) ngram.push_back(row[i]);
        ngram.push_back(last[i]);
        const int32_t key = ngram.front();
        ngram.erase(ngram.begin());
        std::erase(pool[key], ngram);
        pool[key].push_front(ngram);
        if (static_cast<int>(pool[key].size()) > options.guesses) pool[key].pop_back();
      }
      rows.push_back(last);
      rows.erase(rows.begin());
    }
    rows[0][0] = text.back();
  }
};

// Checks the tree against the model; returns the tokens after the last row.
void expect_round(const Session& session, Model& model, Tokens& last) {
  const TokenTree& tree = session.tree_;
  if (model.rows.empty()) {
    model.rows.push_back({session.text_.back()});
    for (const TokenTree::Node& node : tree.nodes) model.rows[0].push_back(node.token);
  }
  std::set<Tokens> expected, actual;
  for (const Tokens& ngram : model.pool[session.text_.back()]) {
    for (size_t n = 1; n <= ngram.size(); ++n) {
      expected.insert(Tokens(ngram.begin(), ngram.begin() + static_cast<std::ptrdiff_t>(n)));
    }
  }
  const int drafts = session.drafts();
  for (int i = 0; i < drafts; ++i) {
    ASSERT_EQ(session.at(i).role, NodeRole::kDraft) << "drafts come first";
    Tokens path;
    for (int node = i; node >= 0; node = session.at(node).parent)
      path.push_back(session.token(node));
    std::ranges::reverse(path);
    ASSERT_TRUE(actual.insert(path).second);
  }
  ASSERT_EQ(actual, expected);
  const auto columns = static_cast<int>(model.rows[0].size());
  ASSERT_EQ(tree.size() - drafts, static_cast<int>(model.rows.size()) * columns - 1);
  last.clear();
  for (int row = 0, node = drafts - 1; row < static_cast<int>(model.rows.size()); ++row) {
    const bool probe = row + 1 == static_cast<int>(model.rows.size());
    for (int column = 0; column < columns; ++column, ++node) {
      const int place = row == 0 && column == 0 ? -1 : node;
      ASSERT_EQ(session.token(place),
                model.rows[static_cast<size_t>(row)][static_cast<size_t>(column)]);
      if (probe) last.push_back(session.after(place));
      if (place < 0) continue;
      ASSERT_EQ(session.at(node).depth, row + column);
      ASSERT_EQ(session.at(node).role, probe ? NodeRole::kProbe : NodeRole::kWindow);
      const int above = row == 0 ? node - 1 : node - columns;
      const bool below_root = row + column == 1;
      ASSERT_EQ(session.at(node).parent, below_root ? -1 : above) << row << ' ' << column;
    }
  }
}

TEST(Lookahead, DoesWhatThePaperSays) {
  int64_t accepted = 0;
  for (const auto& [window, ngram, guesses] :
       {std::tuple{5, 5, 5}, {1, 2, 1}, {4, 2, 3}, {1, 5, 2}, {7, 3, 1}, {2, 7, 4}}) {
    LookaheadOptions options{.window = window, .ngram = ngram, .guesses = guesses};
    Session session(options);
    Model model;
    Tokens last;
    for (int round = 0; round < 200; ++round) {
      session.propose(1000);
      expect_round(session, model, last);
      if (HasFatalFailure()) return;
      ASSERT_LE(session.tree_.size(), lookahead_nodes(options));
      session.settle();
      accepted += static_cast<int64_t>(session.accepted_.size());
      model.advance(options, last, session.text_);
    }
  }
  EXPECT_GT(accepted, 200);
}

TEST(Lookahead, DraftsWhatFits) {
  LookaheadOptions options{.num_tokens = 25};
  Session session(options);
  int windows = 0, bare = 0;
  for (int round = 0; round < 60; ++round) {
    const int room = round % 3 == 0 ? 6 : 40;
    const TokenTree& tree = session.propose(room);
    ASSERT_LE(tree.size(), std::min(room, 25));
    const int drafts = session.drafts();
    (drafts < tree.size() ? windows : bare) += 1;
    float before = 1.0f;
    for (int i = 0; i < drafts; ++i) {
      ASSERT_GT(session.at(i).probability, 1e-6f);
      const int parent = session.at(i).parent;
      before = parent < 0 ? 1.0f : session.at(parent).probability;
      ASSERT_LE(session.at(i).probability, before);
    }
    session.settle();
  }
  EXPECT_EQ(windows, 40);
  EXPECT_EQ(bare, 20);
}

TEST(Lookahead, NoEndInTheWindow) {
  Session session({.end_tokens = {kEnd}});
  for (int round = 0; round < 300; ++round) {
    for (const TokenTree::Node& node : session.propose(1000).nodes) ASSERT_NE(node.token, kEnd);
    session.settle();
  }
}

TEST(Lookahead, ChainsWhereTheRuleTakesNothingElse) {
  Session session({}, true);
  int longest = 0;
  for (int round = 0; round < 100; ++round) {
    session.propose(1000);
    for (int i = 0; i < session.drafts(); ++i) ASSERT_EQ(session.at(i).parent, i - 1);
    longest = std::max(longest, session.drafts());
    session.settle();
  }
  EXPECT_EQ(longest, 4);
}

void expect_invalid(const LookaheadOptions& options, const std::string& part) {
  const Status status = make_lookahead_drafter(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(Lookahead, WrongUseIsAStatus) {
  expect_invalid({.window = 0}, "window must");
  expect_invalid({.window = 65}, "window must");
  expect_invalid({.ngram = 1}, "ngram must");
  expect_invalid({.ngram = 17}, "ngram must");
  expect_invalid({.guesses = 0}, "guesses must");
  expect_invalid({.guesses = 65}, "guesses must");
  expect_invalid({.num_tokens = 18}, "the window takes 19 nodes");
  Session session({});
  TokenTree tree;
  const Tokens text = {-7, INT32_MAX};
  DraftRequest request{3, text, 400, &tree};
  EXPECT_THAT(session.drafter_->propose({&request, 1}).message(),
              HasSubstr("lookahead drafter: sequence 3 is not open"));
  EXPECT_EQ(session.drafter_->needs().top_tokens, 1);
}

TEST(Lookahead, AllocatesNothingAfterOpen) {
  Session session({});
  session.propose(1000);
  session.settle();
  const int64_t before = allocations();
  for (int round = 0; round < 300; ++round) {
    session.propose(1000);
    session.settle();
  }
  EXPECT_EQ(allocations(), before);
}

}  // namespace aerie::lookahead_test
