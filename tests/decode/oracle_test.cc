// The whole round with heads that know a text by heart (tests/golden/README.md, oracles/), beside a
// target that says it: each round of K drafted tokens has to emit K + 1, which takes the taps of
// every row that the decoder commits, in the prompt, of roots and of accepted nodes in a tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "tests/draft/heads/head_models.h"
#include "tests/testing/decoding.h"

namespace aerie::test::oracle_test {

namespace fs = std::filesystem;

constexpr const char* kFolder = "tests/golden/oracles";

// The target, but for its logits, which say the text whatever was read. Its taps are its own.
class Reciter final : public Model {
 public:
  Reciter(Model& model, std::vector<int32_t> text) : model_(model), text_(std::move(text)) {}

  const ModelConfig& config() const override { return model_.config(); }
  int64_t weight_bytes() const override { return model_.weight_bytes(); }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    ForwardOutputs outputs = model_.forward(batch, cache);
    logits_.assign(outputs.logits.size(), 0.0f);
    size_t wanted = 0;
    for (const BatchRow& row : batch.rows) {
      if (!row.wants_logits) continue;
      const size_t next = std::min(static_cast<size_t>(row.position) + 1, text_.size() - 1);
      logits_[wanted++ * static_cast<size_t>(outputs.vocab) + static_cast<size_t>(text_[next])] =
          1.0f;
    }
    outputs.logits = logits_;
    return outputs;
  }

 private:
  Model& model_;
  std::vector<int32_t> text_;
  std::vector<float> logits_;
};

class OracleDecoding : public testing::TestWithParam<std::string> {};

TEST_P(OracleDecoding, EmitsAWholeDraftAndOneEachRound) {
  const fs::path folder = fs::path(kFolder) / GetParam();
  const auto json = read_json(folder / "golden.json");
  ASSERT_TRUE(json.ok()) << json.status().message();
  const auto text = (*json)["text"].get<std::vector<int32_t>>();
  const int depth = (*json)["draft_tokens"].get<int>();
  const Json& config = (*json)["speculative_config"];
  HeadModels models(folder / (*json)["target"].get<std::string>());
  Reciter target(models.target(), text);

  DecoderOptions options;
  options.max_positions = HeadModels::kPositions;
  options.max_rows = options.max_logits = 64;
  options.prefill_chunk = 7;
  options.max_nodes = 12;
  for (const int top_k : {1, 3}) {
    SCOPED_TRACE("top_k " + std::to_string(top_k));
    NetworkDrafterOptions settings;
    settings.method = config["method"].get<std::string>();
    settings.vocab = target.config().vocab;
    settings.num_tokens = top_k == 1 ? depth : options.max_nodes;
    settings.num_steps = depth;
    settings.top_k = top_k;
    settings.max_sequences = 2;
    settings.max_rows = settings.max_logits = 64;
    HeadSettings head;
    head.switches["parallel_drafting"] = config.value("parallel_drafting", false);
    std::unique_ptr<DraftNetwork> network =
        models.network(settings.method, folder / "head", settings, head);
    ASSERT_NE(network, nullptr);
    const std::unique_ptr<Drafter> drafter = make_network_drafter(std::move(network), settings);

    std::vector<Request> requests(2);
    for (size_t i = 0; i < 2; ++i) {
      const size_t prompt = (*json)["prompt"].get<size_t>() + 9 * i;
      requests[i].prompt.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt));
      requests[i].options.max_tokens = static_cast<int>(text.size() - prompt);
      requests[i].options.sampling.temperature = 0.0;
      requests[i].joins_at = static_cast<int>(3 * i);
    }
    const ModelCache owned_cache = cache_for(target, options, 2);
    KvCache& cache = *owned_cache;
    const Replies replies = decode(target, cache, drafter.get(), options, requests);
    for (size_t i = 0; i < 2; ++i) {
      const Reply& reply = replies.of[i];
      const std::vector<int32_t> rest(
          text.begin() + static_cast<std::ptrdiff_t>(requests[i].prompt.size()), text.end());
      EXPECT_EQ(reply.tokens, rest);
      // The prompt's pass emits the first of them.
      const auto emitted = static_cast<int64_t>(rest.size()) - 1;
      EXPECT_EQ(reply.stats.rounds, (emitted + depth) / (depth + 1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, OracleDecoding, testing::ValuesIn(golden_cases(kFolder)),
                         golden_test_name);

}  // namespace aerie::test::oracle_test
