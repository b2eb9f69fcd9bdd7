#include "tests/draft/heads/remembering_head.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/kv_layout.h"

namespace aerie::test {

Hash mixed(Hash a, Hash b) {
  uint64_t x = (uint64_t{a} << 32 | b) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
  return static_cast<Hash>(x >> 32);
}

Hash hash_of(Hash above, std::span<const float> features, int32_t token) {
  for (const float value : features) above = mixed(above, static_cast<Hash>(value));
  return mixed(above, static_cast<Hash>(token));
}

void write_logits(Hash hash, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(mixed(hash, static_cast<Hash>(i)) >> 16) / 8192.0f;
  }
}

std::vector<float> features_at(int text, int position) {
  std::vector<float> features = {static_cast<float>(text), static_cast<float>(position)};
  for (int i = 2; i < kWidth; ++i) {
    features.push_back(static_cast<float>(
        mixed(static_cast<Hash>(text * 1000 + position), static_cast<Hash>(i)) % 1000));
  }
  return features;
}

const RememberingHead::Row* RememberingHead::above(const HeadPass& pass, const BatchRow& row) {
  const ForwardBatch& batch = pass.batch;
  if (row.parent >= 0) return &slots_[batch.rows[static_cast<size_t>(row.parent)].slot];
  if (!row.above.empty()) return &slots_[row.above.back()];
  const BatchSequence& sequence = batch.sequences[static_cast<size_t>(row.sequence)];
  return sequence.committed > 0 ? &slots_[slot_at(sequence, sequence.committed - 1)] : nullptr;
}

// Rows of the target's alone, each at its place.
void RememberingHead::check_prefix(const BatchSequence& sequence) {
  for (int p = 0; p < sequence.committed && shape_.layers > 0; ++p) {
    const Row& row = slots_[slot_at(sequence, p)];
    EXPECT_EQ(row.kind, Kind::kCommitted) << "position " << p;
    EXPECT_EQ(row.position, p);
  }
}

void RememberingHead::check_node(const HeadPass& pass, const BatchRow& row) {
  EXPECT_TRUE(row.wants_logits);
  EXPECT_EQ(row.parent, -1);
  EXPECT_EQ(static_cast<int>(row.above.size()) + 1, pass.depth);
  const BatchSequence& sequence = pass.batch.sequences[static_cast<size_t>(row.sequence)];
  for (size_t i = 0; i < row.above.size(); ++i) {
    EXPECT_EQ(slots_[row.above[i]].kind, Kind::kNode);
    EXPECT_EQ(slots_[row.above[i]].position, sequence.committed + static_cast<int>(i));
  }
  EXPECT_EQ(row.position, sequence.committed + pass.depth - 1);
  EXPECT_GE(std::ranges::count(sequence.pages, row.slot / kernels::kPagePositions), 1);
}

RememberingHead::Row RememberingHead::read(const HeadPass& pass, size_t index) {
  const BatchRow& row = pass.batch.rows[index];
  const float* features = pass.features[index];
  const BatchSequence& sequence = pass.batch.sequences[static_cast<size_t>(row.sequence)];
  const Row* before = above(pass, row);
  const Hash hash = before != nullptr && shape_.layers > 0 ? before->hash : 0;
  Row out{Kind::kCommitted, row.position, row.token, 0};
  if (pass.depth > 0) {
    check_node(pass, row);
    out.kind = Kind::kNode;
    const Hash handed = static_cast<Hash>(features[0]) << 16 | static_cast<Hash>(features[1]);
    if (shape_.layers > 0) {
      EXPECT_EQ(handed, hash) << "not of the row above it";
    }
    out.hash = mixed(handed, static_cast<Hash>(row.token));
    return out;
  }
  EXPECT_EQ(row.slot, slot_at(sequence, row.position));
  if (features == mask_.data()) {
    out.kind = Kind::kMask;
    EXPECT_EQ(row.token, kMaskToken);
    EXPECT_GE(row.parent, 0);
    EXPECT_TRUE(row.wants_logits);
  } else {
    const int text = static_cast<int>(features[0]);
    EXPECT_EQ(static_cast<int>(features[1]), log_.first_of[text] + row.position);
    ++log_.rows_of[text];
  }
  const int ancestor = row.parent >= 0 ? pass.batch.rows[static_cast<size_t>(row.parent)].position
                                       : sequence.committed - 1;
  EXPECT_EQ(row.position, ancestor + 1);
  out.hash = hash_of(hash, {features, kWidth}, row.token);
  return out;
}

HeadOutputs RememberingHead::forward(const HeadPass& pass, KvCache& cache) {
  EXPECT_EQ(cache.layers(), shape_.layers);
  EXPECT_GT(pass.batch.size(), 0);
  EXPECT_EQ(pass.features.size(), pass.batch.rows.size());
  logits_.clear();
  hidden_.clear();
  int wanted = 0;
  for (const BatchSequence& sequence : pass.batch.sequences) check_prefix(sequence);
  std::vector<int32_t> used;
  for (size_t r = 0; r < pass.batch.rows.size(); ++r) {
    const BatchRow& row = pass.batch.rows[r];
    const Row read = this->read(pass, r);
    slots_[row.slot] = read;
    used.push_back(row.slot);
    if (!row.wants_logits) continue;
    ++wanted;
    for (int i = 0; i < shape_.outputs_of_root; ++i) {
      logits_.resize(logits_.size() + kVocab);
      write_logits(mixed(read.hash, static_cast<Hash>(i)), std::span(logits_).last(kVocab));
    }
    hidden_.push_back(static_cast<float>(read.hash >> 16));
    hidden_.push_back(static_cast<float>(read.hash & 0xFFFF));
  }
  std::ranges::sort(used);
  EXPECT_EQ(std::ranges::adjacent_find(used), used.end()) << "two rows in one slot";
  ++log_.passes;
  log_.most_rows = std::max(log_.most_rows, pass.batch.size());
  log_.most_wanted = std::max(log_.most_wanted, wanted);
  return {logits_, hidden_};
}

}  // namespace aerie::test
