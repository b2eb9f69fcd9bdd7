// What is kept for each tenant (DraftSequence::tenant), and of all of them together no more than a
// limit: whose was not used for the longest time goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace aerie {

// Not thread-safe.
template <typename T>
class TenantMap {
 public:
  class Entry {
   public:
    T value;

   private:
    friend class TenantMap;
    Entry(std::string_view of, T made) : value(std::move(made)), tenant(of) {}
    std::string tenant;
    int64_t weight = 0;
    int holders = 0;
  };

  // Of all weights together.
  explicit TenantMap(int64_t most) : most_(most) {}

  // Null if nothing is kept for the tenant.
  Entry* find(std::string_view tenant) {
    const auto found = places_.find(tenant);
    return found == places_.end() ? nullptr : &*found->second;
  }
  const Entry* find(std::string_view tenant) const {
    const auto found = places_.find(tenant);
    return found == places_.end() ? nullptr : &*found->second;
  }
  // The tenant's, which is what make() returns if there is none. It is in use now, and stays until
  // it has been released as often as it was held.
  template <typename Make>
  Entry& hold(std::string_view tenant, const Make& make) {
    const auto found = places_.find(tenant);
    if (found == places_.end()) {
      entries_.push_back(Entry(tenant, make()));
      places_.emplace(entries_.back().tenant, std::prev(entries_.end()));
    } else {
      entries_.splice(entries_.end(), entries_, found->second);
    }
    ++entries_.back().holders;
    return entries_.back();
  }
  void release(Entry& entry) { --entry.holders; }

  // What it weighs from now on. Others go, if need be and nobody holds them; false if together they
  // are too heavy all the same. Requires that it is held.
  bool weigh(Entry& entry, int64_t weight) {
    total_ += weight - entry.weight;
    entry.weight = weight;
    for (auto at = entries_.begin(); total_ > most_ && at != entries_.end();) {
      const auto one = at++;
      if (one->holders > 0) continue;
      total_ -= one->weight;
      places_.erase(one->tenant);
      entries_.erase(one);
    }
    return total_ <= most_;
  }

  // Requires that nobody holds any.
  void clear() {
    places_.clear();
    entries_.clear();
    total_ = 0;
  }

  size_t size() const { return entries_.size(); }

 private:
  int64_t most_;
  int64_t total_ = 0;
  std::list<Entry> entries_;  // the longest unused first
  std::unordered_map<std::string_view, typename std::list<Entry>::iterator> places_;
};

}  // namespace aerie
