// Finds named things by name. Sorted rather than hashed: names come from hostile files, and no
// choice of names makes a binary search slow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace aerie {

class NameIndex {
 public:
  // Indexes name_of(0) ... name_of(count - 1), whose characters must outlive the index. Returns a
  // name that occurs twice, if one does; the index is not usable then.
  template <typename NameOf>
  std::optional<std::string_view> build(uint32_t count, const NameOf& name_of) {
    entries_.clear();
    entries_.reserve(count);
    for (uint32_t i = 0; i < count; ++i) entries_.push_back({name_of(i), i});
    std::ranges::sort(entries_, [](const Entry& a, const Entry& b) { return a.name < b.name; });
    const auto same = [](const Entry& a, const Entry& b) { return a.name == b.name; };
    const auto twin = std::adjacent_find(entries_.begin(), entries_.end(), same);
    if (twin != entries_.end()) return twin->name;
    return std::nullopt;
  }

  std::optional<uint32_t> find(std::string_view name) const {
    const auto less = [](const Entry& entry, std::string_view wanted) {
      return entry.name < wanted;
    };
    const auto it = std::lower_bound(entries_.begin(), entries_.end(), name, less);
    if (it == entries_.end() || it->name != name) return std::nullopt;
    return it->index;
  }

 private:
  struct Entry {
    std::string_view name;
    uint32_t index;
  };
  std::vector<Entry> entries_;
};

}  // namespace aerie
