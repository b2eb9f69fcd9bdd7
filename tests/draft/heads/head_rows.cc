#include "tests/draft/heads/head_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace aerie::test {
namespace {

constexpr int kNodes = 16;

KvCache make_cache(const FeatureHead& head) {
  const KvCache::Creation creation = {.positions = HeadModels::kPositions,
                                      .sequences = 1,
                                      .windows = {0, 0, 0},
                                      .planes = head.cache_planes()};
  auto cache = KvCache::create(head.cache_config(), creation);
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::move(*cache);
}

}  // namespace

RowRunner::RowRunner(FeatureHead& head)
    : head_(head), cache_(make_cache(head)), id_(*cache_.open()) {
  const Status attached = head.attach(cache_);
  EXPECT_TRUE(attached.ok()) << attached.message();
}

RowOutput RowRunner::run(HeadPass& pass) {
  const HeadOutputs outputs = head_.forward(pass, cache_);
  EXPECT_TRUE(outputs.status.ok()) << outputs.status.message();
  RowOutput out = {{outputs.logits.begin(), outputs.logits.end()},
                   {outputs.hidden.begin(), outputs.hidden.end()},
                   {outputs.top.ids.begin(), outputs.top.ids.end()},
                   {outputs.top.log_sums.begin(), outputs.top.log_sums.end()}};
  if (outputs.source == nullptr) return out;
  const auto wanted =
      std::ranges::count_if(pass.batch.rows, &BatchRow::wants_logits) * head_.outputs_of_root();
  for (int i = 0; i < wanted; ++i) {
    const std::span<const float> logits = outputs.source->fetch(i);
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
  }
  return out;
}

std::vector<RowOutput> RowRunner::commit(std::span<const Floats> features,
                                         std::span<const int32_t> tokens, int chunk) {
  std::vector<RowOutput> outputs;
  const auto total = static_cast<int>(features.size());
  for (int begin = 0; begin < total; begin += chunk) {
    const int rows = std::min(chunk, total - begin);
    EXPECT_TRUE(cache_.reserve(id_, rows + kNodes).ok());
    HeadPass pass;
    const int committed = cache_.committed(id_);
    pass.batch.sequences.push_back({cache_.pages(id_), committed, id_});
    for (int i = 0; i < rows; ++i) {
      BatchRow row;
      row.token = tokens[static_cast<size_t>(begin + i)];
      row.position = committed + i;
      row.slot = cache_.slot(id_, i);
      row.parent = i - 1;
      row.wants_logits = i == rows - 1 && head_.block_depths() == 0;
      pass.batch.rows.push_back(row);
      pass.features.push_back(features[static_cast<size_t>(begin + i)].data());
    }
    outputs.push_back(run(pass));
    cache_.commit_first(id_, rows);
  }
  above_.clear();
  return outputs;
}

RowOutput RowRunner::draft_block(int32_t token) {
  const int rows = head_.block_depths() + (head_.root_drafts() ? 0 : 1);
  HeadPass pass;
  pass.block = true;
  pass.batch.sequences.push_back({cache_.pages(id_), cache_.committed(id_), id_});
  for (int i = 0; i < rows; ++i) {
    BatchRow row;
    row.token = i == 0 ? token : head_.mask_token();
    row.position = cache_.committed(id_) + i;
    row.slot = cache_.slot(id_, i);
    row.parent = i - 1;
    row.wants_logits = i > 0 || head_.root_drafts();
    pass.batch.rows.push_back(row);
    pass.features.push_back(nullptr);
  }
  return run(pass);
}

RowOutput RowRunner::add_node(const Floats& hidden, int32_t token) {
  const auto depth = static_cast<int>(above_.size()) + 1;
  HeadPass pass;
  pass.depth = depth;
  pass.batch.sequences.push_back({cache_.pages(id_), cache_.committed(id_), id_});
  BatchRow row;
  row.token = token;
  row.position = cache_.committed(id_) + depth - 1;
  row.slot = cache_.slot(id_, depth - 1);
  row.above = above_;
  row.wants_logits = true;
  pass.batch.rows.push_back(row);
  pass.features.push_back(hidden.data());
  RowOutput output = run(pass);
  above_.push_back(row.slot);
  return output;
}

std::vector<Floats> made_features(int rows, int width) {
  std::mt19937 random(7);
  std::vector<Floats> all(static_cast<size_t>(rows), Floats(static_cast<size_t>(width)));
  for (Floats& row : all) {
    for (float& value : row) value = static_cast<float>(random() % 2001) / 500.0f - 2.0f;
  }
  return all;
}

std::vector<int32_t> made_tokens(int rows, int vocab) {
  std::mt19937 random(11);
  std::vector<int32_t> tokens(static_cast<size_t>(rows));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<unsigned>(vocab));
  }
  return tokens;
}

RowOutput last_of(HeadFolder& folder, int rows, int changed, const HeadSettings& settings) {
  const auto head = folder.load(settings);
  EXPECT_TRUE(head.ok()) << head.status().message();
  if (!head.ok()) return {};
  std::vector<Floats> features = made_features(rows, (*head)->feature_width());
  if (changed >= 0) std::ranges::reverse(features[static_cast<size_t>(changed)]);
  return RowRunner(**head).commit(features, made_tokens(rows, (*head)->vocab()), rows).back();
}

void add_floats(HeadFolder& folder, const std::string& name, std::vector<int64_t> shape,
                const Floats& values) {
  folder.add(name, std::move(shape));
  std::vector<std::byte>& data = folder.tensors.back().data;
  ASSERT_EQ(data.size(), values.size() * sizeof(float));
  std::memcpy(data.data(), values.data(), data.size());
}

}  // namespace aerie::test
