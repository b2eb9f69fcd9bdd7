// What drafters learn of one tenant's text is drafted for that tenant alone, and of all tenants
// together no more is kept than a limit.
#include "draft/tenant_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "draft/lookup/lookahead.h"
#include "draft/lookup/recycling.h"
#include "draft/lookup/suffix.h"
#include "draft/tenant_map.h"

namespace aerie::tenant_drafter_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Tokens = std::vector<int32_t>;

TEST(TenantMap, WhoseWasNotUsedForTheLongestTimeGoes) {
  TenantMap<std::string> map(10);
  const auto use = [&](const std::string& tenant, int64_t weight) {
    auto& entry = map.hold(tenant, [&] { return "of " + tenant; });
    EXPECT_TRUE(map.weigh(entry, weight));
    map.release(entry);
  };
  use("a", 4);
  use("b", 4);
  use("a", 4);
  use("c", 4);
  EXPECT_EQ(map.find("b"), nullptr);
  ASSERT_NE(map.find("a"), nullptr);
  EXPECT_EQ(map.find("a")->value, "of a");
  EXPECT_EQ(map.size(), 2u);
  // What is held stays, though it is the oldest.
  auto& held = map.hold("c", [] { return std::string(); });
  EXPECT_EQ(held.value, "of c");
  use("a", 4);
  use("d", 4);
  EXPECT_EQ(map.find("a"), nullptr);
  EXPECT_NE(map.find("c"), nullptr);
  auto& heavy = map.hold("d", [] { return std::string(); });
  EXPECT_FALSE(map.weigh(heavy, 7));
  EXPECT_TRUE(map.weigh(heavy, 6));
  map.release(heavy);
  map.release(held);
}

// Drafts the first token that it ever heard of, if there is one.
class Echo final : public LearningDrafter {
 public:
  std::string_view method() const override { return "echo"; }
  const DrafterNeeds& needs() const override { return needs_; }
  Status open(const DraftSequence&) override {
    ++open_;
    return {};
  }
  void close(SequenceId) override { --open_; }
  void forget() override { heard_.clear(); }
  int64_t learnt_bytes() const override { return static_cast<int64_t>(heard_.size()); }
  Status propose(std::span<DraftRequest> requests) override {
    for (DraftRequest& request : requests) {
      if (!heard_.empty()) request.tree->add(heard_.front(), -1);
      if (request.other_rows > 0) request.tree->add(1000 + request.other_rows, -1);
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override {
    for (const DraftCommit& commit : commits) heard_.push_back(commit.tokens.back());
    return {};
  }

 private:
  DrafterNeeds needs_;
  int open_ = 0;
  Tokens heard_;
};

void open(Drafter& drafter, SequenceId id, std::string_view tenant) {
  DraftSequence sequence;
  sequence.id = id;
  sequence.tenant = tenant;
  sequence.max_tokens = 1000;
  ASSERT_TRUE(drafter.open(sequence).ok());
}

void hear(Drafter& drafter, const std::vector<std::pair<SequenceId, Tokens>>& texts) {
  std::vector<DraftCommit> commits;
  for (const auto& [id, tokens] : texts) {
    DraftCommit& commit = commits.emplace_back();
    commit.id = id;
    commit.tokens = tokens;
    commit.rows = static_cast<int>(tokens.size());
  }
  ASSERT_TRUE(drafter.observe(commits).ok());
}

std::vector<Tokens> drafts(Drafter& drafter,
                           const std::vector<std::pair<SequenceId, Tokens>>& texts) {
  std::vector<TokenTree> trees(texts.size());
  std::vector<DraftRequest> requests;
  for (size_t i = 0; i < texts.size(); ++i) {
    requests.push_back(
        {.id = texts[i].first, .tokens = texts[i].second, .max_nodes = 20, .tree = &trees[i]});
  }
  EXPECT_TRUE(drafter.propose(requests).ok());
  std::vector<Tokens> out;
  for (const TokenTree& tree : trees) {
    out.emplace_back();
    for (const TokenTree::Node& node : tree.nodes) out.back().push_back(node.token);
  }
  return out;
}

TEST(TenantDrafter, EachTenantHasItsOwn) {
  const auto drafter = make_tenant_drafter(100, [] { return std::make_unique<Echo>(); });
  open(*drafter, 1, "a");
  open(*drafter, 2, "b");
  open(*drafter, 3, "a");
  hear(*drafter, {{1, {5}}, {2, {6}}, {3, {7}}});
  // In one call, with what the pass has beside their own.
  EXPECT_THAT(drafts(*drafter, {{3, {1}}, {2, {1}}, {1, {1}}}),
              ElementsAre(ElementsAre(5, 1001), ElementsAre(6, 1002), ElementsAre(5, 1001)));
  for (const SequenceId id : {1, 2, 3}) drafter->close(id);
  open(*drafter, 4, "c");
  EXPECT_THAT(drafts(*drafter, {{4, {1}}}), ElementsAre(IsEmpty()));
  open(*drafter, 5, "b");
  EXPECT_THAT(drafts(*drafter, {{5, {1}}}), ElementsAre(ElementsAre(6)));
  drafter->close(4);
  drafter->close(5);
  drafter->forget();
  open(*drafter, 6, "b");
  EXPECT_THAT(drafts(*drafter, {{6, {1}}}), ElementsAre(IsEmpty()));
}

TEST(TenantDrafter, RefusesWhatIsNotOpen) {
  const auto drafter = make_tenant_drafter(100, [] { return std::make_unique<Echo>(); });
  open(*drafter, 1, "a");
  DraftSequence again;
  again.id = 1;
  EXPECT_THAT(drafter->open(again).message(), HasSubstr("sequence 1 is open already"));
  DraftCommit unknown;
  unknown.id = 2;
  EXPECT_THAT(drafter->observe({&unknown, 1}).message(), HasSubstr("sequence 2 is not open"));
}

TEST(TenantDrafter, AllTogetherKeepNoMoreThanTheLimit) {
  const auto drafter = make_tenant_drafter(3, [] { return std::make_unique<Echo>(); });
  const auto talk = [&](SequenceId id, const std::string& tenant, const Tokens& tokens) {
    open(*drafter, id, tenant);
    for (const int32_t token : tokens) hear(*drafter, {{id, {token}}});
    drafter->close(id);
  };
  const auto knows = [&](const std::string& tenant) {
    open(*drafter, 99, tenant);
    const auto found = drafts(*drafter, {{99, {1}}});
    drafter->close(99);
    return !found[0].empty();
  };
  talk(1, "a", {5});
  talk(2, "b", {6, 7});
  EXPECT_TRUE(knows("a"));
  talk(3, "c", {8});
  EXPECT_TRUE(knows("a"));
  EXPECT_FALSE(knows("b"));
  // While all others go on, whoever has one too many begins anew.
  open(*drafter, 4, "a");
  open(*drafter, 5, "c");
  hear(*drafter, {{5, {9}}});
  hear(*drafter, {{5, {9}}});
  EXPECT_THAT(drafts(*drafter, {{5, {1}}, {4, {1}}}),
              ElementsAre(ElementsAre(1001), ElementsAre(5, 1001)));
}

TEST(TenantDrafter, SuffixesAreOfOneTenant) {
  const auto made = make_suffix_drafter({.offset = 3.0, .cached_tokens = 600});
  Drafter& drafter = **made;
  const auto talk = [&](const std::string& tenant, const Tokens& output) {
    open(drafter, 1, tenant);
    hear(drafter, {{1, {50}}});
    Tokens text = {50};
    drafts(drafter, {{1, text}});
    text.insert(text.end(), output.begin(), output.end());
    hear(drafter, {{1, text}});
    drafter.close(1);
  };
  const auto draft = [&](const std::string& tenant) {
    open(drafter, 2, tenant);
    hear(drafter, {{2, {7, 10, 11}}});
    const Tokens found = drafts(drafter, {{2, {7, 10, 11}}})[0];
    drafter.close(2);
    return found;
  };
  talk("a", {10, 11, 12, 13, 14});
  EXPECT_THAT(draft("a"), ElementsAre(12, 13, 14));
  EXPECT_THAT(draft("b"), IsEmpty());
  EXPECT_THAT(draft("a"), ElementsAre(12, 13, 14));
  // A tenant counts with 256 tokens at least, so that there is room for two.
  EXPECT_THAT(draft("c"), IsEmpty());
  EXPECT_THAT(draft("a"), ElementsAre(12, 13, 14));
  talk("d", Tokens(500, 1));
  EXPECT_THAT(draft("a"), IsEmpty());
}

TEST(TenantDrafter, SuccessorsAreOfOneTenant) {
  const auto made = make_recycling_drafter({.vocab = 20, .num_tokens = 1, .refresh = 0});
  Drafter& drafter = **made;
  open(drafter, 1, "a");
  open(drafter, 2, "b");
  hear(drafter, {{1, {3, 4}}, {2, {3, 5}}});
  EXPECT_THAT(drafts(drafter, {{1, {3, 4, 3}}, {2, {3, 5, 3}}}),
              ElementsAre(ElementsAre(4), ElementsAre(5)));
  open(drafter, 3, "c");
  EXPECT_THAT(drafts(drafter, {{3, {3}}}), ElementsAre(IsEmpty()));
}

}  // namespace aerie::tenant_drafter_test
