// Replies as a server keeps them, and a store for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/learning/learn_store.h"
#include "train/data/dataset.h"

namespace aerie::train::test {

inline constexpr int kHidden = 8;
inline const std::vector<int32_t> kLayers = {0, 2};
inline constexpr size_t kWidth = 2 * kHidden;

// Of what learned_store() keeps.
DataInfo learned_info();
FeatureKind learned_kind();

// A store that has begun. Fails the test for an error.
LearnStore learned_store(const std::string& folder, int64_t bytes = LearnStore::kLeastBytes);

// Row r has the value 100 * seed + r in 16 bits, so that it can be told whose it is.
LearnedReply learned_reply(int seed, int prompt, int tokens, int reused = 0);

// Fails the test for what read_dataset() refuses.
Dataset learned_data(const std::string& folder);

}  // namespace aerie::train::test
