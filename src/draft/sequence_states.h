// What a drafter keeps for each open sequence, and the checks that all of them owe their callers.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/errors.h"
#include "draft/drafter.h"

namespace aerie {

// Not thread-safe. Allocates in open() alone.
template <typename State>
class SequenceStates {
 public:
  // `method` is what the messages call the drafter.
  explicit SequenceStates(std::string_view method)
      : name_(std::string(method) + " drafter: sequence ") {}

  // Holds what make() returns until close(). kInvalidArgument for an id that is open already and
  // for a sequence without tokens; kResourceExhausted if make() throws.
  template <typename Make>
  Status open(const DraftSequence& sequence, const Make& make) {
    const std::string name = name_ + std::to_string(sequence.id);
    if (sequence.max_tokens < 1) return invalid_argument("{}: max_tokens must be at least 1", name);
    if (entries_.contains(sequence.id)) return invalid_argument("{} is open already", name);
    try {
      entries_.try_emplace(sequence.id, Entry{make(), sequence.max_tokens, 0});
    } catch (const std::exception&) {
      return resource_exhausted("{}: no memory to draft for {} tokens", name, sequence.max_tokens);
    }
    return {};
  }
  // No matter if it is not open.
  void close(SequenceId id) { entries_.erase(id); }

  // Whether every request or commit is of an open sequence whose tokens have not become fewer, nor
  // more than were announced. To be asked before anything is changed for any of them.
  template <typename Item>
  Status check(std::span<Item> batch) const {
    for (const Item& item : batch) {
      const auto found = entries_.find(item.id);
      const auto fail = [&](const std::string& what) {
        return invalid_argument("{}{}{}", name_, item.id, what);
      };
      if (found == entries_.end()) return fail(" is not open");
      const Entry& entry = found->second;
      const size_t tokens = item.tokens.size();
      if (tokens > static_cast<size_t>(entry.max_tokens)) {
        return fail(" has " + std::to_string(tokens) + " tokens, it was opened for " +
                    std::to_string(entry.max_tokens));
      }
      if (tokens < entry.length) {
        return fail(" has shrunk from " + std::to_string(entry.length) + " to " +
                    std::to_string(tokens) + " tokens");
      }
    }
    return {};
  }

  // The state of an open sequence, or nullptr.
  State* find(SequenceId id) {
    const auto found = entries_.find(id);
    return found == entries_.end() ? nullptr : &found->second.state;
  }
  // The state for an item that has passed check(); its tokens are the sequence's from now on.
  template <typename Item>
  State& use(const Item& item) {
    Entry& entry = entries_.find(item.id)->second;
    entry.length = item.tokens.size();
    return entry.state;
  }

 private:
  struct Entry {
    State state;
    int max_tokens;
    size_t length;
  };

  std::string name_;
  std::unordered_map<SequenceId, Entry> entries_;
};

}  // namespace aerie
