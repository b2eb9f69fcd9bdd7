// Heads that know one text by heart (tests/golden/README.md, oracles/): what they read of tokens is
// zero, so they draft it only if every row has the target's features of its own position, and, with
// a cache of their own, the rows before it in their places. That is alignment; a head that is fed
// the neighbour's row still drafts something, and nothing but acceptance would tell.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "draft/tree/static_tree.h"
#include "format/json.h"
#include "tests/draft/heads/head_models.h"

namespace aerie::test::heads_oracle_test {

namespace fs = std::filesystem;

constexpr const char* kFolder = "tests/golden/oracles";
constexpr int kAll = std::numeric_limits<int>::max();
constexpr double kMisaligned = 1.5;  // tokens a round that a misaligned head stays below

// How a decoding of the text goes that has all drafts from the head.
struct Play {
  NetworkDrafterOptions drafter = {};  // without num_steps: of all depths
  std::vector<size_t> prompts = {};    // of sequences side by side; empty: one, of the usual length
  bool blind = false;                  // the head is told of tokens that are all the same
  int shift = 0;                       // features are of the position so many before
  int expected = 0;                    // drafts are held against the text from so many tokens on
  // How many accepted nodes are kept of a round, by its number.
  std::function<int(int)> keep = [](int) { return kAll; };
};

// A sequence that is decoded.
struct Reader {
  SequenceId id = 0;
  size_t known = 0;
  int rounds = 0;
  TokenTree tree;
  std::vector<int32_t> accepted;  // of the last round, and kept
};

class Oracle : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const fs::path folder = fs::path(kFolder) / GetParam();
    auto json = read_json(folder / "golden.json");
    ASSERT_TRUE(json.ok()) << json.status().message();
    json_ = std::move(*json);
    text_ = json_["text"].get<std::vector<int32_t>>();
    blind_text_.assign(text_.size(), text_[0]);
    depth_ = json_["draft_tokens"].get<int>();
    models_ = std::make_unique<HeadModels>(folder / json_["target"].get<std::string>());
  }

  // Sets width_ too.
  std::unique_ptr<Drafter> drafter(NetworkDrafterOptions options);
  // The recorded features, of the position so many before.
  std::vector<float> taps(int shift) const;
  std::span<const int32_t> told(const Play& play, size_t known) const {
    return std::span(play.blind ? blind_text_ : text_).first(known);
  }
  // The pass that settled `rows` positions from `first` on.
  DraftCommit commit(const Play& play, const Reader& reader, size_t first, size_t rows,
                     const std::vector<float>& taps) const {
    DraftCommit commit;
    commit.id = reader.id;
    commit.tokens = told(play, reader.known);
    commit.first = static_cast<int>(first);
    commit.rows = static_cast<int>(rows);
    commit.taps = std::span(taps).subspan(first * width_, rows * width_);
    return commit;
  }
  // Nodes of its tree that continue the text, from the root's child down.
  std::vector<int32_t> right_nodes(const Play& play, const Reader& reader) const;
  void open(Drafter& drafter, const Play& play, Reader& reader,
            const std::vector<float>& taps) const;
  void propose(Drafter& drafter, const Play& play, std::vector<Reader>& readers) const;
  // Decodes as long as there is a whole draft of text left. Right nodes of each round; those of all
  // sequences one after the other, round by round.
  std::vector<int> decode(const Play& play);
  void expect_all_right(const Play& play, size_t least_rounds = 10);

  Json json_;
  std::vector<int32_t> text_, blind_text_;
  int depth_ = 0;
  size_t width_ = 0;  // of the features of a position
  std::vector<int32_t> layers_;
  std::unique_ptr<HeadModels> models_;
};

std::unique_ptr<Drafter> Oracle::drafter(NetworkDrafterOptions options) {
  const Json& config = json_["speculative_config"];
  options.method = config["method"].get<std::string>();
  options.vocab = models_->target().config().vocab;
  options.max_rows = options.max_logits = 64;
  if (options.num_steps == 0) options.num_steps = depth_;
  HeadSettings settings;
  settings.switches["parallel_drafting"] = config.value("parallel_drafting", false);
  std::unique_ptr<DraftNetwork> network =
      models_->network(options.method, fs::path(kFolder) / GetParam() / "head", options, settings);
  if (network == nullptr) return nullptr;  // it has failed the test
  layers_ = network->needs().tap_layers;
  width_ = layers_.size() * static_cast<size_t>(models_->target().config().hidden);
  return make_network_drafter(std::move(network), options);
}

std::vector<float> Oracle::taps(int shift) const {
  const fs::path path = fs::path(kFolder) / GetParam() / json_["states"].get<std::string>();
  const std::vector<float> own = recorded_taps(path, layers_);
  EXPECT_EQ(own.size(), text_.size() * width_);
  std::vector<float> shifted(own.size());
  const auto last = static_cast<int>(text_.size()) - 1;
  for (int t = 0; t <= last; ++t) {
    const int from = std::clamp(t - shift, 0, last);
    std::copy_n(own.begin() + from * static_cast<std::ptrdiff_t>(width_), width_,
                shifted.begin() + t * static_cast<std::ptrdiff_t>(width_));
  }
  return shifted;
}

std::vector<int32_t> Oracle::right_nodes(const Play& play, const Reader& reader) const {
  std::vector<int32_t> path;
  for (int32_t parent = -1;; parent = path.back()) {
    const size_t place = reader.known + path.size() + static_cast<size_t>(play.expected);
    const auto& nodes = reader.tree.nodes;
    const auto right = std::ranges::find_if(nodes, [&](const TokenTree::Node& node) {
      return node.parent == parent && place < text_.size() && node.token == text_[place];
    });
    if (right == nodes.end()) return path;
    path.push_back(static_cast<int32_t>(right - nodes.begin()));
  }
}

// The prompt, in two passes, and the token that comes of it.
void Oracle::open(Drafter& drafter, const Play& play, Reader& reader,
                  const std::vector<float>& taps) const {
  DraftSequence sequence;
  sequence.id = reader.id;
  sequence.max_tokens = HeadModels::kPositions;
  ASSERT_TRUE(drafter.open(sequence).ok());
  const size_t prompt = reader.known - 1, half = prompt / 2;
  for (const auto& [first, rows] : {std::pair{size_t{0}, half}, {half, prompt - half}}) {
    const DraftCommit pass = commit(play, reader, first, rows, taps);
    ASSERT_TRUE(drafter.observe({&pass, 1}).ok());
  }
}

void Oracle::propose(Drafter& drafter, const Play& play, std::vector<Reader>& readers) const {
  std::vector<DraftRequest> requests;
  for (Reader& reader : readers) {
    reader.tree.clear();
    requests.push_back({.id = reader.id,
                        .tokens = told(play, reader.known),
                        .max_nodes = 64,
                        .tree = &reader.tree});
  }
  ASSERT_TRUE(drafter.propose(requests).ok());
}

std::vector<int> Oracle::decode(const Play& play) {
  NetworkDrafterOptions options = play.drafter;
  const std::vector<size_t> prompts =
      play.prompts.empty() ? std::vector{json_["prompt"].get<size_t>()} : play.prompts;
  options.max_sequences = static_cast<int>(prompts.size());
  const std::unique_ptr<Drafter> drafter = this->drafter(options);
  if (drafter == nullptr) return {0};
  const std::vector<float> taps = this->taps(play.shift);
  std::vector<Reader> readers;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Reader& reader = readers.emplace_back();
    reader.id = static_cast<SequenceId>(i);
    reader.known = prompts[i] + 1;
    open(*drafter, play, reader, taps);
  }
  std::vector<int> right;
  const auto finished = [&](const Reader& reader) {
    if (reader.known + static_cast<size_t>(depth_) + 1 <= text_.size()) return false;
    drafter->close(reader.id);
    return true;
  };
  for (;;) {
    std::erase_if(readers, finished);
    if (readers.empty()) return right;
    propose(*drafter, play, readers);
    std::vector<DraftCommit> commits;
    for (Reader& reader : readers) {
      reader.accepted = right_nodes(play, reader);
      right.push_back(static_cast<int>(reader.accepted.size()));
      const int kept = std::min(right.back(), play.keep(reader.rounds++));
      reader.accepted.resize(static_cast<size_t>(kept));
      const size_t rows = reader.accepted.size() + 1;
      reader.known += rows;
      commits.push_back(commit(play, reader, reader.known - 1 - rows, rows, taps));
      commits.back().tree = &reader.tree;
      commits.back().accepted = reader.accepted;
    }
    EXPECT_TRUE(drafter->observe(commits).ok());
  }
}

double tokens_a_round(const std::vector<int>& right) {
  return 1.0 + std::accumulate(right.begin(), right.end(), 0.0) / static_cast<double>(right.size());
}

void Oracle::expect_all_right(const Play& play, size_t least_rounds) {
  const std::vector<int> right = decode(play);
  EXPECT_GE(right.size(), least_rounds);
  EXPECT_EQ(right, std::vector<int>(right.size(), depth_));
}

int keep_none(int /*round*/) {
  return 0;
}

TEST_P(Oracle, DraftsAllOfTheText) {
  expect_all_right({});
}

TEST_P(Oracle, NeedsNoTokensForThat) {
  expect_all_right({.blind = true});
}

TEST_P(Oracle, IsLostWithTheFeaturesOfTheNeighbour) {
  for (const int shift : {-1, 1}) {
    EXPECT_LT(tokens_a_round(decode({.shift = shift})), kMisaligned) << "shift " << shift;
  }
}

TEST_P(Oracle, DraftsNoOtherPlaceOfTheText) {
  for (const int expected : {-1, 1}) {
    const Play play = {.expected = expected, .keep = keep_none};
    EXPECT_LT(tokens_a_round(decode(play)), kMisaligned) << "expected " << expected;
  }
}

// With a cache of its own it has to read the rows before as well.
TEST_P(Oracle, ReadsTheRowsBeforeInTheirPlaces) {
  const bool sees_earlier = json_["sees_earlier"].get<bool>();
  const std::unique_ptr<Drafter> drafter = this->drafter({});
  ASSERT_NE(drafter, nullptr);
  const std::vector<float> own = taps(0);
  for (const int shift : {-1, 1}) {
    std::vector<int> right;
    for (size_t known = json_["prompt"].get<size_t>() + 1;
         known + static_cast<size_t>(depth_) + 1 <= text_.size(); ++known) {
      std::vector<float> stale = taps(shift);
      const size_t last = (known - 2) * width_;
      std::copy_n(own.begin() + static_cast<std::ptrdiff_t>(last), width_,
                  stale.begin() + static_cast<std::ptrdiff_t>(last));
      std::vector<Reader> readers(1);
      readers[0].known = known;
      open(*drafter, {}, readers[0], stale);
      propose(*drafter, {}, readers);
      right.push_back(static_cast<int>(right_nodes({}, readers[0]).size()));
      drafter->close(0);
    }
    if (sees_earlier) {
      EXPECT_LT(tokens_a_round(right), kMisaligned) << "shift " << shift;
    } else {
      EXPECT_EQ(right, std::vector<int>(right.size(), depth_));
    }
  }
}

TEST_P(Oracle, DraftsItInTrees) {
  NetworkDrafterOptions grown;
  grown.num_tokens = 16;
  grown.top_k = 3;
  expect_all_right({.drafter = grown});
  NetworkDrafterOptions fixed;
  fixed.shape = find_static_tree("medusa");
  fixed.num_tokens = fixed.shape->size();
  ASSERT_EQ(fixed.shape->deepest(), depth_);
  expect_all_right({.drafter = fixed});
}

TEST_P(Oracle, DraftsItForSequencesAtDifferentPlaces) {
  expect_all_right({.prompts = {12, 40, 13, 31}}, 40);
  NetworkDrafterOptions grown;
  grown.num_tokens = 12;
  grown.top_k = 2;
  expect_all_right({.drafter = grown, .prompts = {25, 12, 50}}, 30);
}

// Rows of refused nodes leave nothing behind.
TEST_P(Oracle, DraftsItAfterRefusals) {
  expect_all_right({.keep = [](int round) { return round < 30 ? 0 : kAll; }}, 35);
  expect_all_right({.keep = [&](int round) { return round % (depth_ + 1); }}, 20);
  NetworkDrafterOptions grown;
  grown.num_tokens = 16;
  grown.top_k = 3;
  expect_all_right({.drafter = grown,
                    .prompts = {12, 33},
                    .keep = [](int round) { return round % 8 < 6 ? 0 : kAll; }},
                   40);
}

INSTANTIATE_TEST_SUITE_P(Heads, Oracle, testing::ValuesIn(golden_cases(kFolder)), golden_test_name);

}  // namespace aerie::test::heads_oracle_test
