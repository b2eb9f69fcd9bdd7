// What is done to a cache, written down so that another does the same: the calls that change it, in
// their order. Caches that were created alike and empty stay alike, since nothing in them depends
// on anything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kv/prefix_tree.h"

namespace aerie {

class KvCache;

// A call of KvCache by its name there.
enum class KvCall : uint8_t {
  kOpen,
  kClose,
  kReserve,
  kCommit,
  kCommitFirst,
  kTruncate,
  kAssume,
  kKeep,
  kAdopt,
  kDropKept,
  kValueBeginning,
  kClaimSnapshot,
};

class KvJournal {
 public:
  // With the arguments that the call has.
  void add(KvCall call, int32_t id = 0, int32_t a = 0, int32_t b = 0);
  void add_path(KvCall call, int32_t id, std::span<const int32_t> path);
  void add_keys(KvCall call, int32_t id, std::span<const PrefixKey> keys, bool tail,
                std::string_view tenant);

  std::span<const std::byte> bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  std::vector<std::byte> bytes_;
};

// Makes the calls, which were possible there. kInternal for bytes that end too early or have a call
// that does not exist.
Status replay(std::span<const std::byte> journal, KvCache& cache);

}  // namespace aerie
