#include "tests/engine/learning/learned_replies.h"

#include <gtest/gtest.h>

#include <utility>

namespace aerie::train::test {

DataInfo learned_info() {
  DataInfo info;
  info.model = "a model";
  info.fingerprint = "00ff00ff00ff00ff";
  info.vocab = 1000;
  info.context = 8192;
  info.settings.max_tokens = 8192;
  info.held_out = 0.05;
  return info;
}

FeatureKind learned_kind() {
  return {learned_info().fingerprint, kLayers, kHidden};
}

LearnStore learned_store(const std::string& folder, int64_t bytes) {
  auto store = LearnStore::open(folder, bytes);
  EXPECT_TRUE(store.ok()) << store.status().message();
  const Status begun = store->begin(learned_info(), learned_kind());
  EXPECT_TRUE(begun.ok()) << begun.message();
  return *std::move(store);
}

LearnedReply learned_reply(int seed, int prompt, int tokens, int reused) {
  LearnedReply out;
  for (int i = 0; i < tokens; ++i) out.tokens.push_back((seed * 7 + i) % 1000);
  out.prompt_length = prompt;
  out.finish = FinishReason::kStop;
  out.temperature = 0.5;
  out.seed = static_cast<uint64_t>(seed);
  out.first_row = reused;
  for (int r = reused; r + 1 < tokens; ++r) {
    out.taps.insert(out.taps.end(), kWidth, static_cast<uint16_t>(100 * seed + r));
  }
  return out;
}

Dataset learned_data(const std::string& folder) {
  auto dataset = read_dataset(folder);
  EXPECT_TRUE(dataset.ok()) << dataset.status().message();
  return dataset.ok() ? *std::move(dataset) : Dataset();
}

}  // namespace aerie::train::test
