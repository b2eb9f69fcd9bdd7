// Runs a head's rows by hand: of one sequence, with features that are given.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "draft/heads/feature_head.h"
#include "kv/kv_cache.h"
#include "tests/draft/heads/head_folder.h"

namespace aerie::test {

using Floats = std::vector<float>;

struct RowOutput {
  Floats logits, hidden;
  std::vector<int32_t> top = {};  // HeadOutputs::top
  Floats log_sums = {};
};

class RowRunner {
 public:
  explicit RowRunner(FeatureHead& head);

  // Runs rows of the next positions, `chunk` (or what is left) a pass. What comes of the last row
  // of each pass.
  std::vector<RowOutput> commit(std::span<const Floats> features, std::span<const int32_t> tokens,
                                int chunk);
  // Of a head that drafts blocks (FeatureHead::block_depths()), whose rows so far have been
  // committed: the block's that draft.
  RowOutput draft_block(int32_t token);
  // Runs a node below the last one, or below the root, with what came of that.
  RowOutput add_node(const Floats& hidden, int32_t token);

 private:
  RowOutput run(HeadPass& pass);

  FeatureHead& head_;
  KvCache cache_;
  KvCache::Id id_;
  std::vector<int32_t> above_;
};

// Of different rows, always the same.
std::vector<Floats> made_features(int rows, int width);
std::vector<int32_t> made_tokens(int rows, int vocab);

// The last row's outputs of a head as it is in the folder now, over so many made rows; of row
// `changed`, if there is such, with other features. Fails the test if the head cannot be loaded.
RowOutput last_of(HeadFolder& folder, int rows = 12, int changed = -1,
                  const HeadSettings& settings = {});

void add_floats(HeadFolder& folder, const std::string& name, std::vector<int64_t> shape,
                const Floats& values);

}  // namespace aerie::test
