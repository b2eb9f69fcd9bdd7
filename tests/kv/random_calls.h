// Calls of a cache such as decoding makes, at random.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "kv/kv_cache.h"

namespace aerie {

class RandomCalls {
 public:
  static constexpr int kSequences = 4;

  // Of a small cache to be called: three layers.
  static ModelConfig config();

  // A pass that writes `rows` entries, which are reserved, behind what is committed of the
  // sequence: each with what is its own (`mark` + its number).
  using Pass = std::function<void(KvCache::Id id, int rows, uint8_t mark)>;

  explicit RandomCalls(uint64_t seed) : random_(seed) {}

  // Does something that may be done to the cache, which has 1,024 positions for kSequences.
  void make(KvCache& cache, const Pass& pass);

 private:
  struct Open {
    KvCache::Id id = -1;
    std::vector<PrefixKey> keys;
  };

  int draw(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  void begin(KvCache& cache, Open& one);
  void rows(KvCache& cache, Open& one, const Pass& pass);

  std::mt19937_64 random_;
  std::array<Open, kSequences> open_;
};

// Writes the entry's mark into a plane.
void write_mark(const kernels::KvLayout& layout, std::byte* plane, int32_t slot, uint8_t mark);

}  // namespace aerie
