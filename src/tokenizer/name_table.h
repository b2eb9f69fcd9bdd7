// Finds tokens by name: a hash table that a look-up touches once.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace aerie {

// The characters of the names must outlive the table. Its hash differs from process to process, so
// that no file can be made to slow it down; nothing but time depends on it.
class NameTable {
 public:
  void reserve(size_t count) {
    if (count * 2 > slots_.size()) grow(std::bit_ceil(count * 2));
  }

  // False, changing nothing, if the name is there already. Requires value >= 0.
  bool add(std::string_view name, int32_t value) {
    if ((count_ + 1) * 2 > slots_.size()) grow(slots_.empty() ? 16 : slots_.size() * 2);
    Slot& slot = slots_[place(name)];
    if (slot.value >= 0) return false;
    slot = {hash(name), value, name};
    ++count_;
    return true;
  }

  // -1 if it is not there.
  int32_t find(std::string_view name) const {
    return slots_.empty() ? -1 : slots_[place(name)].value;
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t value = -1;  // -1: empty
    std::string_view name;
  };

  static uint32_t hash(std::string_view name) {
    static const uint64_t kSeed = std::random_device()();
    uint64_t state = kSeed ^ name.size() * 0x9E3779B97F4A7C15u;
    for (size_t at = 0; at < name.size(); at += 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, name.data() + at, name.size() - at < 8 ? name.size() - at : 8);
      state = (state ^ eight) * 0xD6E8FEB86659FD93u;
      state = (state ^ state >> 32) * 0xD6E8FEB86659FD93u;
      state ^= state >> 32;
    }
    return static_cast<uint32_t>(state ^ state >> 32);
  }

  // The slot with the name, or the empty one where it would be.
  size_t place(std::string_view name) const {
    const uint32_t wanted = hash(name);
    const size_t mask = slots_.size() - 1;
    size_t at = wanted & mask;
    while (slots_[at].value >= 0 && !(slots_[at].hash == wanted && slots_[at].name == name)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  void grow(size_t size) {
    std::vector<Slot> old(size);
    std::swap(old, slots_);
    for (const Slot& slot : old) {
      if (slot.value >= 0) slots_[place(slot.name)] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two of them, at most half full
  size_t count_ = 0;
};

}  // namespace aerie
