// Finds the reply whose layers are known among those that begin with given tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aerie {

// Not thread-safe.
class KnownTexts {
 public:
  struct Place {
    int64_t shard = 0;
    std::string sample;
  };

  // Of two with the same tokens the later one counts.
  void add(std::vector<int32_t> tokens, Place place) {
    places_.insert_or_assign(std::move(tokens), std::move(place));
  }
  // One that begins so and goes on; nullptr if there is none. Until the next call of another
  // member.
  const Place* find(std::span<const int32_t> beginning) const {
    // What goes on follows the beginning itself, and all that goes on so lies together.
    const auto at = places_.upper_bound(beginning);
    if (at == places_.end() || at->first.size() < beginning.size() ||
        !std::ranges::equal(std::span(at->first).first(beginning.size()), beginning)) {
      return nullptr;
    }
    return &at->second;
  }
  void forget(int64_t shard) {
    std::erase_if(places_, [&](const auto& entry) { return entry.second.shard == shard; });
  }

 private:
  struct Before {
    using is_transparent = void;
    bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
      return std::ranges::lexicographical_compare(a, b);
    }
  };

  std::map<std::vector<int32_t>, Place, Before> places_;
};

}  // namespace aerie
