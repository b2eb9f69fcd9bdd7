// What the leader of a group says to the others, as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/forward_batch.h"
#include "core/message.h"
#include "kv/kv_cache.h"

namespace aerie {

enum class RankMessage : uint8_t {
  kOpen,     // what to open (engine/rank_setup.h); to be answered
  kCache,    // a cache to make, from then on that of its number; to be answered
  kDrop,     // the cache of that number is not needed any more
  kForward,  // what was done to caches, and a pass
  kLink,     // the link is measured
  kEnd,      // of this model
};

void write_batch(const ForwardBatch& batch, MessageWriter& out);

// A batch and what its spans point into. Reading one allocates as long as batches grow.
class ReceivedBatch {
 public:
  // kInternal for bytes that are none.
  Status read(MessageReader& in);
  const ForwardBatch& batch() const { return batch_; }

 private:
  ForwardBatch batch_;
  std::vector<std::vector<int32_t>> pages_, above_;
  std::vector<float> hidden_;
};

// Of a cache: its number, its layers' that are left out of the model's, how it is made.
struct CacheOrder {
  uint32_t number = 0;
  std::vector<int32_t> skipped;
  KvCache::Creation creation;
};
void write_order(const CacheOrder& order, MessageWriter& out);
CacheOrder read_order(MessageReader& in);

// Statuses as answers.
std::vector<std::byte> write_status(const Status& status);
Status read_status(std::span<const std::byte> bytes);

}  // namespace aerie
