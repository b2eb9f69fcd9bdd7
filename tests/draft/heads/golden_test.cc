// Heads of every public format against what public Python code computes for them (tests/golden/
// README.md says which): tokens exactly, values to a thousandth.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "format/safetensors/safetensors.h"
#include "tensor/dtype.h"
#include "tests/draft/heads/head_models.h"

namespace aerie::golden_test {

namespace fs = std::filesystem;
using test::HeadModels;

constexpr const char* kFolder = "tests/golden/heads";
constexpr double kTolerance = 1e-3;
constexpr double kScoreTolerance = 5e-3;  // of each log-probability of a path, from logits up to 8

DraftSequence sequence() {
  DraftSequence sequence;
  sequence.id = 1;
  sequence.max_tokens = HeadModels::kPositions;
  return sequence;
}

using Path = std::vector<int32_t>;

// The length of the difference, by the length of what is expected.
double relative_error(std::span<const float> actual, std::span<const float> expected) {
  double difference = 0.0, length = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double off = double{actual[i]} - double{expected[i]};
    difference += off * off;
    length += double{expected[i]} * double{expected[i]};
  }
  return std::sqrt(difference / length);
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = fs::path(kFolder) / GetParam();
    auto json = read_json(folder_ / "golden.json");
    ASSERT_TRUE(json.ok()) << json.status().message();
    json_ = std::move(*json);
    auto values = SafetensorsFile::open(folder_ / "golden.safetensors");
    ASSERT_TRUE(values.ok()) << values.status().message();
    values_.emplace(std::move(*values));
    text_ = json_["text"].get<std::vector<int32_t>>();
    method_ = json_["speculative_config"]["method"].get<std::string>();
    ASSERT_TRUE(is_head_method(method_)) << method_;
    settings_.switches["parallel_drafting"] =
        json_["speculative_config"].value("parallel_drafting", false);
    models_ = std::make_unique<HeadModels>(folder_ / json_["target"].get<std::string>());
  }

  std::unique_ptr<DraftNetwork> network(const NetworkDrafterOptions& options) {
    return models_->network(method_, folder_ / "head", options, settings_);
  }
  std::span<const int32_t> text(size_t tokens) const { return std::span(text_).first(tokens); }

  // Goes through the target's passes up to round `round`; how many tokens are known then.
  template <typename Observe>
  size_t advance(int round, const std::vector<float>& taps, const Observe& observe) const {
    const size_t width = taps.size() / text_.size();
    const auto prompt = json_["prompt"].get<size_t>();
    const auto commit = [&](size_t first, size_t rows, size_t known) {
      DraftCommit pass;
      pass.id = 1;
      pass.tokens = text(known);
      pass.first = static_cast<int>(first);
      pass.rows = static_cast<int>(rows);
      pass.taps = std::span(taps).subspan(first * width, rows * width);
      observe(pass);
    };
    // In two chunks.
    commit(0, prompt / 2, prompt);
    commit(prompt / 2, prompt - prompt / 2, prompt);
    size_t known = prompt + 1;
    for (int r = 0; r < round; ++r) {
      const auto rows = json_["advances"][static_cast<size_t>(r)].get<size_t>();
      commit(known - 1, rows, known + rows);
      known += rows;
    }
    return known;
  }

  // The taps of the text: recorded ones if there are any, so that what is compared is the head's
  // alone. Our own have to be about the same, in the same place.
  std::vector<float> taps(const std::vector<int32_t>& layers) {
    const std::vector<float> own = models_->taps(text_, layers);
    std::vector<float> taps = test::recorded_taps(
        folder_ / json_["target"].get<std::string>() / "states.safetensors", layers);
    if (taps.empty()) return own;
    EXPECT_EQ(taps.size(), own.size());
    EXPECT_LT(relative_error(own, taps), 10 * kTolerance);
    return taps;
  }

  // Rows of a tensor of the golden's.
  std::vector<float> values(const std::string& name) const {
    const SafetensorsTensor* tensor = values_->find(name);
    EXPECT_NE(tensor, nullptr) << name;
    if (tensor == nullptr) return {};
    std::vector<float> out(tensor->data.size() / sizeof(float));
    dequantize(DType::kF32, tensor->data.data(), static_cast<int64_t>(out.size()), out.data());
    return out;
  }

  fs::path folder_;
  Json json_;
  std::optional<SafetensorsFile> values_;
  std::vector<int32_t> text_;
  std::string method_;
  HeadSettings settings_;
  std::unique_ptr<HeadModels> models_;
};

// Greedy, one token a depth.
TEST_P(Golden, ChainAndValues) {
  NetworkDrafterOptions options;
  options.num_tokens = json_["draft_tokens"].get<int>();
  std::unique_ptr<DraftNetwork> network = this->network(options);
  ASSERT_NE(network, nullptr);
  const std::vector<float> taps = this->taps(network->needs().tap_layers);
  ASSERT_TRUE(network->open(0, sequence()).ok());
  for (size_t r = 0; r < json_["rounds"].size(); ++r) {
    SCOPED_TRACE("round " + std::to_string(r));
    network->close(0);
    ASSERT_TRUE(network->open(0, sequence()).ok());
    const size_t known = advance(static_cast<int>(r), taps, [&](const DraftCommit& commit) {
      network->observe(0, commit, {});
    });
    const Json& round = json_["rounds"][r];
    ASSERT_EQ(known, round["length"].get<size_t>());
    const std::vector<float> logits = values("round" + std::to_string(r) + ".logits");
    const bool has_hidden = values_->find("round" + std::to_string(r) + ".hidden") != nullptr;
    const auto vocab = static_cast<size_t>(network->vocab());
    const auto depths = static_cast<size_t>(options.num_tokens);
    ASSERT_EQ(logits.size(), depths * vocab);

    LevelTree tree;
    LevelLimits limits;
    limits.max_nodes = limits.max_depth = options.num_tokens;
    tree.start(limits);
    const int depth = network->start(0, text(known), options.num_tokens, options.num_tokens);
    ASSERT_EQ(depth, options.num_tokens);
    DraftOutputs outputs;
    std::vector<int32_t> chain;
    for (size_t step = 0; step < depths; ++step) {
      size_t row = 0;
      if (step == 0) {
        network->add_root(0);
        outputs = network->run();
      } else if (network->depths() > 1) {
        row = step;
      } else {
        network->add_node(0, tree, static_cast<int32_t>(step) - 1);
        outputs = network->run();
      }
      const std::span<const float> drafted = outputs.logits.subspan(row * vocab, vocab);
      std::vector<float> actual(drafted.begin(), drafted.end());
      if (network->follows()) {
        std::vector<int32_t> before = {text_[known - 1]};
        before.insert(before.end(), chain.begin(), chain.end());
        const float sure = network->follow(outputs, static_cast<int>(row), before, actual);
        EXPECT_EQ(sure >= 0.0f, has_hidden) << "a confidence head";
        if (has_hidden) {
          EXPECT_NEAR(sure, values("round" + std::to_string(r) + ".hidden")[step], kTolerance);
        }
      }
      const auto expected = std::span(logits).subspan(step * vocab, vocab);
      EXPECT_LT(relative_error(actual, expected), kTolerance) << "logits of step " << step;
      if (has_hidden && network->depths() == 1) {
        const std::vector<float> all = values("round" + std::to_string(r) + ".hidden");
        const size_t width = all.size() / depths;
        // Of what is handed on, what the method calls its hidden state comes first.
        ASSERT_LE(width, outputs.hidden.size());
        EXPECT_LT(relative_error(outputs.hidden, std::span(all).subspan(step * width, width)),
                  kTolerance)
            << "hidden state of step " << step;
      }
      const auto best = static_cast<size_t>(std::ranges::max_element(actual) - actual.begin());
      const std::span<const int32_t> ids = network->target_ids();
      chain.push_back(ids.empty() ? static_cast<int32_t>(best) : ids[best]);
      const LevelTree::Child child{chain.back(), 1.0};
      tree.expand(static_cast<int32_t>(step) - 1, {&child, 1});
      tree.advance();
    }
    EXPECT_EQ(chain, round["chain"].get<std::vector<int32_t>>());
  }
}

// From a tree's paths, its tokens from the root's child down, to their scores.
std::map<Path, double> paths_of(const TokenTree& tree) {
  std::map<Path, double> paths;
  std::vector<Path> of_nodes;
  for (const TokenTree::Node& node : tree.nodes) {
    Path path;
    if (node.parent >= 0) path = of_nodes[static_cast<size_t>(node.parent)];
    path.push_back(node.token);
    of_nodes.push_back(path);
    paths[path] = std::log(double{node.probability});
  }
  return paths;
}
std::map<Path, double> paths_of(const Json& tree) {
  std::map<Path, double> paths;
  std::vector<Path> of_nodes;
  for (size_t i = 0; i < tree["tokens"].size(); ++i) {
    const int parent = tree["parents"][i].get<int>();
    Path path;
    if (parent >= 0) path = of_nodes[static_cast<size_t>(parent)];
    path.push_back(tree["tokens"][i].get<int32_t>());
    of_nodes.push_back(path);
    paths[path] = tree["log_probs"].is_null() ? NAN : tree["log_probs"][i].get<double>();
  }
  return paths;
}

// The settings that ask for the golden's tree; none: the method's own way of making one is not
// ours.
std::optional<NetworkDrafterOptions> tree_options(const Json& config, int draft_tokens) {
  NetworkDrafterOptions options;
  const std::string kind = config.value("tree", "");
  if (kind == "eagle2") {
    options.num_tokens = config["total_tokens"].get<int>() - 1;
    options.num_steps = config["depth"].get<int>() + 1;
    options.top_k = config["top_k"].get<int>();
  } else if (kind == "parallel") {
    options.num_tokens = config["num_speculative_tokens"].get<int>();
    options.num_steps = draft_tokens;
    options.top_k = config["top_k"].get<int>();
  } else if (kind == "medusa" || kind == "eagle") {
    options.shape = find_static_tree(kind);
    options.num_tokens = options.shape->size();
    options.num_steps = options.shape->deepest();
  } else if (config.contains("beam_width")) {
    options.beams = true;
    options.top_k = config["beam_width"].get<int>();
    options.num_steps = config["beam_length"].get<int>() - 1;
    options.num_tokens = options.top_k * options.num_steps;
  } else {
    return std::nullopt;
  }
  return options;
}

TEST_P(Golden, Tree) {
  if (!json_.contains("tree_config") || json_["tree_config"].is_null()) {
    GTEST_SKIP() << "a head without a tree";
  }
  std::optional<NetworkDrafterOptions> options =
      tree_options(json_["tree_config"], json_["draft_tokens"].get<int>());
  if (!options) GTEST_SKIP() << "a tree that is not grown here";
  options->method = method_;
  options->vocab = models_->target().config().vocab;
  options->max_rows = options->max_logits = 64;
  std::unique_ptr<DraftNetwork> network = this->network(*options);
  ASSERT_NE(network, nullptr);
  const std::vector<float> taps = this->taps(network->needs().tap_layers);
  const std::unique_ptr<Drafter> drafter = make_network_drafter(std::move(network), *options);
  for (size_t r = 0; r < json_["rounds"].size(); ++r) {
    SCOPED_TRACE("round " + std::to_string(r));
    ASSERT_TRUE(drafter->open(sequence()).ok());
    const size_t known = advance(static_cast<int>(r), taps, [&](const DraftCommit& commit) {
      ASSERT_TRUE(drafter->observe({&commit, 1}).ok());
    });
    TokenTree tree;
    DraftRequest request{.id = 1, .tokens = text(known), .max_nodes = 64, .tree = &tree};
    ASSERT_TRUE(drafter->propose({&request, 1}).ok());
    const std::map<Path, double> actual = paths_of(tree);
    const std::map<Path, double> expected = paths_of(json_["rounds"][r]["tree"]);
    EXPECT_EQ(actual.size(), expected.size());
    for (const auto& [path, score] : expected) {
      const auto found = actual.find(path);
      if (found == actual.end()) {
        ADD_FAILURE() << "lacks " << testing::PrintToString(path);
      } else if (!std::isnan(score) && options->shape == nullptr) {
        EXPECT_NEAR(found->second, score, kScoreTolerance * static_cast<double>(path.size()))
            << testing::PrintToString(path);
      }
    }
    drafter->close(1);
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, Golden, testing::ValuesIn(test::golden_cases(kFolder)),
                         test::golden_test_name);

}  // namespace aerie::golden_test
